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
    """Return the classes of porter's own operators for models of an opset, as ONNX's ReferenceEvaluator takes
    them: those of _OPERATORS that its own has wrong in this opset, those of _FROM_LATER_OPSETS, and
    Attention. What the opset lacks is left out.
    """
    op_run: Any = import_module("onnx.reference.op_run").OpRun
    schema, error = import_onnx().defs.get_schema, import_onnx().defs.SchemaError
    operators = []
    for name, (operator_before, first_right_opset) in _OPERATORS.items():
        # ONNX's own, or another one of porter's, from that opset on.
        operator = operator_before if opset < first_right_opset else _FROM_LATER_OPSETS.get(name)
        if operator is None:
            continue
        try:
            operator_schema = schema(name, opset)
        except error:  # the opset lacks it
            continue
        run = staticmethod(partial(_run_operator, operator))
        operators.append(type(name, (op_run,), {"_run": run, "op_schema": operator_schema}))
    return [*operators, _attention_class(opset)] if opset >= _FIRST_ATTENTION else operators


def _attention_class(opset: int) -> type[Any]:
    """Make a class of ONNX's reference implementation of Attention that has its scale in double precision."""
    onnx_class: Any = import_module("onnx.reference.ops._op_list").load_op("", "Attention", opset)

    def run(self: Any, *inputs: Any, scale: Any = None, **stated: Any) -> Any:
        return onnx_class._run(self, *inputs, scale=None if scale is None else float(scale), **stated)

    return type(
        "Attention",
        (onnx_class,),
        {"_run": run, "op_schema": import_onnx().defs.get_schema("Attention", opset)},
    )


def _run_operator(operator: OperatorFunction, *inputs: Any, **attributes: Any) -> tuple[Array]:
    """Run an operator with its attributes, numbers of float32, as Python's floats, so that it computes in the
    type of its inputs.
    """
    numbers = {
        name: float(value) if isinstance(value, np.float32) else value for name, value in attributes.items()
    }
    return (operator(*inputs, **numbers),)


# Over axes.


def _divide_by_norm(x: Numbers, axis: int, p: int) -> Any:
    """Divide by the norm along an axis (LpNormalization); zeros stay zeros."""
    size = np.linalg.norm(x, p, axis, keepdims=True)
    return np.divide(x, size, out=np.zeros_like(x), where=size != 0)


def _normalise_variance(x: Numbers, axes: Sequence[int]) -> Any:
    """Centre the numbers over these axes and divide them by their deviation (MeanVarianceNormalization)."""
    centred = x - x.mean(tuple(axes), keepdims=True)
    return centred / (centred.std(tuple(axes), keepdims=True) + 1e-9)


def _dequantize(x: Array, scale: Numbers, zero: Array | None = None, axis: int = 1, **stated: Any) -> Any:
    """Compute DequantizeLinear, (x - zero) * scale, along an axis where it has several scales."""
    # The shape in which scales stand along the axis: (1, -1, 1, 1) for axis 1 of four.
    along_axis = np.where(np.arange(x.ndim) == axis % x.ndim, -1, 1) if scale.ndim else [1] * x.ndim
    offset = 0 if zero is None else zero.astype(scale.dtype).reshape(along_axis)
    return (x.astype(scale.dtype) - offset) * scale.reshape(along_axis)


def _global_norm(x: Numbers, p: int) -> Any:
    """Compute GlobalLpPool: the norm of order p of each channel over its cells, which keep their axes."""
    return (np.abs(x) ** p).sum(tuple(range(2, x.ndim)), keepdims=True) ** (1 / p)


def _over_rows(function: Callable[[Numbers, int], Numbers], x: Numbers, axis: int) -> Any:
    """Apply a function to each row of the matrix whose columns are all the axes from `axis` on."""
    rows = math.prod(x.shape[: axis % x.ndim])
    return function(x.reshape(rows, -1), 1).reshape(x.shape)


def _batch_norm(
    x: Numbers, gamma: Numbers, beta: Numbers, mean: Numbers, variance: Numbers, epsilon: float, **stated: Any
) -> Any:
    """Compute BatchNormalization by the stored mean and variance."""
    return values.batch_norm(x, mean, variance + epsilon, gamma, beta)


