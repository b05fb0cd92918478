"""ONNX's operators in double precision, where its reference implementation has them wrong, slow or in
float32.

tests/unit/frameworks/onnx/test_operators.py compares both with onnxruntime: every operator that porter reads,
in every opset. Wrong in onnx 1.23, with the distance from onnxruntime (relative L2):

- Softmax, LogSoftmax and Hardmax before opset 13 are over one axis, not over all from it on: 5.0, 1.0 and 2.2
  for N×C×1×1.
- LogSoftmax from 13 on is the logarithm of shares, of which small ones are 0: -inf for numbers that are 746
  apart.
- BatchNormalization before 14 takes the statistics of its input (0.09), and before 9 it fails.
- LRN normalises as many channels as there are images (0.63; https://github.com/onnx/onnx/issues/7805).
- Conv makes the zeros of a dilated kernel: 22 GB in a DeepLabV3.
- ConvTranspose fails with `output_shape`, and with groups (https://github.com/onnx/onnx/pull/8446).
- MaxPool has other sizes with SAME_LOWER, with pads that differ, and with `ceil_mode` (18 cells of 16 in
  GoogLeNet); AveragePool with VALID and a dilation.
- LpNormalization of order 1 divides by the sum of the numbers, not of their sizes (0.99).
- GlobalMaxPool is over other axes where its input has more or fewer than four.
- DequantizeLinear is missing before 19.
- GlobalLpPool is missing, and MeanVarianceNormalization adds a number of float32 to one of double precision,
  which fails.
- Pad fails with pads below zero, Squeeze before 13 with axes in another order, Upsample before 9 and Resize
  before 11 always; a later Resize calls Python for each cell.
- Attention takes the root of its scale in float32: 2e-8.
- Erf, GroupNormalization, and the numbers of Gelu, HardSwish, Selu and of a HardSigmoid of a sixth are in
  float32: 1e-9 to 4e-8.
- Sigmoid calls Python for each number, and that of -40 has lost its digits.

Selu's numbers and a HardSigmoid's sixth are what float32 has rounded. They are told here anew, because a
mistake of porter's reader would be shared otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from porter.base.dtypes import Array, Numbers
from porter.filegraph.kernels import layouts, values, windows
from porter.filegraph.kernels.resizing import Rule, resize
from porter.filegraph.kernels.windows import Grid
from porter.formats.onnx.proto import import_onnx

OperatorFunction = Callable[..., Any]
"""An operator's first output, of its inputs in double precision (None where one is left out) and of its
attributes by name. Those that a node lacks are the opset's defaults, or None.
"""


def own_operators(opset: int) -> list[type[Any]]:
    """Return classes as ONNX's ReferenceEvaluator takes them, for models of an opset."""
    op_run: Any = import_module("onnx.reference.op_run").OpRun
    schema, error = import_onnx().defs.get_schema, import_onnx().defs.SchemaError
    operators = []
    for name, (before, right) in _OWN.items():
        operator = before if opset < right else _LATER.get(name)
        if operator is not None:
            try:
                own_schema = schema(name, opset)
            except error:  # the opset lacks it
                continue
            operators.append(
                type(
                    name, (op_run,), {"_run": staticmethod(partial(_run, operator)), "op_schema": own_schema}
                )
            )
    return [*operators, _attention(opset)] if opset >= _ATTENTION else operators


def _attention(opset: int) -> type[Any]:
    """Return ONNX's reference implementation of Attention, but with its scale in double precision."""
    own: Any = import_module("onnx.reference.ops._op_list").load_op("", "Attention", opset)

    def run(self: Any, *inputs: Any, scale: Any = None, **stated: Any) -> Any:
        return own._run(self, *inputs, scale=None if scale is None else float(scale), **stated)

    return type(
        "Attention", (own,), {"_run": run, "op_schema": import_onnx().defs.get_schema("Attention", opset)}
    )


