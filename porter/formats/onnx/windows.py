"""ONNX's convolutions, pools, pads and resizes. Their maps are N×C×H×W."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from porter.base.name_tables import by_name
from porter.filegraph.dataflow import StoredTensor
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.layer_values import Value
from porter.filegraph.layouts.axes import Piece, View
from porter.filegraph.layouts.dims import Dim, Open, Undecided, fixed_sizes
from porter.filegraph.places import Items
from porter.filegraph.readers import Functions
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.walk import Read
from porter.formats.onnx.constants import average_constant
from porter.formats.onnx.nodes import OnnxNode
from porter.graph import Conv, ConvTranspose, Power, Resize
from porter.graph.ops import Coordinates, Mode, Nearest
from porter.padding import LOWEST, Average, Convention, Pads, Rounding, Window

_PAD_MODES: Mapping[str, Mode] = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}
_COORDINATES: Mapping[str, Coordinates] = {
    **dict.fromkeys(("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"), "half_pixel"),
    "align_corners": "align_corners",
    "asymmetric": "asymmetric",
}
_NEAREST: Mapping[str, Nearest] = {
    "floor": "floor",
    "ceil": "ceil",
    "round_prefer_floor": "round_prefer_floor",
    "round_prefer_ceil": "round_prefer_ceil",
}
_AUTO_PAD_RULES: dict[str, Any] = {"SAME_UPPER": "same", "SAME_LOWER": "same_lower", "VALID": "valid"}


def _read_conv(node: OnnxNode, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
    """Read Conv: a kernel filters×channels/groups×rows×columns, one of a row of cells, or one along the
    channels. Raise Unsupported for a kernel that the model computes.
    """
    kernel, tensors = _stored_tensors(weights, bias)
    # One channel, whose cells are the channels of porter's map: the kernel runs along them.
    if len(kernel.shape) == 3 and (x.walk.sizes(x.source) or ())[1:2] == (1,) and _has_no_attributes(node):
        pads = node.integers("pads") or (0, 0)
        return x.conv_along_channels(weights.reference, pads)
    op = Conv(kernel.shape[0], _window(node, kernel.shape[2:]), _convention(node), node.integer("group", 1))
    return _with_axes_of(kernel.shape[2:], _as_map(x, len(kernel.shape) - 2).conv(op, tensors))


def _stored_tensors(weights: Tensor, bias: Tensor | None) -> tuple[StoredTensor, dict[str, Stored]]:
    """Return the kernel of a convolution, and its tensors by role.

    Raises:
        Unsupported: the kernel or the bias is computed, or the bias is no vector.
    """
    kernel = weights.walk.weights(weights.source)
    if kernel is None:
        raise Unsupported("with a kernel that the model computes as it runs")
    tensors = {"kernel": Stored(kernel.name, "OIHW" if len(kernel.shape) == 4 else "OIW")}
    if bias is not None:
        vector = bias.walk.weights(bias.source)
        if vector is None or len(vector.shape) != 1:
            raise Unsupported("with a bias that is not a stored vector")
        tensors["bias"] = Stored(vector.name)
    return kernel, tensors


def _has_no_attributes(node: OnnxNode) -> bool:
    """Return whether a convolution of one axis has no steps, groups, bias, or pads by a rule."""
    steps = (*node.integers("strides"), *node.integers("dilations"), node.integer("group", 1))
    return {*steps} == {1} and node.input(2) is None and node.text("auto_pad", "NOTSET") == "NOTSET"


def _as_map(x: Tensor, axes: int) -> Tensor:
    """Return the value that a window over so many axes reads as a map: a row of cells is a map of one row.

    Raises:
        Unsupported: it is another value.
    """
    if axes == 1:
        return x.as_row_map()
    if axes != 2 or not x.value.is_map:
        raise Unsupported(f"over {axes} axes of something else than a map of them")
    return x


def _with_axes_of(kernel: Sequence[int], x: Tensor) -> Tensor:
    """Return the value that the window of a kernel gives with the tensor's axes: one axis of cells for a
    kernel of one.
    """
    return x if len(kernel) == 2 else x.without_rows()


def _read_conv_transpose(node: OnnxNode, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
    """Read ConvTranspose: a kernel channels×filters/groups×rows×columns.

    What its pads cut off, `output_padding` gives back at the end. With `output_shape`, the odd cell is cut at
    the end only for SAME_UPPER (onnx/defs/nn/defs.cc, ConvTranspose). If SAME asks for more cells than the
    kernels reach, onnxruntime gives fewer; an `output_shape` then has the missing cells at the end.
    """
    kernel, tensors = _stored_tensors(weights, bias)
    value = _as_map(x, len(kernel.shape) - 2)
    groups = node.integer("group", 1)
    window = _window(node, kernel.shape[2:])
    rule = node.text("auto_pad", "NOTSET")
    # Rows and columns; a row of cells has only the last.
    output_padding = (0, 0, *node.integers("output_padding"))[-2:]
    output_shape = node.integers("output_shape")[2 - len(kernel.shape) :]
    output_shape = (1, *output_shape) if len(output_shape) == 1 else output_shape
    if output_shape or rule in ("SAME_UPPER", "SAME_LOWER"):
        sizes = zip((value.value.shape or ())[1:], output_shape or (None, None), strict=True)
        excess = [
            _excess_cells(window, axis, size, wanted) + output_padding[axis]
            for axis, (size, wanted) in enumerate(sizes)
        ]
        if min(excess) < 0 and not output_shape:
            raise Unsupported("by SAME whose kernel is shorter than its stride")
        (top, bottom), (left, right) = (_split_excess(cells, rule) for cells in excess)
    else:
        top, left, bottom, right = _stated_pads(node)
    cut_pads = top, bottom - output_padding[0], left, right - output_padding[1]
    op = ConvTranspose(kernel.shape[1] * groups, window, cut_pads, groups, "bias" in tensors)
    return _with_axes_of(kernel.shape[2:], value.apply_op(op, **tensors))


def _excess_cells(window: Window, axis: int, size: int | None, wanted: int | None) -> int:
    """Return how many cells the kernels of a transposed convolution reach beyond the output of an axis, below
    zero if they reach less far.

    Args:
        size: cells of the input.
        wanted: cells of the output; None for as many as those of the input, times the stride.
    """
    excess = window.extent(axis) - window.stride[axis]
    if wanted is None:
        return excess
    if size is None:
        raise Unsupported("to a size that does not follow from its input's")
    return excess + size * window.stride[axis] - wanted


def _split_excess(excess: int, rule: str) -> tuple[int, int]:
    """Return how many of the cells that are too many a transposed convolution cuts at the beginning and at
    the end of an axis. Missing ones, an excess below zero, are added at the end.
    """
    if excess < 0:
        return 0, excess
    smaller, larger = excess // 2, excess - excess // 2
    return (smaller, larger) if rule == "SAME_UPPER" else (larger, smaller)


def _read_pool(node: OnnxNode, x: Tensor) -> Tensor | Read:
    """Read MaxPool, whose pads take no part, and AveragePool, which divides by the real cells unless
    `count_include_pad`. A pool of a constant is computed at once.

    A last window that starts past the input and its first pads is dropped (onnx/defs/nn/defs.cc since opset
    19; onnxruntime drops it in every opset).
    """
    if x.array is not None and node.op == "AveragePool":
        return average_constant(node, x.array)
    kernel = node.integers("kernel_shape")
    # Three axes of cells, which no map has.
    if len(kernel) == 3:
        return _pool_first_axis(node, x, kernel)
    value = _as_map(x, len(kernel))
    window = _window(node, kernel)
    if node.op == "MaxPool":
        return _with_axes_of(kernel, value.pool("max", window, _convention(node, LOWEST)))
    average: Average = "real_cells"
    if node.integer("count_include_pad"):
        average = "clipped_window" if node.integer("ceil_mode") else "full_window"
    return _with_axes_of(kernel, value.pool("mean", window, _convention(node, average=average)))


def _read_lp_pool(node: OnnxNode, x: Tensor) -> Tensor:
    """Read LpPool: the root of the sum of powers. The sum is made of an average that counts every cell of the
    window.
    """
    kernel = node.integers("kernel_shape")
    order = float(node.integer("p", 2))
    if order < 1 or node.integer("ceil_mode"):
        raise Unsupported(f"of order {order:g}{' in ceil mode' if node.integer('ceil_mode') else ''}")
    powers = abs(_as_map(x, len(kernel))).apply_elementwise(Power(order))
    mean = powers.pool("mean", _window(node, kernel), _convention(node, average="full_window"))
    return _with_axes_of(kernel, (math.prod(kernel) * mean).apply_elementwise(Power(1 / order)))


def _read_center_crop_pad(node: OnnxNode, x: Tensor, shape: Tensor) -> Tensor:
    """Read CenterCropPad: what is too much is cropped around the middle, and zeros are added around what is
    too little. An odd cell is the last.
    """
    target_sizes = shape.integers()
    axes = node.integers("axes")
    sizes = Items(x.sizes)
    cropped = dict[int, slice | int]()
    added = dict[int, tuple[int, int]]()
    for axis, size in zip(axes or range(len(sizes)), target_sizes, strict=True):
        # Below zero where there are too many cells.
        (missing,) = fixed_sizes([size - sizes[axis]])
        if missing < 0:
            cropped[axis] = slice(-missing // 2, -missing // 2 + size)
        elif missing > 0:
            added[axis] = missing // 2, missing - missing // 2
    inner = x.cut(cropped) if cropped else x
    return inner.pad(added) if added else inner


def _pool_first_axis(node: OnnxNode, x: Tensor, kernel: Sequence[int]) -> View | Value:
    """Read an average over the first of three axes, as torch.onnx has it in a LocalResponseNorm. porter has
    no op for it, but its sizes decide an If. Return the foreign node alone where the pool is another one.
    """
    view = x.view
    foreign = x.walk.foreign(node, "")
    if view.axes is None or len(view.axes) != 5 or any(node.integers("pads")):
        return foreign
    # Windows of one cell along the other axes, which move by one cell.
    if {*kernel[1:], *node.integers("strides")} != {1}:
        return foreign
    pooled_axis = (Piece("C", view.size(2) - kernel[0] + 1),)
    return View(foreign, (*view.axes[:2], pooled_axis, *view.axes[3:]))


def _window(node: OnnxNode, kernel: Sequence[int]) -> Window:
    """Return the window of a kernel over rows and columns. The attributes of an operator of one axis are
    about columns.
    """
    return Window(
        _rows_and_columns(kernel),
        _rows_and_columns(node.integers("strides")),
        _rows_and_columns(node.integers("dilations")),
    )


def _rows_and_columns(numbers: Sequence[int]) -> tuple[int, int]:
    """Return an attribute's numbers for rows and columns: (2, 3) as they are, (3,) of one axis as (1, 3), and
    () of what is left out as (1, 1).
    """
    rows, columns = (1, 1, *numbers)[-2:]
    return rows, columns


def _stated_pads(node: OnnxNode) -> tuple[int, ...]:
    """Return the pads in ONNX's order: top, left, bottom, right."""
    pads = node.integers("pads") or (0, 0, 0, 0)
    # Those of one axis: before and behind the columns.
    return (0, pads[0], 0, pads[1]) if len(pads) == 2 else pads


