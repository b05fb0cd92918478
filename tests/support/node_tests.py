"""ONNX's own tests of single operators as files, ported by `porter.convert` and held to the outputs that ONNX
states.

A test states its inputs and its outputs. Its first input stays the model's input, and the others are stored
in the file, as weights are. Where porter refuses that, the inputs of one batch with the first one stay too.
Nothing else of the test's model is changed.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

import porter
from porter.base.dtypes import is_floating
from porter.base.errors import CheckFailed, PorterError
from porter.formats.onnx.plain import PLAIN
from porter.graph import shapes
from porter.graph.ops import is_map
from porter.port import read_port
from tests.support.arrays import Array

State = Literal["exact", "refused", "wrong"]
OF_MAPS = frozenset(
    {
        "Conv",
        "ConvTranspose",
        "MaxPool",
        "AveragePool",
        "GlobalMaxPool",
        "GlobalAveragePool",
        "BatchNormalization",
        "LRN",
        "DepthToSpace",
        "Pad",
        "Concat",
        "Flatten",
    }
)
OF_EACH = frozenset({*PLAIN, "Gelu", "Mish", "Celu", "Clip", "Swish", "Neg"})


@dataclass(frozen=True)
class Case:
    """One of ONNX's tests.

    Attributes:
        kind: the operator.
        classic: whether the operator is of the kinds that convolutional networks have had for long, which
            other converters were measured by: those of maps take one of rank 4.
        inputs, outputs: arrays, or what else ONNX states, such as a sequence.
    """

    name: str
    kind: str
    classic: bool
    model: Any
    inputs: Sequence[Any]
    outputs: Sequence[Any]


@dataclass(frozen=True)
class Outcome:
    """What became of a case. `why` is the refusal, or how the port differs."""

    state: State
    why: str = ""


def cases() -> Iterator[Case]:
    """Every test of one operator; what ONNX calls expanded is a function's body, of many."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():  # some overflow on purpose
        warnings.simplefilter("ignore")
        collected = collect_testcases(None)
    for case in collected:
        if "_expanded" not in case.name and case.model is not None and case.data_sets is not None:
            inputs, outputs = ([_array(value) for value in values] for values in case.data_sets[0])
            kinds = {node.op_type for node in case.model.graph.node} - {"Constant", "Identity"}
            kind = kinds.pop() if len(kinds) == 1 else case.model.graph.node[-1].op_type
            classic = not kinds and "training" not in case.name and _is_classic(kind, inputs)
            yield Case(case.name, kind, classic, case.model, inputs, outputs)


def _array(value: Any) -> Any:
    import onnx

    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _is_classic(kind: str, inputs: Sequence[Any]) -> bool:
    x = inputs[0] if inputs else None
    if not isinstance(x, np.ndarray) or x.dtype not in (np.float32, np.int32):
        return False
    return (kind in OF_EACH and x.ndim > 0) or kind == "Gemm" or (kind in OF_MAPS and x.ndim == 4)


def write(case: Case, path: Path, beside: Collection[str] = ()) -> None:
    """The test's model, whose inputs after the first are stored, but for those `beside` it."""
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for value, array in list(zip(model.graph.input, case.inputs, strict=True))[1:]:
        if value.name not in beside and isinstance(array, np.ndarray | np.generic):
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), value.name))
            model.graph.input.remove(value)
    path.write_bytes(model.SerializeToString())


def outcome(case: Case, to: str, check: bool = False) -> Outcome:
    """Ports a case, and compares what the port gives with what ONNX states."""
    first = _outcome(case, to, check, ())
    beside = [name for name, array in list(_named(case).items())[1:] if _is_beside(array, case.inputs[0])]
    second = _outcome(case, to, check, beside) if beside and first.state == "refused" else first
    return first if second.state == "refused" else second


def _named(case: Case) -> dict[str, Any]:
    return dict(zip((value.name for value in case.model.graph.input), case.inputs, strict=True))


def _is_beside(array: Any, first: Any) -> bool:
    return all(isinstance(each, np.ndarray) and each.ndim > 1 for each in (array, first)) and (
        is_floating(array) and array.shape[0] == first.shape[0]
    )


def _outcome(case: Case, to: str, check: bool, beside: Collection[str]) -> Outcome:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        path, port = Path(folder) / "model.onnx", Path(folder) / "port"
        write(case, path, beside)
        try:
            porter.convert(path, to=to, out=port, check=check, keep_activation=True)
        except CheckFailed as error:
            return Outcome("wrong", str(error))
        except PorterError as error:
            return Outcome("refused", error.message.replace(f"{folder}/", ""))
        taken = {case.model.graph.input[0].name, *beside}
        found = run(
            port, to, **{name: np.asarray(array) for name, array in _named(case).items() if name in taken}
        )
    if len(found) != len(case.outputs):
        return Outcome("wrong", f"{len(found)} outputs for {len(case.outputs)}")
    pairs = zip(found, map(np.asarray, case.outputs), strict=True)
    return next(
        (Outcome("wrong", why) for got, wanted in pairs if (why := _difference(got, wanted))),
        Outcome("exact"),
    )


def run(folder: Path, to: str, **inputs: Array) -> list[Array]:
    """What a port gives for a test's inputs, by their names, each value as its numbers in the order of the
    file's.
    """
    port = read_port(folder)
    given, model, last = port.record.input, port.build(), port.record.input.layout == "NHWC"
    others = {each.name: each for each in port.graph.further_inputs}
    x = next(
        array
        for name, array in sorted(inputs.items(), key=lambda item: item[1].ndim != 4)
        if name not in others
    )
    taken: list[tuple[Array, Any, bool]] = [
        (x, port.graph.axes or (given.channels, *(given.size or x.shape[2:])), bool(port.graph.axes))
    ]
    for name, each in others.items():
        taken.append((inputs[name], each.axes or (each.channels, *inputs[name].shape[2:]), bool(each.axes)))
    batches: list[Array] = []
    for array, axes, is_array in taken:
        images = array.astype(np.float32).reshape(array.shape if None in axes else (-1, *axes))
        turns = last and not (is_array and len(axes) != 3)
        batches.append(np.ascontiguousarray(images.transpose(0, 2, 3, 1) if turns else images))
    if to == "torch":
        import torch

        with torch.no_grad():
            found = model(*map(torch.from_numpy, batches))
    elif to == "tf" and others:
        found = model(dict(zip(port.graph.inputs, batches, strict=True)))
    else:
        found = model(*batches)
    values = [np.asarray(value) for value in (found if isinstance(found, list | tuple) else [found])]
    known = shapes(port.graph, given.size or given.native_size)
    maps = [is_map(known[path]) for path in port.graph.outputs]
    return [
        value.transpose(0, 3, 1, 2) if last and of_map else value
        for value, of_map in zip(values, maps, strict=True)
    ]


def _difference(found: Array, wanted: Array) -> str:
    """How a port's output differs from ONNX's; empty if its numbers are the same ones. Some of ONNX's are
    written with four digits, and some are halves.
    """
    if found.size != wanted.size:
        return f"{found.shape} for {wanted.shape}"
    rounding = 1e-5 if (wanted != wanted.round(4)).any() else 1e-4
    if is_floating(wanted) and wanted.dtype.itemsize == 2:
        import ml_dtypes

        rounding, wanted = float(ml_dtypes.finfo(wanted.dtype).eps), wanted.astype(np.float32)
    same = np.allclose(found.ravel(), wanted.ravel(), rtol=rounding, atol=rounding, equal_nan=True)
    return "" if same else f"differs by {np.abs(found.ravel() - wanted.ravel()).max():.1e}"
