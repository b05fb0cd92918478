"""Keras's windows over maps and over rows, and its layers of other cells, in porter's ops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.tensors.tensor import Tensor
from porter.formats.keras.resizing import center_crop_pads, pads_to_aspect, resize_of
from porter.formats.keras.stated_layer import KerasLayer, Reader, count, pair
from porter.formats.limits import StatedFields
from porter.graph import ops
from porter.padding import LOWEST, Convention, Pads, Size, Window


def _read_window(layer: KerasLayer, kernel: str, default_stride: Any) -> Window:
    """Return the window that a layer states: its size, stride and dilation. `kernel` is the name of the
    argument with its size, which layers name differently.
    """
    stride = layer.arguments.get("strides") or default_stride
    return Window(
        pair(layer.arguments[kernel]), pair(stride), pair(layer.arguments.get("dilation_rate") or 1)
    )


def _read_convention(layer: KerasLayer, fill: float = 0.0) -> Convention:
    """Return what a layer's `padding` states: the convention `valid` or `same`, with the number that fills
    the pads.
    """
    rule = layer.arguments.get("padding", "valid")
    if rule not in ("valid", "same"):
        raise Unsupported(f"with padding {rule!r:.40}")
    return Convention(rule, fill=fill)


def _kernel(layer: KerasLayer, variable: str, axes: str) -> Stored:
    """Return a kernel with the order of its axes, without the rows if its layer is one of rows of cells."""
    if variable in layer.arrays:
        axes = axes[-layer.arrays[variable].ndim :]
    return layer.stored(variable, axes)


def kernel_and_bias(layer: KerasLayer, kernel: Stored) -> dict[str, Stored]:
    """Return the tensors of a layer by role: its kernel, and its bias if it has one."""
    if not layer.flag("use_bias"):
        return {"kernel": kernel}
    return {"kernel": kernel, "bias": layer.stored("bias")}


def _read_conv(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a convolution, of groups if it states them."""
    tensors = kernel_and_bias(layer, _kernel(layer, "kernel", "HWIO"))
    window = _read_window(layer, "kernel_size", 1)
    groups = count(layer.arguments.get("groups", 1))
    op = ops.Conv(count(layer.arguments["filters"]), window, _read_convention(layer), groups)
    return x.conv(op, tensors)


