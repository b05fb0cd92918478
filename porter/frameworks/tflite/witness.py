"""Whether TensorFlow Lite's own interpreter computes of a model what porter reads in it. See
porter.verification.witnesses.Witness.

Each operator is held to the interpreter by itself: porter's own engine computes its value from the
interpreter's inputs, so that no rounding adds up on the way, and noise of any size will do.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays, is_floating
from porter.base.errors import CannotRun, Contradiction, NotInstalled, escaped
from porter.base.package import install
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph
from porter.filegraph.kernels.program import KernelProgram, OperatorCall
from porter.formats.apart import Limits, run_apart
from porter.formats.tflite.model import IMAGE, read_model
from porter.formats.tflite.rows import program
from porter.frameworks.numpy.engine import NumpyModel
from porter.frameworks.tflite import recording
from porter.padding import KnownSize

NAME = "TensorFlow Lite's interpreter"
_LIMITS = Limits(seconds=120, memory=4 << 30, written=2 << 30)
_ROUNDING = 1e-5
"""The rounding of one operator in float32. An operator of another meaning differs by 1e-4 and more."""
_OF_8_BITS, _OWN_8_BITS = 0.02, 6.0
"""An operator whose weights are of 8 bits, to which its inputs are rounded as it runs, may differ by so much,
or so many times what such a rounding of its inputs makes of it: measured 0.6 to 3.4 times, up to 0.009. A
zero of 5 that is taken away and should not be makes 10 to 18 times.
"""
_OWN_ROUNDING = 16.0
"""An operator may differ by so many times its own rounding, which a mean of numbers that cancel out has."""
_LEAST = 1e-6
"""The root mean square below which a value is as good as zero."""
_LARGEST = 1e37
"""What is larger may be infinite in float32."""


def disagreement(checkpoint: Checkpoint, size: KnownSize, whole: bool) -> str | None:
    """See porter.verification.witnesses.Witness.

    Raises:
        CannotRun: neither TensorFlow nor LiteRT is installed, or the interpreter does not run the
            model.
    """
    if not (find_spec("ai_edge_litert") or find_spec("tensorflow")):
        raise NotInstalled("neither tensorflow nor ai-edge-litert is installed", next=install("tf"))
    graph = checkpoint.carried
    with TemporaryDirectory() as folder:
        recorded = _record(checkpoint.path, Path(folder), size)
        outputs = len(recorded.outputs)
        names = graph.output_names if whole else ()
        if whole and outputs != len(names):
            return f"{NAME} gives {outputs} outputs of the model, and porter reads {len(names)}"
        model = read_model(graph.definition)
        whole_program = program(graph.definition)
        # What a cut leaves out, such as an operator of a detector's that porter lacks, is not asked.
        steps = NumpyModel(whole_program, model.stored, "float32").needed(graph.output_names)
        reading = _Reading(replace(whole_program, steps=tuple(steps)), model.stored)
        values = {name for operator in model.operators for name in operator.gives}
        for run in recorded.runs:
            given = _given(graph, recorded, run, values)
            # The last ones are the outputs, whatever the names of tensors are.
            wanted = given | dict(zip(names, (run.get(index) for index in recorded.outputs), strict=False))
            try:
                differing = _first_apart(reading, given, wanted, recorded.kinds)
            except (CannotRun, Contradiction) as error:  # porter's engine ran it from its own values
                return f"porter's engine cannot run the model from the values of {NAME}: {error}"
            if differing is not None:
                return f"porter and {NAME} disagree on {differing}"
    return None


@dataclass(frozen=True)
class _Reading:
    """What porter reads of a model: its operators for porter's own engine, and its tensors."""

    program: KernelProgram
    stored: NamedArrays

    def replayed(self, dtype: Dtype, given: NamedArrays) -> Iterator[tuple[OperatorCall, str, Array]]:
        """Yield each value that porter's engine computes from those that are `given`, with its step and
        name.
        """
        for step, values in NumpyModel(self.program, self.stored, dtype).replayed(given):
            for name, value in zip(step.outputs, values, strict=True):
                yield step, name, np.asarray(value)