def _convention(node: OnnxNode, fill: float = 0.0, average: Average = "real_cells") -> Convention:
    """Return the convention that a window's attributes state: its pads or the rule for them, what fills them,
    how an average counts them, and how a size is rounded.
    """
    rule = node.text("auto_pad", "NOTSET")
    if rule in _AUTO_PAD_RULES and (rule != "VALID" or not node.integer("ceil_mode")):
        return Convention(_AUTO_PAD_RULES[rule], fill=fill, average=average)
    # VALID that rounds up has no rule of its own: no pads, and a last window that is cut.
    top, left, bottom, right = _stated_pads(node) if rule == "NOTSET" else (0, 0, 0, 0)
    pads: Pads = (top, bottom, left, right)
    rounding: Rounding = "ceil" if node.integer("ceil_mode") else "floor"
    return Convention.stated(pads, fill, average, rounding)


def _read_col2im(node: OnnxNode, x: Tensor, image: Tensor, block: Tensor) -> Tensor:
    """Read Col2Im: the map whose patches a tensor N×(C·rows·columns)×patches has."""
    size = image.dims()
    kernel = block.integers()
    if len(size) != 2 or len(kernel) != 2:
        raise Unsupported("of other maps than rows and columns")
    top, left, bottom, right = _stated_pads(node)
    return x.map_of_patches(size, (_window(node, kernel), (top, bottom, left, right)))