def _read_depthwise(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a DepthwiseConv. The kernel's shape has the number of channels; Keras 3 calls it
    `kernel`.
    """
    kernel = "depthwise_kernel" if "depthwise_kernel" in layer.tensors else "kernel"
    return _depthwise_conv(layer, x, kernel, kernel_and_bias(layer, _kernel(layer, kernel, "HWIM")))


def _depthwise_conv(layer: KerasLayer, x: Tensor, kernel: str, tensors: Mapping[str, Stored]) -> Tensor:
    """Return a depthwise convolution of `x`.

    Args:
        kernel: the layer's variable, whose shape has the channels and how many filters each has.
        tensors: what the op reads, with the kernel in porter's order of axes.
    """
    shape = layer.arrays[kernel].shape
    if len(shape) not in (3, 4):
        raise Unsupported(f"with a kernel of {len(shape)} axes")
    # The last two axes are channels and filters of each.
    filters = shape[-2] * count(layer.arguments.get("depth_multiplier", 1))
    op = ops.Conv(filters, _read_window(layer, "kernel_size", 1), _read_convention(layer), shape[-2])
    return x.conv(op, tensors)


def _read_separable(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a SeparableConv: a depthwise convolution, and one of 1×1 after it."""
    depthwise = {"kernel": _kernel(layer, "depthwise_kernel", "HWIM")}
    between = _depthwise_conv(layer, x, "depthwise_kernel", depthwise)
    op = ops.Conv(count(layer.arguments["filters"]), Window((1, 1)), Convention())
    return between.conv(op, kernel_and_bias(layer, _kernel(layer, "pointwise_kernel", "HWIO")))


def _read_transposed_conv(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a Conv2DTranspose: the gradient of a convolution whose input has the size that
    `_cut_cells` leaves.
    """
    window = _read_window(layer, "kernel_size", 1)
    convention = _read_convention(layer)
    output_padding = layer.arguments.get("output_padding")
    if layer.arguments.get("groups", 1) != 1:
        raise Unsupported("with groups")
    extents = (window.extent(0), window.extent(1))
    extra = (None, None) if output_padding is None else pair(output_padding)
    is_same = convention.rule == "same"
    row_cut, column_cut = (
        _cut_cells(is_same, *sizes) for sizes in zip(extents, window.stride, extra, strict=True)
    )
    tensors = kernel_and_bias(layer, _kernel(layer, "kernel", "HWIO"))
    filters = count(layer.arguments["filters"])
    return x.apply_op(
        ops.ConvTranspose(filters, window, (*row_cut, *column_cut), bias="bias" in tensors), **tensors
    )


def _cut_cells(is_same: bool, extent: int, stride: int, output_padding: int | None) -> tuple[int, int]:
    """Return how many cells of a transposed convolution's whole output are cut at the beginning and at the
    end of an axis, below zero where cells are added (keras/src/backend/common/backend_utils.py,
    _get_output_shape_given_tf_padding). Windows of 4 cells with a stride of 2 and `same` are cut by (1, 1).

    Args:
        is_same: whether the layer's padding is `same`; otherwise it is `valid`.
        extent: the cells that a window spans.
        output_padding: cells added at the end, as the layer states them, or None.
    """
    if output_padding is not None:
        cut = (2 * (extent // 2) if is_same else 0) - output_padding
    else:
        cut = extent - stride if is_same else min(extent - stride, 0)
    first = max(cut, 0) // 2 if is_same else 0
    return first, cut - first


def _read_pool(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a largest or an average pool."""
    window = _read_window(layer, "pool_size", layer.arguments["pool_size"])
    if layer.op.startswith("Max"):
        return x.pool("max", window, _read_convention(layer, LOWEST))
    return x.pool("mean", window, _read_convention(layer, 0.0))


def _read_adaptive_pool(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of an adaptive pool to so many rows and columns."""
    rows, columns = map(count, pair(layer.arguments["output_size"]))
    function: ops.Function = "max" if "Max" in layer.op else "mean"
    return x.adaptive_pool(function, (rows, columns))


def _sides(value: Any) -> Pads:
    """Return top, bottom, left, right of a ZeroPadding2D or Cropping2D: from a number, (rows, columns), or
    ((top, bottom), (left, right)).

    Raises:
        PaddingError: they are not numbers of cells.
    """
    (top, bottom), (left, right) = (pair(side) for side in pair(value))
    return Convention("explicit", (top, bottom, left, right)).pads


def is_already_of_size(layer: KerasLayer, x: Tensor) -> bool:
    """Return whether a map already has the size that a layer crops or resizes it to."""
    return (layer.arguments["height"], layer.arguments["width"]) == _map_size(x)


def _map_size(x: Tensor) -> Size:
    """Return rows and columns of a map; None for each of another value."""
    shape = x.value.shape or ()
    return (shape[1], shape[2]) if len(shape) == 3 else (None, None)


def _read_resize(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of an UpSampling2D or a Resizing, which may first crop or pad to the aspect of its
    size.
    """
    padded = x.pad_map(*pads_to_aspect(layer.arguments, _map_size(x)))
    op = resize_of(layer.op, layer.arguments, _map_size(padded))
    # It has its size already.
    if op is None:
        return padded
    if op.mode == "nearest" and op.scale:
        return padded.apply_op(ops.Upsample(int(op.scale[0]), int(op.scale[1])))
    return padded.apply_op(op)


def _read_center_crop(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a CenterCrop; of a map that is smaller, what Keras's smart_resize gives."""
    pads = center_crop_pads(layer.arguments, _map_size(x))
    if pads is not None:
        return x.pad_map(pads)
    arguments = StatedFields({**layer.arguments, "crop_to_aspect_ratio": True})
    return _read_resize(replace(layer, op="Resizing", arguments=arguments), x)


WINDOWS: Mapping[str, Reader] = {
    **dict.fromkeys(("AdaptiveAveragePooling2D", "AdaptiveMaxPooling2D"), _read_adaptive_pool),
    "AveragePooling2D": _read_pool,
    "CenterCrop": _read_center_crop,
    "Conv2D": _read_conv,
    "Conv2DTranspose": _read_transposed_conv,
    "Cropping2D": lambda layer, x: x.apply_op(ops.CropMap(_sides(layer.arguments["cropping"]))),
    "DepthwiseConv2D": _read_depthwise,
    "GlobalAveragePooling2D": lambda layer, x: x.apply_op(ops.GlobalAvgPool(layer.keeps_axes())),
    "GlobalMaxPooling2D": lambda layer, x: x.apply_op(ops.GlobalMaxPool(layer.keeps_axes())),
    "MaxPooling2D": _read_pool,
    "Resizing": _read_resize,
    "SeparableConv2D": _read_separable,
    "UpSampling2D": _read_resize,
    "ZeroPadding2D": lambda layer, x: x.pad_map(_sides(layer.arguments.get("padding", 1))),
}
"""Readers of layers of maps."""


def read_row(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a layer of rows, such as Conv1D, read as its layer of maps: a tensor N×L×C is a map
    of one row. Causal windows are padded before the row only.
    """
    row = x.as_row_map()
    kind = layer.op.replace("1D", "2D")
    arguments = StatedFields(
        {name: _as_map_argument(name, argument) for name, argument in layer.arguments.items()}
    )
    if arguments.get("padding") == "causal":
        dilation = pair(arguments.get("dilation_rate") or 1)
        extent = Window(pair(arguments["kernel_size"]), dilation=dilation).extent(1)
        row = row.pad_map((0, 0, extent - 1, 0))
        arguments = StatedFields({**arguments, "padding": "valid"})
    of_maps: Tensor = WINDOWS[kind](replace(layer, op=kind, arguments=arguments), row)
    return of_maps.without_rows()


_ARGUMENTS_BY_AXIS = frozenset(
    {"kernel_size", "strides", "dilation_rate", "pool_size", "output_size", "output_padding", "size"}
)
"""Arguments that state a number for each axis of places."""


def _as_map_argument(name: str, argument: Any) -> Any:
    """Return an argument of a layer of rows as that of a layer of maps: sizes get a 1 for the rows, pads a 0,
    and all others stay.
    """
    if name in _ARGUMENTS_BY_AXIS and argument is not None:
        (size,) = argument if isinstance(argument, list | tuple) else [argument]
        size_of_rows = 0 if name == "output_padding" else 1
        return (size_of_rows, size)
    if name in ("cropping", "padding") and not isinstance(argument, str):
        return (0, pair(argument))
    return argument


ROWS = frozenset(
    kind.replace("2D", "1D") for kind in WINDOWS if "2D" in kind and not kind.startswith("Global")
)
"""Layers of rows."""