@dataclass(frozen=True)
class _Recorded:
    """What the interpreter gave.

    Attributes:
        runs: the values by the places of their tensors, of each run.
        inputs, outputs: the places of those that the model takes and gives, in its order.
        names: of tensors by place, those that only one has.
        kinds: the number types of these tensors by name.
    """

    runs: tuple[Mapping[int, Array], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    names: Mapping[int, str]
    kinds: Mapping[str, str]


def _record(path: Path, folder: Path, size: KnownSize) -> _Recorded:
    """Return what another process records of a model at this size."""
    arguments: tuple[str | Path, ...] = (path.absolute(), folder, *map(str, size))
    try:
        run_apart(recording.__file__, arguments, path.stat().st_size, NAME, _LIMITS)
    except ValueError as error:
        raise CannotRun(str(error), where=path) from None
    recorded = json.loads((folder / "described").read_text())
    data = np.memmap(folder / "values", np.uint8, "r")
    at = 0
    runs = list[dict[int, Array]]()
    for described in recorded["runs"]:
        runs.append({})
        for index, kind, shape in filter(None, described):
            end = at + math.prod(shape) * np.dtype(kind).itemsize
            runs[-1][index] = data[at:end].view(kind).reshape(shape)
            at = end
    tensors = {int(index): (name, kind) for index, (name, kind) in recorded["tensors"].items()}
    uses = Counter(name for name, _ in tensors.values())
    names = {index: name for index, (name, _) in tensors.items() if name and uses[name] == 1}
    kinds = {name: tensors[index][1] for index, name in names.items()}
    return _Recorded(tuple(runs), tuple(recorded["inputs"]), tuple(recorded["outputs"]), names, kinds)


def _given(
    graph: FileGraph, recorded: _Recorded, run: Mapping[int, Array], values: Collection[str]
) -> dict[str, Array]:
    """Return the interpreter's values by porter's names, which are those of `values` or of what the model
    takes. The image is the first input of four axes.
    """
    image = next((index for index in recorded.inputs if index in run and run[index].ndim == 4), None)
    beside = [index for index in recorded.inputs if index != image]
    taken = {IMAGE: image, **dict(zip((each.name for each in graph.further_inputs), beside, strict=False))}
    named = {name: run[index] for index, name in recorded.names.items() if index in run and name in values}
    return named | {name: run[index] for name, index in taken.items() if index is not None and index in run}


def _first_apart(
    reading: _Reading,
    given: NamedArrays,
    wanted: Mapping[str, Array | None],
    kinds: Mapping[str, str],
) -> str | None:
    """Return the first operator that gives something else than is wanted, in words; None where none does.

    Args:
        given: the values that operators read.
        kinds: the number types of tensors, as the interpreter says.
    """
    rounded = reading.replayed("float32", given)
    if all(
        _plainly_equal(wanted.get(name), value) or _distance(wanted.get(name), value) <= _ROUNDING
        for _, name, value in rounded
    ):
        return None
    exactly = reading.replayed("float64", given)
    coarsely = reading.replayed("float64", {name: _in_8_bits(value) for name, value in given.items()})
    every = zip(reading.replayed("float32", given), exactly, coarsely, strict=True)
    real = [name for name, tensor in reading.stored.items() if is_floating(tensor)]
    of_8_bits = {name for name in real if "int" in kinds.get(name, "")}
    for (step, name, value), (*_, exact), (*_, moved) in every:
        coarse = not of_8_bits.isdisjoint(step.inputs)
        of_8_bits |= {name} if coarse and name not in given else set()
        distance = _distance(wanted.get(name), exact)
        own = _distance(value, exact)
        rounding = max(_OF_8_BITS, _OWN_8_BITS * _distance(moved, exact)) if coarse else 0.0
        if not distance <= max(_ROUNDING, _OWN_ROUNDING * own, rounding):
            apart = "another shape" if math.isinf(distance) else f"relative L2 {distance:.1e}"
            return f"'{escaped(name)}' ({escaped(step.op)}; {apart})"
    return None


def _in_8_bits(value: Array) -> Array:
    """Return real numbers, each moved by at most half a step of 8 bits."""
    if not is_floating(value):
        return value
    exact = value.astype(np.float64)
    largest = float(np.abs(exact).max(initial=0.0))
    step = largest / 127 if math.isfinite(largest) else 0.0
    return exact + step * np.random.default_rng(0).uniform(-0.5, 0.5, value.shape)


def _plainly_equal(wanted: Array | None, value: Array) -> bool:
    """Say whether a value is within half of `_ROUNDING`, by float32 only: that is so of nearly all operators
    of a right reading, and `_distance` copies each value to float64.
    """
    if wanted is None or wanted.shape != value.shape or not wanted.dtype == value.dtype == np.float32:
        return wanted is None
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.subtract(wanted, value).ravel()
        flat = value.ravel()
        return bool(np.dot(apart, apart) <= (_ROUNDING / 2) ** 2 * np.dot(flat, flat))


def _distance(wanted: Array | None, value: Array) -> float:
    """Return the relative L2 distance of a value, without cells that may be infinite in float32; infinite
    where shapes or whole numbers differ, and none where there is nothing to compare with.
    """
    if wanted is None:
        return 0.0
    if wanted.shape != value.shape:
        return math.inf
    if not is_floating(wanted):
        return 0.0 if np.array_equal(wanted, value) else math.inf
    exact = value.astype(np.float64)
    finite = np.abs(exact) < _LARGEST  # not of NaN
    exact = np.where(finite, exact, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(finite, wanted.astype(np.float64) - exact, 0.0)
        square = float(np.square(apart).sum())
    least = float(np.square(exact).sum()) + max(value.size, 1) * _LEAST**2
    return math.inf if math.isnan(square) else math.sqrt(square / least)