def _read_pad(
    node: OnnxNode,
    x: Tensor,
    pads: Tensor | None = None,
    value: Tensor | None = None,
    axes: Tensor | None = None,
) -> Tensor:
    """Read Pad, with one number, or with the map's own cells: mirrored, repeated or from the other side."""
    mode = node.text("mode", "constant")
    numbers = node.sizes("pads", pads)
    padded_axes = node.stated_integers("axes", axes)
    if numbers is None:
        raise Unsupported("without pads")
    # First what is before each axis, then what is behind.
    half = len(numbers) // 2
    pairs = zip(numbers[:half], numbers[half:], strict=True)
    pads_by_axis = dict(
        zip(range(x.rank or half) if padded_axes is None else padded_axes, pairs, strict=True)
    )
    if mode == "constant":
        return x.pad(pads_by_axis, node.number("value", value, 0.0))
    if mode not in _PAD_MODES:
        raise Unsupported(f"({mode})")
    return x.extend(pads_by_axis, _PAD_MODES[mode])


def _read_resize(node: OnnxNode, x: Tensor, *further: Tensor | None) -> Tensor:
    """Read Resize and Upsample, by scales or to sizes. Before opset 11 positions are multiplied by the scale,
    and rounded down. Raise Unsupported for other tensors than maps, and where ONNX's text and onnxruntime
    disagree.
    """
    op = _resize_op(node)
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    # The scales are the first of the further inputs, and since opset 11 the second, behind a region of
    # interest; the sizes are the third.
    index = 0 if node.op == "Upsample" or node.opset < 11 else 1
    further_inputs = dict(enumerate(further))
    scales = _stated_scales(node, further_inputs.get(index))
    size_input = further_inputs.get(2)
    # Sizes count only where there are no scales.
    target_sizes = [] if scales or size_input is None else size_input.dims()
    if not scales and policy != "stretch":
        raise Unsupported(f"with keep_aspect_ratio_policy {policy}")
    input_sizes = x.sizes
    axes_named = node.integers("axes")
    axes = [axis + 4 if axis < 0 else axis for axis in axes_named] if axes_named else range(4)
    if len({*axes} & {*range(4)}) < len(axes):
        raise Unsupported(f"along axes {list(axes_named)}")
    if len(input_sizes) != 4 or len(axes) != len(scales or target_sizes):
        raise Unsupported(f"of {len(input_sizes)} axes, or by other numbers than the axes have")
    scales_by_axis = dict(zip(axes, scales, strict=False))
    sizes_by_axis = dict(zip(axes, target_sizes, strict=False))
    _expect_as_onnxruntime(node, op, input_sizes, scales_by_axis, sizes_by_axis)
    return x.resize(op, scales_by_axis, sizes_by_axis)