def _group_norm(
    x: Numbers, gamma: Numbers, beta: Numbers, epsilon: float, num_groups: int, **stated: Any
) -> Any:
    """Compute GroupNormalization. Before opset 21 gamma and beta have a number for each group, which is
    repeated for its channels.
    """
    scale, offset = (np.repeat(numbers, x.shape[1] // len(numbers)) for numbers in (gamma, beta))
    return values.group_norm(x, num_groups, scale, offset, epsilon)


# Functions of each number.


_SELU = (1.6732632423543772, 1.0507009873554805)
"""Alpha and gamma (Klambauer et al., arXiv 1706.02515)."""


def _selu(x: Numbers, alpha: float, gamma: float) -> Any:
    """Compute a Selu, whose usual numbers are taken in double precision."""
    if np.allclose((alpha, gamma), _SELU, rtol=1e-6):
        alpha, gamma = _SELU
    return gamma * values.elu(x, alpha)


def _hard_sigmoid(x: Numbers, alpha: float, beta: float) -> Any:
    """Compute a HardSigmoid; a slope that float32 rounded from 1/6, as in torch's exports, is 1/6."""
    is_sixth = np.float32(alpha) == np.float32(1 / 6)
    return values.hard_sigmoid(x, 1 / 6 if is_sixth else alpha, beta)


# Maps.


def _pad(x: Array, pads: Any, value: Any = None, axes: Any = None, mode: str = "constant") -> Any:
    """Compute a Pad. Before opset 11 the amounts and the number are attributes, later inputs, under the same
    names here.
    """
    # An axis below 0 counts from the last.
    axes_padded = range(x.ndim) if axes is None else [range(x.ndim)[axis] for axis in axes]
    # The second half of the amounts are those behind the cells.
    amounts_before, amounts_after = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    widths = {
        axis: (before, after)
        for axis, before, after in zip(axes_padded, amounts_before, amounts_after, strict=False)
    }
    fill = np.asarray(0 if value is None else value).item()
    return layouts.pad(x, [widths.get(axis, (0, 0)) for axis in range(x.ndim)], mode, fill)


def _also_for_rows(operator: OperatorFunction) -> OperatorFunction:
    """Return an operator of maps N×C×H×W that also takes rows of cells N×C×W, as maps of one row: a Conv of a
    kernel of 3 cells becomes one of 1 x 3.
    """

    def run(x: Numbers, *tensors: Numbers | None, **stated: Any) -> Any:
        """Run the operator on maps of one row where it is given rows. `tensors` are a kernel and a bias."""
        if x.ndim != 3:
            return operator(x, *tensors, **stated)
        # What each attribute has for the one row.
        of_rows = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 0, "output_shape": 1}
        for_maps = {
            name: [number, *stated[name][-1:]] for name, number in of_rows.items() if stated.get(name)
        }
        if stated.get("pads"):
            for_maps["pads"] = [0, stated["pads"][0], 0, stated["pads"][1]]
        of_maps = [
            tensor[:, :, None] if tensor is not None and tensor.ndim == 3 else tensor for tensor in tensors
        ]
        return operator(x[:, :, None], *of_maps, **{**stated, **for_maps})[:, :, 0]

    return run


def _conv(x: Numbers, kernel: Numbers, bias: Numbers | None = None, group: int = 1, **stated: Any) -> Numbers:
    """Compute a Conv of maps N×C×H×W with the windows that its attributes state."""
    return windows.conv(x, kernel, bias, _grid(x, kernel.shape[2:], stated), group)


def _max_pool(x: Numbers, **stated: Any) -> Any:
    """Compute a MaxPool of maps N×C×H×W with the windows that its attributes state."""
    return windows.max_pool(x, stated["kernel_shape"], _grid(x, stated["kernel_shape"], stated))


def _average_pool(x: Numbers, count_include_pad: int = 0, **stated: Any) -> Any:
    """Pool maps N×C×H×W, or along the channels where these are an axis before the rows and columns
    (N×1×C×H×W).
    """
    channels, *cells = stated["kernel_shape"]
    # Windows of one cell but along the first axis, which is pooled as rows.
    is_along_channels = x.ndim == 5 and {*cells, *stated.get("strides", ())} <= {1}
    if is_along_channels and not any(stated.get("pads", ())):
        pooled = _average_pool(x.reshape(*x.shape[:3], -1), kernel_shape=[channels, 1])
        return pooled.reshape(*pooled.shape[:3], *x.shape[3:])
    grid = _grid(x, stated["kernel_shape"], stated)
    return windows.average_pool(
        x, stated["kernel_shape"], grid, "clipped_window" if count_include_pad else "real_cells"
    )


def _grid(x: Numbers, kernel: Sequence[int], attributes: Mapping[str, Any]) -> Grid:
    """Return the windows that an operator's attributes state: strides, dilations, and pads as numbers or by a
    rule SAME for the size of `x`.
    """
    strides, dilations = _steps(attributes)
    rule, pads = attributes.get("auto_pad") or "NOTSET", [0, 0, 0, 0]
    if rule.startswith("SAME"):
        for axis, size in enumerate(x.shape[2:]):
            extent = (kernel[axis] - 1) * dilations[axis] + 1
            pads[2 * axis : 2 * axis + 2] = windows.same_pads(
                size, extent, strides[axis], rule == "SAME_LOWER"
            )
    elif rule == "NOTSET" and attributes.get("pads"):
        pads = [cells for axis in (0, 1) for cells in _pads_of_axis(attributes, axis)]
    top, bottom, left, right = pads
    grid = Grid(strides, dilations, (top, bottom, left, right))
    return replace(grid, rounding="ceil") if attributes.get("ceil_mode") else grid


def _steps(attributes: Mapping[str, Any]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the strides and the dilations that an operator's attributes state, by axis; 1 where they state
    none.
    """
    strides, dilations = (attributes.get(name) or (1, 1) for name in ("strides", "dilations"))
    return (strides[0], strides[1]), (dilations[0], dilations[1])


def _pads_of_axis(attributes: Mapping[str, Any], axis: int) -> tuple[int, int]:
    """Return the stated pads before and after an axis: ONNX states both beginnings, then both ends."""
    return attributes["pads"][axis], attributes["pads"][axis + 2]


def _conv_transpose(
    x: Numbers, kernel: Numbers, bias: Numbers | None = None, group: int = 1, **stated: Any
) -> Array:
    """Compute a ConvTranspose. What is cut off of its full size is stated as pads, or follows from a stated
    output shape or from a rule SAME, halved between both ends.
    """
    strides, dilations = _steps(stated)
    added_cells = list(stated.get("output_padding") or [0, 0])
    stated_size = (stated.get("output_shape") or [])[-2:]
    rule = stated.get("auto_pad") or "NOTSET"
    pads = []
    for axis, count in enumerate(x.shape[2:]):
        extent = (kernel.shape[2 + axis] - 1) * dilations[axis] + 1
        full_size = (count - 1) * strides[axis] + extent + added_cells[axis]
        before, after = 0, 0
        if stated_size or rule.startswith("SAME"):
            cut = full_size - (stated_size[axis] if stated_size else count * strides[axis])
            less = max(0, cut) // 2
            more = max(0, cut) - less
            before, after = (less, more) if rule == "SAME_UPPER" else (more, less)
            after += min(0, cut)  # cells that no kernel reaches stand behind
        elif stated.get("pads") and rule == "NOTSET":
            before, after = _pads_of_axis(stated, axis)
        # Cells that are added at the end are cut off less.
        pads += [before, after - added_cells[axis]]
    top, bottom, left, right = pads
    return windows.conv_transpose(
        x, kernel, bias, Grid(strides, dilations, (top, bottom, left, right)), group
    )


def _upsample(
    x: Array, scales_input: Array | None = None, scales: Sequence[float] | None = None, mode: str = "nearest"
) -> Array:
    """Compute an Upsample, or a Resize before opset 11: places are multiplied, and rounded down. The factors
    are its second input, or before opset 9 the attribute `scales`.
    """
    factors = np.asarray(scales if scales_input is None else scales_input).tolist()
    return _resize_axes(x, range(x.ndim), factors, None, Rule(mode, "asymmetric", "floor"))


def _resize(x: Array, roi: Any = None, scales: Any = None, sizes: Any = None, **stated: Any) -> Array:
    """Compute a Resize by scales or to sizes, along the axes that it states. `roi` is a region of the input,
    and unused but before opset 11, where it holds the scales. Raise NotImplementedError for a resize that
    keeps the aspect ratio, or with antialias.
    """
    # Resize of opset 10: its second input is the scales.
    if "nearest_mode" not in stated:
        return _upsample(x, roi, mode=stated["mode"])
    axes = stated.get("axes") or range(x.ndim)
    if stated.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NotImplementedError("a resize of one scale")
    has_sizes = sizes is not None and len(sizes) > 0
    factors = (
        [size / x.shape[axis] for size, axis in zip(sizes, axes, strict=True)]
        if has_sizes
        else np.asarray(scales).tolist()
    )
    inside = bool(stated.get("exclude_outside"))
    if stated.get("antialias") and min(factors) < 1:
        raise NotImplementedError("a resize to fewer cells with antialias")
    names = ("mode", "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a")
    mode, coordinates, nearest, a = (stated[name] for name in names)
    rule = Rule(mode, coordinates, nearest, a, inside)
    return _resize_axes(x, axes, factors, sizes if has_sizes else None, rule)


def _resize_axes(x: Array, axes: Sequence[int], factors: Sequence[float], sizes: Any, rule: Rule) -> Array:
    """Return the map resized along one axis after the other, by a factor for each. `sizes` are the new sizes;
    None where they follow from the factors.
    """
    for index, (axis, factor) in enumerate(zip(axes, factors, strict=True)):
        if factor != 1:
            size = int(x.shape[axis] * factor) if sizes is None else int(sizes[index])
            x = resize(x, axis, size, factor, rule)
    return x


_NO_OPSET, _SOFTMAX_OVER_ONE_AXIS, _FIRST_ATTENTION = 1 << 30, 13, 23
_OPERATORS: Mapping[str, tuple[OperatorFunction, int]] = {
    "Softmax": (partial(_over_rows, values.softmax), _SOFTMAX_OVER_ONE_AXIS),
    "LogSoftmax": (partial(_over_rows, values.log_softmax), _SOFTMAX_OVER_ONE_AXIS),
    "Hardmax": (
        partial(_over_rows, lambda x, axis: np.eye(x.shape[axis])[x.argmax(axis)]),
        _SOFTMAX_OVER_ONE_AXIS,
    ),
    "Squeeze": (lambda x, axes: np.squeeze(x, tuple(axes) if axes else None), 13),
    "BatchNormalization": (_batch_norm, 14),
    "GroupNormalization": (_group_norm, _NO_OPSET),
    "LRN": (values.response_norm, _NO_OPSET),
    "LpNormalization": (_divide_by_norm, _NO_OPSET),
    "DequantizeLinear": (_dequantize, 19),
    "MeanVarianceNormalization": (_normalise_variance, _NO_OPSET),
    "GlobalLpPool": (_global_norm, _NO_OPSET),
    "GlobalMaxPool": (lambda x: x.max(tuple(range(2, x.ndim)), keepdims=True), _NO_OPSET),
    "Erf": (values.erf, _NO_OPSET),
    "Gelu": (lambda x, approximate: values.gelu(x, approximate == "tanh"), _NO_OPSET),
    "Sigmoid": (values.sigmoid, _NO_OPSET),
    "HardSigmoid": (_hard_sigmoid, _NO_OPSET),
    "HardSwish": (values.hard_swish, _NO_OPSET),
    "Selu": (_selu, _NO_OPSET),
    "Pad": (_pad, _NO_OPSET),
    "MaxPool": (_also_for_rows(_max_pool), _NO_OPSET),
    "AveragePool": (_also_for_rows(_average_pool), _NO_OPSET),
    "Conv": (_also_for_rows(_conv), _NO_OPSET),
    "ConvTranspose": (_also_for_rows(_conv_transpose), _NO_OPSET),
    "Upsample": (_upsample, _NO_OPSET),
    "Resize": (_resize, _NO_OPSET),
}
"""Each with the opset from which on ONNX's own is right, or `_FROM_LATER_OPSETS` has another one."""
_FROM_LATER_OPSETS: Mapping[str, OperatorFunction] = {"LogSoftmax": values.log_softmax}