def _run(operator: OperatorFunction, *inputs: Any, **attributes: Any) -> tuple[Array]:
    """Run an operator; its attributes are numbers of float32, from which it computes in the type of its
    inputs.
    """
    return (
        operator(
            *inputs,
            **{
                name: float(each) if isinstance(each, np.float32) else each
                for name, each in attributes.items()
            },
        ),
    )


# Over axes.


def _over_norm(x: Numbers, axis: int, p: int) -> Any:
    size = np.linalg.norm(x, p, axis, keepdims=True)
    return np.divide(x, size, out=np.zeros_like(x), where=size != 0)


def _over_deviation(x: Numbers, axes: Sequence[int]) -> Any:
    apart = x - x.mean(tuple(axes), keepdims=True)
    return apart / (apart.std(tuple(axes), keepdims=True) + 1e-9)


def _dequantized(x: Array, scale: Numbers, zero: Array | None = None, axis: int = 1, **stated: Any) -> Any:
    """DequantizeLinear, along an axis where it has several scales."""
    over = np.where(np.arange(x.ndim) == axis % x.ndim, -1, 1) if scale.ndim else [1] * x.ndim
    return (
        x.astype(scale.dtype) - (0 if zero is None else zero.astype(scale.dtype).reshape(over))
    ) * scale.reshape(over)


def _global_norm(x: Numbers, p: int) -> Any:
    return (np.abs(x) ** p).sum(tuple(range(2, x.ndim)), keepdims=True) ** (1 / p)


def _from_axis(function: Callable[[Numbers, int], Numbers], x: Numbers, axis: int) -> Any:
    """Return a function of each row of a matrix whose columns are all the axes from one on."""
    rows = math.prod(x.shape[: axis % x.ndim])
    return function(x.reshape(rows, -1), 1).reshape(x.shape)


def _batch_norm(
    x: Numbers, gamma: Numbers, beta: Numbers, mean: Numbers, variance: Numbers, epsilon: float, **stated: Any
) -> Any:
    return values.batch_norm(x, mean, variance + epsilon, gamma, beta)


