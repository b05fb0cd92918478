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
from porter.filegraph.program import KernelProgram, OperatorCall
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
_ROUNDING_OF_8_BITS, _TIMES_OF_8_BITS = 0.02, 6.0
"""An operator whose weights are of 8 bits, to which its inputs are rounded as it runs, may differ by so much,
or so many times what such a rounding of its inputs makes of it: measured 0.6 to 3.4 times, up to 0.009. A
zero of 5 that is taken away and should not be makes 10 to 18 times.
"""
_TIMES_OWN_ROUNDING = 16.0
"""An operator may differ by so many times its own rounding, which a mean of numbers that cancel out has."""
_ZERO_RMS = 1e-6
"""The root mean square below which a value is as good as zero."""
_MAX_FINITE = 1e37
"""What is larger may be infinite in float32."""


def disagreement(checkpoint: Checkpoint, size: KnownSize, whole: bool) -> str | None:
    """Say in words on which operator porter's engine and the interpreter disagree, or that they disagree on
    the number of outputs; None where they agree. See porter.verification.witnesses.Witness.

    Args:
        size: rows and columns of the image that is fed.
        whole: the graph has the outputs of the file, not values that a user names; then they are compared.

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
        steps = NumpyModel(whole_program, model.stored, "float32").steps_for(graph.output_names)
        reading = _Reading(replace(whole_program, steps=tuple(steps)), model.stored)
        values = {name for operator in model.operators for name in operator.gives}
        for run in recorded.runs:
            known_values = _values_by_name(graph, recorded, run, values)
            # The outputs are known by their order, whatever the names of their tensors are.
            output_values = zip(names, (run.get(index) for index in recorded.outputs), strict=False)
            expected = known_values | dict(output_values)
            try:
                difference = _first_difference(reading, known_values, expected, recorded.kinds)
            except (CannotRun, Contradiction) as error:  # porter's engine ran it from its own values
                return f"porter's engine cannot run the model from the values of {NAME}: {error}"
            if difference is not None:
                return f"porter and {NAME} disagree on {difference}"
    return None


@dataclass(frozen=True)
class _Reading:
    """What porter reads of a model: its operators for porter's own engine, and its tensors."""

    program: KernelProgram
    stored: NamedArrays

    def replay(self, dtype: Dtype, recorded: NamedArrays) -> Iterator[tuple[OperatorCall, str, Array]]:
        """Yield each value that porter's engine computes in `dtype` from the interpreter's values, given by
        name, with its step and its name.
        """
        for step, values in NumpyModel(self.program, self.stored, dtype).replay(recorded):
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
    """Let another process run a model of TensorFlow Lite at this size, and return the values that it has
    recorded. They stay in files in `folder`, which are read as they are needed.
    """
    arguments: tuple[str | Path, ...] = (path.absolute(), folder, *map(str, size))
    try:
        run_apart(recording.__file__, arguments, path.stat().st_size, NAME, _LIMITS)
    except ValueError as error:
        raise CannotRun(str(error), where=path) from None
    recorded = json.loads((folder / "described").read_text())
    data = np.memmap(folder / "values", np.uint8, "r")
    offset = 0
    runs = list[dict[int, Array]]()
    # The file has the values of all runs one behind the other.
    for tensors_of_run in recorded["runs"]:
        values = dict[int, Array]()
        for index, kind, shape in filter(None, tensors_of_run):
            end_of_tensor = offset + math.prod(shape) * np.dtype(kind).itemsize
            values[index] = data[offset:end_of_tensor].view(kind).reshape(shape)
            offset = end_of_tensor
        runs.append(values)
    tensors = {int(index): (name, kind) for index, (name, kind) in recorded["tensors"].items()}
    uses = Counter(name for name, _ in tensors.values())
    names = {index: name for index, (name, _) in tensors.items() if name and uses[name] == 1}
    kinds = {name: tensors[index][1] for index, name in names.items()}
    return _Recorded(tuple(runs), tuple(recorded["inputs"]), tuple(recorded["outputs"]), names, kinds)


def _values_by_name(
    graph: FileGraph, recorded: _Recorded, run: Mapping[int, Array], values: Collection[str]
) -> dict[str, Array]:
    """Return the interpreter's values by porter's names, which are those of `values` or of the model's
    inputs. The image is the first input of four axes.
    """
    image = next((index for index in recorded.inputs if index in run and run[index].ndim == 4), None)
    other_inputs = [index for index in recorded.inputs if index != image]
    further_names = (further.name for further in graph.further_inputs)
    # The indices of the inputs' tensors, by porter's names of the inputs.
    inputs = {IMAGE: image, **dict(zip(further_names, other_inputs, strict=False))}
    values_of_inputs = {
        name: run[index] for name, index in inputs.items() if index is not None and index in run
    }
    by_name = {name: run[index] for index, name in recorded.names.items() if index in run and name in values}
    return {**by_name, **values_of_inputs}