def _stated_scales(node: OnnxNode, x: Tensor | None) -> list[float]:
    """Return the scales that a constant has, otherwise those of the attribute; none if there are none."""
    numbers = None if x is None else x.walk.constant(x.source)
    if numbers is not None and numbers.size:
        return [float(number) for number in numbers.ravel()]
    return [*node.attributes["scales"].floats] if "scales" in node.attributes else []


def _expect_as_onnxruntime(
    node: OnnxNode,
    op: Resize,
    input_sizes: Sequence[Dim],
    scales: Mapping[int, float],
    target_sizes: Mapping[int, Dim],
) -> None:
    """Expect scales and sizes at which ONNX and onnxruntime agree, and porter's op with them.

    Args:
        input_sizes: of all axes.
        scales: by axis; an axis has a scale or a size.
        target_sizes: of the output, by axis.

    Raises:
        Unsupported: they are others.
    """
    rule = node.text("coordinate_transformation_mode", "half_pixel")
    may_shrink = any(scale < 1 for scale in scales.values()) or any(
        not _is_no_smaller(size, input_sizes[axis]) for axis, size in target_sizes.items()
    )
    # onnxruntime runs no antialias with the nearest cell.
    if node.integer("antialias") and (may_shrink or op.mode == "nearest"):
        raise Unsupported(f"({op.mode}) with antialias")
    may_be_one = any(
        _may_be_one(input_sizes[axis], target_sizes.get(axis), scales.get(axis, 1.0))
        for axis in {*scales, *target_sizes}
    )
    if rule == "pytorch_half_pixel" and may_shrink and may_be_one:
        raise Unsupported("by pytorch_half_pixel to one cell, which is then the first")
    leaves_part = any(_leaves_part(input_sizes[axis], scale) for axis, scale in scales.items())
    # In ONNX's text the part of a cell counts, and in onnxruntime it does not.
    if rule in ("align_corners", "half_pixel_symmetric") and leaves_part:
        raise Unsupported(f"by {rule} and a scale that leaves a part of a cell")