def _group_norm(
    x: Numbers, gamma: Numbers, beta: Numbers, epsilon: float, num_groups: int, **stated: Any
) -> Any:
    scale, offset = (np.repeat(each, x.shape[1] // len(each)) for each in (gamma, beta))
    return values.group_norm(x, num_groups, scale, offset, epsilon)


# Functions of each number.


_SELU = (1.6732632423543772, 1.0507009873554805)
"""Alpha and gamma (Klambauer et al., arXiv 1706.02515)."""


def _selu(x: Numbers, alpha: float, gamma: float) -> Any:
    if np.allclose((alpha, gamma), _SELU, rtol=1e-6):
        alpha, gamma = _SELU
    return gamma * values.elu(x, alpha)


def _hard_sigmoid(x: Numbers, alpha: float, beta: float) -> Any:
    """Return a HardSigmoid; a slope that float32 rounded from 1/6, as in torch's exports, is 1/6."""
    sixth = np.float32(alpha) == np.float32(1 / 6)
    return values.hard_sigmoid(x, 1 / 6 if sixth else alpha, beta)


# Maps.


def _pad(x: Array, pads: Any, value: Any = None, axes: Any = None, mode: str = "constant") -> Any:
    """Before opset 11 amounts and number are attributes, later inputs."""
    places = range(x.ndim) if axes is None else [range(x.ndim)[axis] for axis in axes]
    widths = {
        place: (first, last) for place, first, last in zip(places, pads, pads[len(pads) // 2 :], strict=False)
    }
    fill = np.asarray(0 if value is None else value).item()
    return layouts.pad(x, [widths.get(axis, (0, 0)) for axis in range(x.ndim)], mode, fill)


def _or_rows(operator: OperatorFunction) -> OperatorFunction:
    """Return an operator of maps, for rows of cells too: they are maps of one row."""

    def run(x: Numbers, *others: Numbers | None, **stated: Any) -> Any:
        if x.ndim != 3:
            return operator(x, *others, **stated)
        first = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 0, "output_shape": 1}
        wide = {name: [number, *stated[name][-1:]] for name, number in first.items() if stated.get(name)}
        if stated.get("pads"):
            wide["pads"] = [0, stated["pads"][0], 0, stated["pads"][1]]
        kernels = [each[:, :, None] if each is not None and each.ndim == 3 else each for each in others]
        return operator(x[:, :, None], *kernels, **{**stated, **wide})[:, :, 0]

    return run


def _conv(x: Numbers, kernel: Numbers, bias: Numbers | None = None, group: int = 1, **stated: Any) -> Numbers:
    return windows.conv(x, kernel, bias, _grid(x, kernel.shape[2:], stated), group)


def _max_pool(x: Numbers, **stated: Any) -> Any:
    return windows.max_pool(x, stated["kernel_shape"], _grid(x, stated["kernel_shape"], stated))


def _average_pool(x: Numbers, count_include_pad: int = 0, **stated: Any) -> Any:
    """Pool maps, or of channels beside each other that have an axis of their own."""
    first, *others = stated["kernel_shape"]
    if x.ndim == 5 and {*others, *stated.get("strides", ())} <= {1} and not any(stated.get("pads", ())):
        pooled = _average_pool(x.reshape(*x.shape[:3], -1), kernel_shape=[first, 1])
        return pooled.reshape(*pooled.shape[:3], *x.shape[3:])
    grid = _grid(x, stated["kernel_shape"], stated)
    return windows.average_pool(
        x, stated["kernel_shape"], grid, "clipped_window" if count_include_pad else "real_cells"
    )


def _grid(x: Numbers, kernel: Sequence[int], attributes: Mapping[str, Any]) -> Grid:
    """Return the windows that an operator's attributes state."""
    strides, dilations = attributes.get("strides") or [1, 1], attributes.get("dilations") or [1, 1]
    rule, pads = attributes.get("auto_pad") or "NOTSET", [0, 0, 0, 0]
    if rule.startswith("SAME"):
        for axis, size in enumerate(x.shape[2:]):
            extent = (kernel[axis] - 1) * dilations[axis] + 1
            pads[2 * axis : 2 * axis + 2] = windows.same_pads(
                size, extent, strides[axis], rule == "SAME_LOWER"
            )
    elif rule == "NOTSET" and attributes.get("pads"):
        pads = [attributes["pads"][index] for index in (0, 2, 1, 3)]
    top, bottom, left, right = pads
    grid = Grid((strides[0], strides[1]), (dilations[0], dilations[1]), (top, bottom, left, right))
    return replace(grid, rounding="ceil") if attributes.get("ceil_mode") else grid


def _transposed(
    x: Numbers, kernel: Numbers, bias: Numbers | None = None, group: int = 1, **stated: Any
) -> Array:
    """ConvTranspose, whose output may have a stated shape."""
    strides, dilations = stated.get("strides") or [1, 1], stated.get("dilations") or [1, 1]
    more = list(stated.get("output_padding") or [0, 0])
    wanted = (stated.get("output_shape") or [])[-2:]
    rule, pads = stated.get("auto_pad") or "NOTSET", [0, 0, 0, 0]
    for axis, count in enumerate(x.shape[2:]):
        whole = (count - 1) * strides[axis] + (kernel.shape[2 + axis] - 1) * dilations[axis] + 1 + more[axis]
        if wanted or rule.startswith("SAME"):
            total = whole - (wanted[axis] if wanted else count * strides[axis])
            less = max(0, total) // 2, max(0, total) - max(0, total) // 2
            pads[2 * axis : 2 * axis + 2] = less if rule == "SAME_UPPER" else less[::-1]
            pads[2 * axis + 1] += min(0, total)  # cells that no kernel reaches stand behind
        elif stated.get("pads") and rule == "NOTSET":
            pads[2 * axis : 2 * axis + 2] = stated["pads"][axis], stated["pads"][axis + 2]
        pads[2 * axis + 1] -= more[axis]
    grid = Grid((strides[0], strides[1]), (dilations[0], dilations[1]), (pads[0], pads[1], pads[2], pads[3]))
    return windows.transposed(x, kernel, bias, grid, group)


def _upsample(
    x: Array, given: Array | None = None, scales: Sequence[float] | None = None, mode: str = "nearest"
) -> Array:
    """Upsample, and Resize before opset 11: places are multiplied, and rounded down."""
    factors = np.asarray(scales if given is None else given).tolist()
    return _resized(x, range(x.ndim), factors, None, Rule(mode, "asymmetric", "floor"))


def _resize(x: Array, roi: Any = None, scales: Any = None, sizes: Any = None, **stated: Any) -> Array:
    """Resize by scales or to sizes, along the axes that it states."""
    if "nearest_mode" not in stated:
        return _upsample(x, roi, mode=stated["mode"])
    axes = stated.get("axes") or range(x.ndim)
    if stated.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NotImplementedError("a resize of one scale")
    stretched = sizes is not None and len(sizes) > 0
    factors = (
        [size / x.shape[axis] for size, axis in zip(sizes, axes, strict=True)]
        if stretched
        else np.asarray(scales).tolist()
    )
    inside = bool(stated.get("exclude_outside"))
    if stated.get("antialias") and min(factors) < 1:
        raise NotImplementedError("a resize to fewer cells with antialias")
    names = ("mode", "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a")
    mode, coordinates, nearest, a = (stated[name] for name in names)
    rule = Rule(mode, coordinates, nearest, a, inside)
    return _resized(x, axes, factors, sizes if stretched else None, rule)


def _resized(x: Array, axes: Sequence[int], factors: Sequence[float], sizes: Any, rule: Rule) -> Array:
    """Return the map resized along one axis after the other."""
    for index, (axis, factor) in enumerate(zip(axes, factors, strict=True)):
        if factor != 1:
            x = resize(
                x, axis, int(x.shape[axis] * factor) if sizes is None else int(sizes[index]), factor, rule
            )
    return x


_NEVER, _SOFTMAX, _ATTENTION = 1 << 30, 13, 23
_OWN: Mapping[str, tuple[OperatorFunction, int]] = {
    "Softmax": (partial(_from_axis, values.softmax), _SOFTMAX),
    "LogSoftmax": (partial(_from_axis, values.log_softmax), _SOFTMAX),
    "Hardmax": (partial(_from_axis, lambda x, axis: np.eye(x.shape[axis])[x.argmax(axis)]), _SOFTMAX),
    "Squeeze": (lambda x, axes: np.squeeze(x, tuple(axes) if axes else None), 13),
    "BatchNormalization": (_batch_norm, 14),
    "GroupNormalization": (_group_norm, _NEVER),
    "LRN": (values.response_norm, _NEVER),
    "LpNormalization": (_over_norm, _NEVER),
    "DequantizeLinear": (_dequantized, 19),
    "MeanVarianceNormalization": (_over_deviation, _NEVER),
    "GlobalLpPool": (_global_norm, _NEVER),
    "GlobalMaxPool": (lambda x: x.max(tuple(range(2, x.ndim)), keepdims=True), _NEVER),
    "Erf": (values.erf, _NEVER),
    "Gelu": (lambda x, approximate: values.gelu(x, approximate == "tanh"), _NEVER),
    "Sigmoid": (values.sigmoid, _NEVER),
    "HardSigmoid": (_hard_sigmoid, _NEVER),
    "HardSwish": (values.hard_swish, _NEVER),
    "Selu": (_selu, _NEVER),
    "Pad": (_pad, _NEVER),
    "MaxPool": (_or_rows(_max_pool), _NEVER),
    "AveragePool": (_or_rows(_average_pool), _NEVER),
    "Conv": (_or_rows(_conv), _NEVER),
    "ConvTranspose": (_or_rows(_transposed), _NEVER),
    "Upsample": (_upsample, _NEVER),
    "Resize": (_resize, _NEVER),
}
"""Each with the opset from which on ONNX's own is right, or `_LATER` has another one."""
_LATER: Mapping[str, OperatorFunction] = {"LogSoftmax": values.log_softmax}