def _first_difference(
    reading: _Reading,
    known_values: NamedArrays,
    expected: Mapping[str, Array | None],
    kinds: Mapping[str, str],
) -> str | None:
    """Return the first operator whose value is not what TensorFlow Lite's interpreter gave, in words; None
    where there is none. An operator may be apart by float32's rounding and, where the file stores weights in
    8 bits, by what 8 bits make of its inputs, which a second run with rounded inputs measures.

    Args:
        known_values: the values that operators read.
        expected: the values that the interpreter gave, by name.
        kinds: the number types of tensors, as the interpreter says.
    """
    # In float32 first, which is fast and settles nearly every model.
    if all(
        _is_close_in_float32(expected.get(name), value) or _distance(expected.get(name), value) <= _ROUNDING
        for _, name, value in reading.replay("float32", known_values)
    ):
        return None
    # Each operator's value three times: in float32, in float64, and of inputs that are rounded to 8 bits.
    rounded_inputs = {name: _rounded_to_8_bits(value) for name, value in known_values.items()}
    in_float32 = reading.replay("float32", known_values)
    in_float64 = reading.replay("float64", known_values)
    of_rounded_inputs = reading.replay("float64", rounded_inputs)
    steps = zip(in_float32, in_float64, of_rounded_inputs, strict=True)
    # Weights that the file stores as integers, and porter reads as real numbers.
    float_tensors = [name for name, tensor in reading.stored.items() if is_floating(tensor)]
    of_8_bits = {name for name in float_tensors if "int" in kinds.get(name, "")}
    for (step, name, value), (*_, exact), (*_, value_of_rounded) in steps:
        is_of_8_bits = not of_8_bits.isdisjoint(step.inputs)
        if is_of_8_bits and name not in known_values:
            of_8_bits.add(name)
        distance = _distance(expected.get(name), exact)
        limit = max(_ROUNDING, _TIMES_OWN_ROUNDING * _distance(value, exact))
        if is_of_8_bits:
            limit = max(limit, _ROUNDING_OF_8_BITS, _TIMES_OF_8_BITS * _distance(value_of_rounded, exact))
        if not distance <= limit:
            difference = "another shape" if math.isinf(distance) else f"relative L2 {distance:.1e}"
            return f"'{escaped(name)}' ({escaped(step.op)}; {difference})"
    return None


def _rounded_to_8_bits(value: Array) -> Array:
    """Return real numbers, each moved by at most half a step of 8 bits; other numbers as they are."""
    if not is_floating(value):
        return value
    exact = value.astype(np.float64)
    largest = float(np.abs(exact).max(initial=0.0))
    step = largest / 127 if math.isfinite(largest) else 0.0
    return exact + step * np.random.default_rng(0).uniform(-0.5, 0.5, value.shape)


def _is_close_in_float32(expected: Array | None, value: Array) -> bool:
    """Say whether a value is within half of `_ROUNDING`, computed in float32 only: that holds for nearly all
    operators of a right reading, and `_distance` copies each value to float64.
    """
    if expected is None:  # there is nothing to compare with
        return True
    if expected.shape != value.shape or not expected.dtype == value.dtype == np.float32:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.subtract(expected, value).ravel()
        flat = value.ravel()
        # By squares of norms.
        return bool(np.dot(difference, difference) <= (_ROUNDING / 2) ** 2 * np.dot(flat, flat))


def _distance(expected: Array | None, value: Array) -> float:
    """Return the relative L2 distance of a value, without cells that may be infinite in float32; infinite
    where shapes or whole numbers differ, and 0 where there is nothing to compare with.
    """
    if expected is None:
        return 0.0
    if expected.shape != value.shape:
        return math.inf
    if not is_floating(expected):
        return 0.0 if np.array_equal(expected, value) else math.inf
    exact = value.astype(np.float64)
    finite = np.abs(exact) < _MAX_FINITE  # not of NaN
    exact = np.where(finite, exact, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.where(finite, expected.astype(np.float64) - exact, 0.0)
        square = float(np.square(difference).sum())
    size = float(np.square(exact).sum()) + max(value.size, 1) * _ZERO_RMS**2
    return math.inf if math.isnan(square) else math.sqrt(square / size)
