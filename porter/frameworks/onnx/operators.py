"""ONNX's operators in double precision, where its reference implementation has them wrong, slow or in float32.

tests/frameworks/onnx/test_operators.py compares both with onnxruntime: every operator that porter reads, in every opset. Wrong in
onnx 1.23, with the distance from onnxruntime (relative L2):

- Softmax, LogSoftmax and Hardmax before opset 13 are over one axis, not over all from it on: 5.0, 1.0 and 2.2 for N×C×1×1.
- BatchNormalization before 14 takes the statistics of its input (0.09), and before 9 it fails.
- LRN normalises as many channels as there are images (0.63; https://github.com/onnx/onnx/issues/7805).
- ConvTranspose fails with `output_shape`, and with groups (https://github.com/onnx/onnx/pull/8446).
- MaxPool has other sizes with SAME_LOWER, with pads that differ, and with `ceil_mode` (18 cells of 16 in GoogLeNet); AveragePool
  with VALID and a dilation.
- Pad fails with pads below zero, Squeeze before 13 with axes in another order, Upsample before 9 and Resize before 11 always.
- Erf, GroupNormalization, and the numbers of Gelu, HardSwish, Selu and of a HardSigmoid of a sixth are in float32: 1e-9 to 4e-8.
- Sigmoid calls Python for each number, and that of -40 has lost its digits.

Selu's and HardSigmoid's numbers are as porter reads them (porter.formats.onnx.arithmetic).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.dtypes import Array
from porter.formats.onnx.arithmetic import hard_slope, selu_numbers
from porter.formats.onnx.proto import import_onnx

Numbers = NDArray[np.float64]
Operator = Callable[..., Any]
"""An operator's first output, of its inputs in double precision (None where one is left out) and of its attributes by name. Those
that a node lacks are the opset's defaults, or None."""


def own_operators(opset: int) -> list[type[Any]]:
    """Classes as ONNX's ReferenceEvaluator takes them, for models of an opset."""
    op_run: Any = import_module("onnx.reference.op_run").OpRun
    schema, error = import_onnx().defs.get_schema, import_onnx().defs.SchemaError
    found = []
    for name, (operator, right) in _OWN.items():
        if opset < right:
            try:
                stated = schema(name, opset)
            except error:  # the opset lacks it
                continue
            found.append(type(name, (op_run,), {"_run": staticmethod(partial(_run, operator)), "op_schema": stated}))
    return found


def _run(operator: Operator, *inputs: Any, **attributes: Any) -> tuple[Array]:
    """Attributes are float32's numbers; what is computed of them is not."""
    return (
        operator(*inputs, **{name: float(each) if isinstance(each, np.float32) else each for name, each in attributes.items()}),
    )


# Over axes.


def _from_axis(function: Callable[[Numbers], Numbers], x: Numbers, axis: int) -> Any:
    """A function of each row of a matrix whose columns are all the axes from one on."""
    rows = math.prod(x.shape[: axis % x.ndim])
    return function(x.reshape(rows, -1)).reshape(x.shape)


def _log_softmax(x: Numbers) -> Any:
    apart: Numbers = x - x.max(1, keepdims=True)
    return apart - np.log(np.exp(apart).sum(1, keepdims=True))


def _softmax(x: Numbers) -> Any:
    powers: Numbers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _hardmax(x: Numbers) -> Any:
    return np.eye(x.shape[1])[x.argmax(1)]


def _squeeze(x: Array, axes: Sequence[int] | None) -> Any:
    return np.squeeze(x, tuple(axes) if axes else None)


def _batch_norm(x: Numbers, gamma: Numbers, beta: Numbers, mean: Numbers, variance: Numbers, epsilon: float, **stated: Any) -> Any:
    over = (-1, *[1] * (x.ndim - 2))
    scale = gamma / np.sqrt(variance + epsilon)
    return (x - mean.reshape(over)) * scale.reshape(over) + beta.reshape(over)


