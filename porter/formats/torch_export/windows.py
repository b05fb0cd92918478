"""ATen's convolutions and pools. Their maps are N×C×H×W."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from porter.filegraph.axes import View
from porter.filegraph.builder import Value
from porter.filegraph.dataflow import OperatorNode, StoredTensor
from porter.filegraph.dims import Dim, Numbers
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.layers import both_sides
from porter.filegraph.products import along_channels
from porter.filegraph.resampling import adaptive_pool
from porter.filegraph.stacks import stacked, unstacked
from porter.filegraph.tensor import Tensor
from porter.filegraph.walk import Read
from porter.formats.torch_export.constants import pointwise
from porter.formats.torch_export.reading import Function
from porter.graph import Conv, ConvTranspose
from porter.graph.ops import Function as Reduced
from porter.padding import LOWEST, Average, Convention, Pads, Window

Pair = Sequence[int] | int
"""Rows and columns, or one number for both."""


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
    transposed: bool = False,
    output_padding: Pair = 0,
) -> Tensor | Numbers:
    """A kernel is filters×channels/groups×rows×columns, a transposed one
    channels×filters/groups×rows×columns. A convolution over one axis is one along the channels, or one over a
    map of one row.
    """
    if x.array is not None:
        if (stride, groups, transposed) not in ((1, 1, False), ([1, 1], 1, False)) or padding not in (
            0,
            [0, 0],
        ):
            raise Unsupported("of a constant with strides, pads or groups")
        return pointwise(x.array, weight.numbers(), None if bias is None else bias.numbers())
    kernel, tensors = _stored(weight, bias)
    if len(kernel.shape) not in (3, 4):
        raise Unsupported(f"of {len(kernel.shape) - 2} axes")
    if len(kernel.shape) == 3:
        if transposed or isinstance(padding, str):
            raise Unsupported("of 1 axis that is transposed or has pads by a rule")
        (_, step), (_, apart), (_, pad) = (_pair(each) for each in (stride, dilation, padding))
        window = Window((1, kernel.shape[2]), (1, step), (1, apart))
        op = Conv(kernel.shape[0], window, Convention.stated((0, 0, pad, pad), 0.0), groups)
        in_row = x.row().conv(op, tensors).of_row()
        if (step, apart, groups) != (1, 1, 1) or bias is not None:
            return in_row
        along = x.made(
            "conv", lambda node: along_channels(x.walk, node, x.source, weight.reference, (pad, pad))
        )
        return along.or_else(in_row)
    window = Window((kernel.shape[2], kernel.shape[3]), _pair(stride), _pair(dilation))
    pads = _pads(window, padding)
    if not transposed:
        return x.made("conv", lambda node: _conv(x, node, window, pads, (kernel.shape[0], groups), tensors))
    more = _pair(output_padding)
    cut = (pads[0], pads[1] - more[0], pads[2], pads[3] - more[1])
    return _map(x).op(
        ConvTranspose(kernel.shape[1] * groups, window, cut, groups, "bias" in tensors), **tensors
    )


def _stored(weight: Tensor, bias: Tensor | None) -> tuple[StoredTensor, dict[str, Stored]]:
    """The kernel of a convolution, and its tensors by role."""
    kernel = weight.walk.weights(weight.source)
    vector = None if bias is None else bias.walk.weights(bias.source)
    if kernel is None:
        raise Unsupported("with a kernel that is computed")
    if bias is not None and (vector is None or len(vector.shape) != 1):
        raise Unsupported("with a bias that is computed")
    held = {} if vector is None else {"bias": Stored(vector.name)}
    return kernel, {"kernel": Stored(kernel.name, "OIW" if len(kernel.shape) == 3 else "OIHW"), **held}


def _pads(window: Window, padding: Pair | str) -> Pads:
    if not isinstance(padding, str):
        return both_sides(_pair(padding))
    # The odd cell comes last, as in TensorFlow (torch/nn/modules/conv.py).
    rows, columns = (window.extent(axis) - 1 if padding == "same" else 0 for axis in (0, 1))
    return rows // 2, rows - rows // 2, columns // 2, columns - columns // 2


def _map(x: Tensor) -> Tensor:
    """Raises Unsupported for something else than a map."""
    if not (x.value.is_map or x.value.shape is None):
        raise Unsupported("of something else than a map")
    return x


def _conv(
    x: Tensor,
    node: OperatorNode,
    window: Window,
    pads: Pads,
    sizes: tuple[int, int],
    tensors: Mapping[str, Stored],
) -> View | Value:
    """A convolution of a map, or of several maps of each image, with so many filters and groups."""
    filters, groups = sizes
    stack, conv = stacked(x.walk, node, x.view, window, pads), x.walk.builder.conv
    if stack is None:
        op = Conv(filters, window, Convention.stated(pads, 0.0), groups)
        return conv(node.name, _map(x).value, op, tensors)
    op = Conv(filters, window, Convention.stated(stack.pads, 0.0), groups)
    return unstacked(x.walk, node, stack, conv(node.name, stack.value, op, tensors))


def _max_pool(
    x: Tensor,
    kernel_size: Pair,
    stride: Pair = (),
    padding: Pair = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The pads take no part. Of a pool with places, nothing reads the places."""
    pads = both_sides(_pair(padding))
    convention = Convention.stated(pads, LOWEST, rounding="ceil" if ceil_mode else "floor")
    window = Window(_pair(kernel_size), _pair(stride or kernel_size), _pair(dilation))
    return x.made("pool", lambda node: _pool(x, node, "max", window, convention))


