"""ONNX's reference implementation in double precision, with ops of porter's own where its are wrong or compute in float32.

Of onnx 1.23: batch norms before opset 14 take the statistics of their input, pools give windows that `ceil_mode` does not have (18
cells of 16 in GoogLeNet), LRN normalises as many channels as there are images, a grouped ConvTranspose fails; Erf, group norms, a
GELU's and a SELU's numbers and a hard sigmoid's sixth are float32; Sigmoid calls Python for each number. Every value is compared
with onnxruntime's float32 too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.dtypes import Array, is_floating
from porter.errors import MissingFramework, first_line
from porter.filegraph.arithmetic import SELU_ALPHA, SELU_GAMMA
from porter.formats.onnx.arithmetic import hard_slope, selu_numbers
from porter.frameworks.onnx.session import Session

Numbers = NDArray[np.float64]


def make_reference(
    model: Any,
    tensors: Mapping[str, Array] = MappingProxyType({}),
    exact: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> Session:
    """What runs a ModelProto in double precision.

    Args:
        tensors: the content of its inputs after the first, as stored. Each node takes them in double precision for itself, so that
            they are not all held twice.
        exact: attributes whose numbers the model rounds to float32, by the name of the node's first value and of the attribute.

    Raises:
        MissingFramework: the reference implementation lacks an op of the model, or, when called, refuses what an op takes.
    """
    try:
        evaluator = import_module("onnx.reference").ReferenceEvaluator(model, new_ops=_ops())
    except (NotImplementedError, RuntimeError) as error:
        raise MissingFramework(f"ONNX's reference implementation cannot run this model: {first_line(error)}") from None
    for node in evaluator.rt_nodes_:
        for attribute, number in exact.get(node.output[0], {}).items():
            setattr(node, attribute, number)
        node.run = partial(_widened, node.run)
    name = model.graph.input[0].name

    def run(batch: Array) -> list[Array]:
        try:
            found: list[Array] = evaluator.run(None, {name: batch, **tensors})
        except Exception as error:  # whatever its ops raise for inputs that do not fit
            raise MissingFramework(f"ONNX's reference implementation cannot run this model: {first_line(error)}") from None
        return found

    return run


def _widened(run: Callable[..., Any], *inputs: Any, **context: Any) -> Any:
    real = (isinstance(each, np.ndarray) and is_floating(each) for each in inputs)
    return run(*(each.astype("d", copy=False) if wide else each for each, wide in zip(inputs, real, strict=True)), **context)


def _ops() -> list[type[Any]]:
    op_run: Any = import_module("onnx.reference.op_run").OpRun

    class BatchNormalization(op_run):  # type: ignore[misc]
        def _run(
            self, x: Numbers, gamma: Numbers, beta: Numbers, mean: Numbers, variance: Numbers, epsilon: float = 1e-5, **stated: Any
        ) -> tuple[Array]:
            over = (-1, *[1] * (x.ndim - 2))
            scale = gamma / np.sqrt(variance + epsilon)
            return ((x - mean.reshape(over)) * scale.reshape(over) + beta.reshape(over),)

    class ConvTranspose(op_run):  # type: ignore[misc]
        def _run(self, x: Numbers, kernel: Numbers, bias: Numbers | None = None, group: int = 1, **stated: Any) -> tuple[Array]:
            parts = zip(np.split(x, group, 1), np.split(kernel, group), strict=True)
            found = np.concatenate([_spread(part, each, stated) for part, each in parts], 1)
            return (found if bias is None else found + bias[:, None, None],)

    class Erf(op_run):  # type: ignore[misc]
        def _run(self, x: Numbers) -> tuple[Array]:
            return (np.vectorize(math.erf, otypes="d")(x),)

    class Gelu(op_run):  # type: ignore[misc]
        def _run(self, x: Numbers, approximate: str = "none") -> tuple[Array]:
            if approximate == "tanh":
                return (x * (0.5 * np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)) + 0.5),)
            return (x * (0.5 * np.vectorize(math.erf, otypes="d")(x * math.sqrt(0.5)) + 0.5),)

    class GroupNormalization(op_run):  # type: ignore[misc]
        def _run(
            self, x: Numbers, gamma: Numbers, beta: Numbers, epsilon: float = 1e-5, num_groups: int = 1, **stated: Any
        ) -> tuple[Array]:
            groups, over = x.reshape(len(x), num_groups, -1), (-1, *[1] * (x.ndim - 2))
            apart = groups - groups.mean(2, keepdims=True)
            normed = (apart / np.sqrt((apart**2).mean(2, keepdims=True) + epsilon)).reshape(x.shape)
            scale, offset = (np.repeat(each, x.shape[1] // len(each)).reshape(over) for each in (gamma, beta))
            return (normed * scale + offset,)

    class LRN(op_run):  # type: ignore[misc]
        def _run(self, x: Numbers, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int = 1) -> tuple[Array]:
            around = [(0, 0), ((size - 1) // 2, size // 2), (0, 0), (0, 0)]
            squares = np.lib.stride_tricks.sliding_window_view(np.pad(x**2, around), size, 1).sum(-1)
            return (x / (bias + float(alpha) / size * squares) ** beta,)

    class Sigmoid(op_run):  # type: ignore[misc]
        def _run(self, x: Numbers) -> tuple[Array]:
            power = np.exp(-np.abs(x))  # a half and half a tanh would lose the digits of values close to 0
            return (np.where(x < 0, power, 1.0) / (1 + power),)

    class HardSigmoid(op_run):  # type: ignore[misc]
        def _run(self, x: Numbers, alpha: float = 0.2, beta: float = 0.5) -> tuple[Array]:
            return (np.clip(hard_slope(alpha) * x + beta, 0, 1),)

    class HardSwish(op_run):  # type: ignore[misc]
        def _run(self, x: Numbers) -> tuple[Array]:
            return (x * np.clip(x / 6 + 0.5, 0, 1),)

    class Selu(op_run):  # type: ignore[misc]
        def _run(self, x: Numbers, alpha: float = SELU_ALPHA, gamma: float = SELU_GAMMA) -> tuple[Array]:
            alpha, gamma = selu_numbers(alpha, gamma)
            return (gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),)

    class MaxPool(op_run):  # type: ignore[misc]
        def _run(self, x: Numbers, **stated: Any) -> tuple[Array]:
            return (_windows(x, stated, -np.inf).max((-2, -1)),)

    class AveragePool(op_run):  # type: ignore[misc]
        def _run(self, x: Numbers, count_include_pad: int = 0, **stated: Any) -> tuple[Array]:
            counted = _windows(np.ones((1, 1, *x.shape[2:])), stated, 0.0, 1.0 if count_include_pad else 0.0).sum((-2, -1))
            return (_windows(x, stated, 0.0).sum((-2, -1)) / counted,)

    own = [BatchNormalization, ConvTranspose, Erf, Gelu, GroupNormalization, LRN, Sigmoid, HardSigmoid, HardSwish, Selu]
    return [*own, MaxPool, AveragePool]


def _windows(x: Numbers, stated: dict[str, Any], beyond: float, pad: float | None = None) -> Numbers:
    """The windows of a pool over N×C×H×W, as N×C×H'×W'×rows×columns. Cells of pads are `pad`, those that `ceil_mode` adds after
    them `beyond`; without `pad` both are.
    """
    kernel = stated["kernel_shape"]
    strides, dilations = stated.get("strides") or [1, 1], stated.get("dilations") or [1, 1]
    around, after, steps = [(0, 0), (0, 0)], [(0, 0), (0, 0)], []
    for axis, size in enumerate(x.shape[2:]):
        extent, stride = (kernel[axis] - 1) * dilations[axis] + 1, strides[axis]
        first, last = _pads(stated, axis, size, extent, stride)
        left = size + first + last - extent
        count = (-(-left // stride) if stated.get("ceil_mode") else left // stride) + 1
        if (count - 1) * stride >= size + first:  # a last window that starts in the pads behind
            count -= 1
        around.append((first, last))
        after.append((0, max(0, (count - 1) * stride + extent - size - first - last)))
        steps.append((count, stride, extent))
    padded = np.pad(np.pad(x, around, constant_values=beyond if pad is None else pad), after, constant_values=beyond)
    (rows, down, high), (columns, across, wide) = steps
    found = np.lib.stride_tricks.sliding_window_view(padded, (high, wide), (2, 3))
    return found[:, :, ::down, ::across, :: dilations[0], :: dilations[1]][:, :, :rows, :columns]


def _spread(x: Numbers, kernel: Numbers, stated: dict[str, Any]) -> Numbers:
    """A transposed convolution of one group: every cell adds its value times the kernel, `strides` cells apart."""
    strides, dilations = stated.get("strides") or [1, 1], stated.get("dilations") or [1, 1]
    more, wanted = stated.get("output_padding") or [0, 0], (stated.get("output_shape") or [])[-2:]
    counts, spans, keeps = x.shape[2:], [], []
    for axis, count in enumerate(counts):
        whole = (count - 1) * strides[axis] + (kernel.shape[2 + axis] - 1) * dilations[axis] + 1 + more[axis]
        rule, first, last = stated.get("auto_pad") or "NOTSET", 0, 0
        if wanted or rule.startswith("SAME"):
            total = whole - (wanted[axis] if wanted else count * strides[axis])
            first, last = (total // 2, total - total // 2)[:: 1 if rule == "SAME_UPPER" else -1]
        elif stated.get("pads"):
            first, last = stated["pads"][axis], stated["pads"][axis + 2]
        spans.append(whole)
        keeps.append(slice(first, whole - last))
    found = np.zeros((x.shape[0], kernel.shape[1], *spans))
    for row, column in np.ndindex(*kernel.shape[2:]):
        down, across = row * dilations[0], column * dilations[1]
        places = found[
            :, :, down : down + counts[0] * strides[0] : strides[0], across : across + counts[1] * strides[1] : strides[1]
        ]
        places[:, :, : counts[0], : counts[1]] += np.einsum("ncij,cf->nfij", x, kernel[:, :, row, column])
    return found[:, :, keeps[0], keeps[1]]


def _pads(stated: dict[str, Any], axis: int, size: int, extent: int, stride: int) -> Sequence[int]:
    rule = stated.get("auto_pad") or "NOTSET"
    if rule in ("SAME_UPPER", "SAME_LOWER"):
        total = max(0, (-(-size // stride) - 1) * stride + extent - size)
        less, more = total // 2, total - total // 2
        return (less, more) if rule == "SAME_UPPER" else (more, less)
    pads = stated.get("pads") if rule == "NOTSET" else None
    return (pads[axis], pads[axis + 2]) if pads else (0, 0)