def _leaves_part(size: Dim, scale: float) -> bool:
    """Return whether an axis of this size has a part of a cell more than whole ones when it is scaled; for an
    open size, whether one of any size may.
    """
    return scale * (1 if isinstance(size, Open) else size) % 1 != 0


def _is_no_smaller(size: Dim, other: Dim) -> bool:
    """Return whether a size is known to be no smaller than another one; False where an open size leaves that
    undecided.
    """
    try:
        return size >= other
    except Undecided:
        return False


def _may_be_one(size: Dim, wanted: Dim | None, scale: float) -> bool:
    """Return whether a resized axis may have one cell, as any axis of open size may.

    Args:
        wanted: the size that it is resized to; None if it is resized by the scale.
    """
    if isinstance(size, Open) or isinstance(wanted, Open):
        return True
    return (int(size * scale) if wanted is None else wanted) == 1


def _resize_op(node: OnnxNode) -> Resize:
    """Return the op of a Resize, by how it computes cells.

    Raises:
        Unsupported: porter does not compute them so.
    """
    mode = node.text("mode", "nearest")
    inside = bool(node.integer("exclude_outside"))
    if node.op == "Upsample" or node.opset < 11:
        rule, nearest = "asymmetric", "floor"
    else:
        rule = node.text("coordinate_transformation_mode", "half_pixel")
        nearest = node.text("nearest_mode", "round_prefer_floor")
    # The cell at floor((i + 0.5) · step), which is the half pixel rounded so.
    if (rule, mode, nearest) == ("tf_half_pixel_for_nn", "nearest", "floor"):
        rule, nearest = "half_pixel", "round_prefer_ceil"
    mode = {"bilinear": "linear"}.get(mode, mode)
    coordinates = _COORDINATES.get(rule)
    if mode not in ("nearest", "linear", "cubic") or coordinates is None or nearest not in _NEAREST:
        raise Unsupported(f"({mode} by {rule}" + (f" and {nearest})" if mode == "nearest" else ")"))
    if mode == "nearest":
        return Resize("nearest", coordinates=coordinates, rounding=_NEAREST[nearest])
    if mode == "linear":
        return Resize("linear", coordinates=coordinates)
    return Resize("cubic", coordinates=coordinates, a=node.real("cubic_coeff_a", -0.75), inside=inside)


FUNCTIONS: Functions = by_name(
    {
        "AveragePool MaxPool": _read_pool,
        "Resize Upsample": _read_resize,
        "CenterCropPad": _read_center_crop_pad,
        "Col2Im": _read_col2im,
        "Conv": _read_conv,
        "ConvTranspose": _read_conv_transpose,
        "LpPool": _read_lp_pool,
        "Pad": _read_pad,
    }
)