def _avg_pool(
    x: Tensor,
    kernel_size: Pair,
    stride: Pair = (),
    padding: Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """It divides by all cells of a window and of the pads in it, or by the real ones, or by a number."""
    window = Window(_pair(kernel_size), _pair(stride or kernel_size))
    average: Average = "real_cells"
    if divisor_override:
        average = "full_window"
    elif count_include_pad:
        average = "clipped_window" if ceil_mode else "full_window"
    pads = both_sides(_pair(padding))
    convention = Convention.stated(pads, 0.0, average, "ceil" if ceil_mode else "floor")
    found = x.made("mean", lambda node: _pool(x, node, "mean", window, convention))
    factor = math.prod(window.kernel) / divisor_override if divisor_override else 1.0
    return found if factor == 1 else factor * found


def _avg_pool1d(
    x: Tensor,
    kernel_size: Pair,
    stride: Pair = (),
    padding: Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Without pads, as a pool over a map of one row."""
    if any(_pair(padding)):
        raise Unsupported("with pads")
    (_, cells), (_, step) = _pair(kernel_size), _pair(stride or kernel_size)
    convention = Convention.stated((0, 0, 0, 0), 0.0, rounding="ceil" if ceil_mode else "floor")
    return x.row().pool("mean", Window((1, cells), (1, step)), convention).of_row()


def _pool(x: Tensor, node: OperatorNode, function: Reduced, window: Window, convention: Convention) -> Read:
    """A pool of a map, or without pads of several maps of each image."""
    plain = not any(convention.pads) and convention.rounding == "floor"
    stack = stacked(x.walk, node, x.view, window, convention.pads) if plain else None
    pool = x.walk.builder.pool
    if stack is None:
        return pool(node.name, x.value, function, window, convention)
    convention = replace(convention, rule="explicit", pads=stack.pads)
    return unstacked(x.walk, node, stack, pool(node.name, stack.value, function, window, convention))


def _adaptive(function: Reduced) -> Function:
    def adaptive(x: Tensor, output_size: Sequence[Dim]) -> Tensor:
        if not x.value.is_map:
            raise Unsupported("of something else than a map")
        counts = output_size[0], output_size[-1]
        return x.made("pool", lambda node: adaptive_pool(x.walk, node, x.value, function, counts))

    return adaptive


def _to_one_number(function: Reduced) -> Function:
    def adaptive(x: Tensor, output_size: Sequence[int]) -> Tensor:
        if output_size != [1]:
            raise Unsupported("to more than one number")
        return x.reduce(function, [-1], True)

    return adaptive


def _pair(stated: Pair) -> tuple[int, int]:
    numbers = [stated] if isinstance(stated, int) else stated
    return numbers[0], numbers[-1]


FUNCTIONS: Mapping[str, Function] = {
    **dict.fromkeys(("conv1d", "conv2d", "convolution"), _convolution),
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices"), _max_pool),
    **dict.fromkeys(("adaptive_avg_pool2d", "_adaptive_avg_pool2d"), _adaptive("mean")),
    "adaptive_avg_pool1d": _to_one_number("mean"),
    "adaptive_max_pool1d": _to_one_number("max"),
    "adaptive_max_pool2d": _adaptive("max"),
    "avg_pool1d": _avg_pool1d,
    "avg_pool2d": _avg_pool,
    "conv_transpose2d": partial(_convolution, transposed=True),
}