def _group_norm(x: Numbers, gamma: Numbers, beta: Numbers, epsilon: float, num_groups: int, **stated: Any) -> Any:
    groups, over = x.reshape(len(x), num_groups, -1), (-1, *[1] * (x.ndim - 2))
    apart = groups - groups.mean(2, keepdims=True)
    normed = (apart / np.sqrt((apart**2).mean(2, keepdims=True) + epsilon)).reshape(x.shape)
    scale, offset = (np.repeat(each, x.shape[1] // len(each)).reshape(over) for each in (gamma, beta))
    return normed * scale + offset


def _response_norm(x: Numbers, alpha: float, beta: float, bias: float, size: int) -> Any:
    around = [(0, 0), ((size - 1) // 2, size // 2), *[(0, 0)] * (x.ndim - 2)]
    squares = np.lib.stride_tricks.sliding_window_view(np.pad(x**2, around), size, 1).sum(-1)
    return x / (bias + alpha / size * squares) ** beta


# Of each number.


def _erf(x: Numbers) -> Any:
    return np.vectorize(math.erf, otypes="d")(x)


def _gelu(x: Numbers, approximate: str) -> Any:
    if approximate == "tanh":
        return x * (0.5 * np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)) + 0.5)
    return x * (0.5 * _erf(x * math.sqrt(0.5)) + 0.5)


def _sigmoid(x: Numbers) -> Any:
    power = np.exp(-np.abs(x))  # a half and half a tanh would lose the digits of values close to 0
    return np.where(x < 0, power, 1.0) / (1 + power)


def _hard_sigmoid(x: Numbers, alpha: float, beta: float) -> Any:
    return np.clip(hard_slope(alpha) * x + beta, 0, 1)


def _hard_swish(x: Numbers) -> Any:
    return x * np.clip(x / 6 + 0.5, 0, 1)


def _selu(x: Numbers, alpha: float, gamma: float) -> Any:
    alpha, gamma = selu_numbers(alpha, gamma)
    return gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


# Maps.


def _pad(x: Array, pads: Any, value: Any = None, axes: Any = None, mode: str = "constant") -> Any:
    """Before opset 11 amounts and number are attributes, later inputs. Pads below zero cut cells off before others are added."""
    places = range(x.ndim) if axes is None else axes
    firsts, lasts = np.zeros(x.ndim, int), np.zeros(x.ndim, int)
    for place, first, last in zip(places, pads, pads[len(pads) // 2 :], strict=False):
        firsts[place], lasts[place] = first, last
    kept = tuple(slice(max(-a, 0), size - max(-b, 0)) for a, b, size in zip(firsts, lasts, x.shape, strict=True))
    around = [(max(a, 0), max(b, 0)) for a, b in zip(firsts, lasts, strict=True)]
    options = {"constant_values": np.asarray(0 if value is None else value).item()} if mode == "constant" else {}
    padded: Array = np.pad(x[kept], around, mode=mode, **options)  # type: ignore[call-overload]
    return padded


def _max_pool(x: Numbers, **stated: Any) -> Any:
    return _windows(x, stated, -np.inf).max((-2, -1))


def _average_pool(x: Numbers, count_include_pad: int = 0, **stated: Any) -> Any:
    counted = _windows(np.ones((1, 1, *x.shape[2:])), stated, 0.0, 1.0 if count_include_pad else 0.0).sum((-2, -1))
    return _windows(x, stated, 0.0).sum((-2, -1)) / counted


def _windows(x: Numbers, stated: dict[str, Any], beyond: float, pad: float | None = None) -> Any:
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


def _pads(stated: dict[str, Any], axis: int, size: int, extent: int, stride: int) -> Sequence[int]:
    rule = stated.get("auto_pad") or "NOTSET"
    if rule in ("SAME_UPPER", "SAME_LOWER"):
        total = max(0, (-(-size // stride) - 1) * stride + extent - size)
        less, more = total // 2, total - total // 2
        return (less, more) if rule == "SAME_UPPER" else (more, less)
    pads = stated.get("pads") if rule == "NOTSET" else None
    return (pads[axis], pads[axis + 2]) if pads else (0, 0)


def _transposed(x: Numbers, kernel: Numbers, bias: Numbers | None = None, group: int = 1, **stated: Any) -> Array:
    parts = zip(np.split(x, group, 1), np.split(kernel, group), strict=True)
    found = np.concatenate([_spread(part, each, stated) for part, each in parts], 1)
    return found if bias is None else found + bias[:, None, None]


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
            if total < 0:  # cells that no kernel reaches stand behind
                first, last, whole = 0, 0, whole - total
        elif stated.get("pads") and rule == "NOTSET":
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


def _upsample(x: Array, given: Array | None = None, scales: Sequence[float] | None = None, mode: str = "nearest") -> Array:
    """Upsample, and Resize before opset 11: the cell whose place is the whole part of a cell's own divided by the factor."""
    if mode != "nearest":
        raise NotImplementedError(f"a resize by {mode}")
    for axis, scale in enumerate(np.asarray(scales if given is None else given).tolist()):
        places = np.floor(np.arange(math.floor(x.shape[axis] * scale)) / scale).astype(int)
        x = np.take(x, np.minimum(places, x.shape[axis] - 1), axis)
    return x


_NEVER, _SOFTMAX = 1 << 30, 13
_OWN: Mapping[str, tuple[Operator, int]] = {
    "Softmax": (partial(_from_axis, _softmax), _SOFTMAX),
    "LogSoftmax": (partial(_from_axis, _log_softmax), _SOFTMAX),
    "Hardmax": (partial(_from_axis, _hardmax), _SOFTMAX),
    "Squeeze": (_squeeze, 13),
    "BatchNormalization": (_batch_norm, 14),
    "GroupNormalization": (_group_norm, _NEVER),
    "LRN": (_response_norm, _NEVER),
    "Erf": (_erf, _NEVER),
    "Gelu": (_gelu, _NEVER),
    "Sigmoid": (_sigmoid, _NEVER),
    "HardSigmoid": (_hard_sigmoid, _NEVER),
    "HardSwish": (_hard_swish, _NEVER),
    "Selu": (_selu, _NEVER),
    "Pad": (_pad, _NEVER),
    "MaxPool": (_max_pool, _NEVER),
    "AveragePool": (_average_pool, _NEVER),
    "ConvTranspose": (_transposed, _NEVER),
    "Upsample": (_upsample, _NEVER),
    "Resize": (_upsample, 11),
}
"""Each with the opset from which on ONNX's own is right."""
