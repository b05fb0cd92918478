"""ATen's convolutions and pools. Their maps are N×C×H×W."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from porter.filegraph.dataflow import Tensor
from porter.filegraph.file_graph import Stored, Unsupported, first_of
from porter.filegraph.layers import both_sides, of_row, row
from porter.filegraph.products import along_channels
from porter.filegraph.reductions import reduce
from porter.filegraph.resampling import adaptive_pool
from porter.filegraph.stacks import stacked, unstacked
from porter.filegraph.views import View
from porter.filegraph.walk import Read, apply
from porter.formats.torch_export.nodes import AtenNode, Walk
from porter.formats.torch_export.sizes import sizes_of, whole_numbers
from porter.graph import Affine, Conv, ConvTranspose
from porter.graph.ops import Function
from porter.padding import LOWEST, Average, Convention, Pads, Rounding, Window

_STEPS = (("stride", 1), ("dilation", 1), ("padding", 0), ("groups", 1))


def read_convolution(walk: Walk, node: AtenNode) -> Read:
    """convolution, conv2d and conv_transpose2d. A kernel is filters×channels/groups×rows×columns, a
    transposed one channels×filters/groups×rows×columns.
    """
    source, kernel = node.arguments["input"], walk.flow.weights(node.arguments["weight"])
    bias = node.arguments.get("bias")
    vector = None if bias is None else walk.flow.weights(bias)
    if kernel is None:
        raise Unsupported("with a kernel that is computed")
    if bias is not None and (vector is None or len(vector.shape) != 1):
        raise Unsupported("with a bias that is computed")
    if len(kernel.shape) == 3:
        return first_of(lambda: _along_channels(walk, node), lambda: _of_row(walk, node, kernel, vector))
    if len(kernel.shape) != 4:
        raise Unsupported(f"of {len(kernel.shape) - 2} axes")
    tensors = {"kernel": Stored(kernel.name, "OIHW"), **({"bias": Stored(vector.name)} if vector else {})}
    stride, dilation = (_pair(walk, node, key, 1) for key in ("stride", "dilation"))
    window, groups = (
        Window((kernel.shape[2], kernel.shape[3]), stride, dilation),
        int(node.arguments.get("groups", 1)),
    )
    padding = node.arguments.get("padding")
    if isinstance(padding, str):
        # The odd cell comes last, as in TensorFlow (torch/nn/modules/conv.py).
        around = [(window.extent(axis) - 1 if padding == "same" else 0) for axis in (0, 1)]
        pads: Pads = (around[0] // 2, around[0] - around[0] // 2, around[1] // 2, around[1] - around[1] // 2)
    else:
        pads = both_sides(_pair(walk, node, "padding", 0))
    turned = node.arguments.get("transposed") or node.op == "conv_transpose2d"
    stack = None if turned else stacked(walk, node, walk.view(source), window, pads)
    if stack is not None:
        op = Conv(kernel.shape[0], window, _explicit(stack.pads), groups)
        return unstacked(walk, node, stack, walk.builder.conv(node.name, stack.value, op, tensors))
    value = walk.value(source)
    if not (value.is_map or value.shape is None):
        raise Unsupported("of what is no map")
    if turned:
        more = _pair(walk, node, "output_padding", 0)
        cut = (pads[0], pads[1] - more[0], pads[2], pads[3] - more[1])
        return walk.builder.transposed(
            node.name, value, ConvTranspose(kernel.shape[1] * groups, window, cut, groups), tensors
        )
    return walk.builder.conv(
        node.name, value, Conv(kernel.shape[0], window, _explicit(pads), groups), tensors
    )


def _along_channels(walk: Walk, node: AtenNode) -> View:
    """conv1d, or what decompositions make of it."""
    steps = [
        _pair(walk, node, name, default) for name, default in (("stride", 1), ("dilation", 1), ("groups", 1))
    ]
    pads = node.arguments.get("padding")
    if (
        steps != [(1, 1)] * 3
        or node.arguments.get("bias")
        or node.arguments.get("transposed")
        or isinstance(pads, str)
    ):
        raise Unsupported("along the channels with steps, groups, a bias or pads by a rule")
    return along_channels(
        walk, node, node.arguments["input"], node.arguments["weight"], _pair(walk, node, "padding", 0)
    )


def _of_row(walk: Walk, node: AtenNode, kernel: Tensor, bias: Tensor | None) -> View:
    """A convolution over one axis, as one over a map of one row."""
    value, padding = row(walk, node, node.arguments["input"]), node.arguments.get("padding")
    if node.arguments.get("transposed") or isinstance(padding, str):
        raise Unsupported("of 1 axis that is transposed or has pads by a rule")
    stride, dilation, pad, groups = (_pair(walk, node, name, n)[0] for name, n in _STEPS)
    window = Window((1, kernel.shape[2]), (1, stride), (1, dilation))
    tensors = {"kernel": Stored(kernel.name, "OIW"), **({"bias": Stored(bias.name)} if bias else {})}
    op = Conv(kernel.shape[0], window, _explicit((0, 0, pad, pad)), groups)
    return of_row(walk, walk.builder.conv(node.name, value, op, tensors))


def read_row_pool(walk: Walk, node: AtenNode) -> Read:
    """avg_pool1d without pads, as a pool over a map of one row."""
    value = row(walk, node, node.arguments["self"])
    kernel = _pair(walk, node, "kernel_size", 1)[0]
    stride = _pair(walk, node, "stride", 1)[0] if node.arguments.get("stride") else kernel
    if any(whole_numbers(walk, node, "padding") if node.arguments.get("padding") else ()):
        raise Unsupported("with pads")
    window = Window((1, kernel), (1, stride))
    convention = _explicit((0, 0, 0, 0), rounding=_rounding(node))
    return of_row(walk, walk.builder.pool(node.name, value, "mean", window, convention))


def read_max_pool(walk: Walk, node: AtenNode) -> Read:
    """max_pool2d, whose pads take no part. Of a pool with places, nothing reads the places."""
    convention = _explicit(both_sides(_pair(walk, node, "padding", 0)), LOWEST, rounding=_rounding(node))
    return _pool(walk, node, node.name, "max", _pooled(walk, node), convention)


def read_average_pool(walk: Walk, node: AtenNode) -> Read:
    """avg_pool2d, which divides by all cells of a window and of the pads in it, or by the real ones, or by a
    number.
    """
    window, divisor = _pooled(walk, node), node.arguments.get("divisor_override")
    rounding = _rounding(node)
    average: Average = "real_cells"
    if divisor:
        average = "full_window"
    elif node.arguments.get("count_include_pad", True):
        average = "clipped_window" if rounding == "ceil" else "full_window"
    convention = _explicit(both_sides(_pair(walk, node, "padding", 0)), average=average, rounding=rounding)
    factor = math.prod(window.kernel) / divisor if divisor else 1.0
    name = node.name if factor == 1 else f"{node.name}:mean"
    found = _pool(walk, node, name, "mean", window, convention)
    return found if factor == 1 else apply(walk, node, found, Affine((factor,), (0.0,)))


def _pool(
    walk: Walk, node: AtenNode, name: str, function: Function, window: Window, convention: Convention
) -> View:
    """A pool of a map, or without pads of several maps of each image."""
    view, plain = (
        walk.view(node.arguments["self"]),
        not any(convention.pads) and convention.rounding == "floor",
    )
    stack = stacked(walk, node, view, window, convention.pads) if plain else None
    if stack is None:
        value = walk.value(node.arguments["self"])
        return walk.views.of(walk.builder.pool(name, value, function, window, convention))
    convention = replace(convention, rule="explicit", pads=stack.pads)
    return unstacked(walk, node, stack, walk.builder.pool(name, stack.value, function, window, convention))


def read_adaptive_pool(walk: Walk, node: AtenNode) -> Read:
    """adaptive_avg_pool2d and adaptive_max_pool2d."""
    function: Function = "max" if "max" in node.op else "mean"
    value = walk.value(node.arguments["self"])
    if not value.is_map:
        raise Unsupported("of what is no map")
    stated = sizes_of(walk, node, "output_size")
    return adaptive_pool(walk, node, value, function, (stated[0], stated[-1]))


def read_adaptive_row(walk: Walk, node: AtenNode) -> Read:
    """adaptive_avg_pool1d and adaptive_max_pool1d to one number."""
    if node.arguments["output_size"] != [1]:
        raise Unsupported("to more than one number")
    return reduce(walk, node, node.arguments["self"], "max" if "max" in node.op else "mean", [-1], True)


def _pooled(walk: Walk, node: AtenNode) -> Window:
    kernel = _pair(walk, node, "kernel_size", 1)
    stride = _pair(walk, node, "stride", 1) if node.arguments.get("stride") else kernel
    return Window(kernel, stride, _pair(walk, node, "dilation", 1))


def _pair(walk: Walk, node: AtenNode, name: str, default: int) -> tuple[int, int]:
    """Rows and columns of an argument, which may state both by one number."""
    stated = node.arguments.get(name)
    numbers: Sequence[int] = [default] if stated is None else whole_numbers(walk, node, name)
    return (numbers[0], numbers[-1])


def _rounding(node: AtenNode) -> Rounding:
    return "ceil" if node.arguments.get("ceil_mode") else "floor"


def _explicit(
    pads: Pads, fill: float = 0.0, average: Average = "real_cells", rounding: Rounding = "floor"
) -> Convention:
    return Convention.stated(pads, fill, average, rounding)
