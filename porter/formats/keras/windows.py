"""Keras's windows over maps and over rows, and its layers of other cells, in porter's ops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.resampling import adaptive_pool
from porter.filegraph.tensor import Tensor
from porter.formats.keras.layer import KerasLayer, Reader, count, pair
from porter.formats.keras.resizing import centred, evened, resize_of
from porter.formats.limits import StatedFields
from porter.graph import ops
from porter.padding import LOWEST, Convention, Pads, Size, Window


def _window(layer: KerasLayer, kernel: str, strides: Any) -> Window:
    stride = layer.arguments.get("strides") or strides
    return Window(
        pair(layer.arguments[kernel]), pair(stride), pair(layer.arguments.get("dilation_rate") or 1)
    )


def _convention(layer: KerasLayer, fill: float = 0.0) -> Convention:
    rule = layer.arguments.get("padding", "valid")
    if rule not in ("valid", "same"):
        raise Unsupported(f"with padding {rule!r:.40}")
    return Convention(rule, fill=fill)


def _kernel(layer: KerasLayer, variable: str, axes: str) -> Stored:
    """A kernel, which has no rows if its layer has one axis of places."""
    return layer.stored(variable, axes[-layer.arrays[variable].ndim :] if variable in layer.arrays else axes)


def weights(layer: KerasLayer, kernel: Stored) -> dict[str, Stored]:
    return {"kernel": kernel, **({"bias": layer.stored("bias")} if layer.flag("use_bias") else {})}


def _conv(layer: KerasLayer, x: Tensor) -> Tensor:
    tensors = weights(layer, _kernel(layer, "kernel", "HWIO"))
    window = _window(layer, "kernel_size", 1)
    groups = count(layer.arguments.get("groups", 1))
    op = ops.Conv(count(layer.arguments["filters"]), window, _convention(layer), groups)
    return x.conv(op, tensors)


def _depthwise(layer: KerasLayer, x: Tensor) -> Tensor:
    """The kernel's shape has the number of channels. Keras 3 calls it `kernel`."""
    kernel = "depthwise_kernel" if "depthwise_kernel" in layer.tensors else "kernel"
    return _by_channel(layer, x, kernel, weights(layer, _kernel(layer, kernel, "HWIM")))


def _by_channel(layer: KerasLayer, x: Tensor, kernel: str, tensors: Mapping[str, Stored]) -> Tensor:
    """A depthwise convolution."""
    shape = layer.arrays[kernel].shape
    if len(shape) not in (3, 4):
        raise Unsupported(f"with a kernel of {len(shape)} axes")
    filters = shape[-2] * count(layer.arguments.get("depth_multiplier", 1))
    op = ops.Conv(filters, _window(layer, "kernel_size", 1), _convention(layer), shape[-2])
    return x.conv(op, tensors)


def _separable(layer: KerasLayer, x: Tensor) -> Tensor:
    depthwise = {"kernel": _kernel(layer, "depthwise_kernel", "HWIM")}
    between = _by_channel(layer, x, "depthwise_kernel", depthwise)
    op = ops.Conv(count(layer.arguments["filters"]), Window((1, 1)), Convention())
    return between.conv(op, weights(layer, _kernel(layer, "pointwise_kernel", "HWIO")))


def _transposed(layer: KerasLayer, x: Tensor) -> Tensor:
    """Keras's transposed convolution: the gradient of a convolution whose input has the size that `_cut`
    leaves.
    """
    window = _window(layer, "kernel_size", 1)
    convention = _convention(layer)
    groups = layer.arguments.get("groups", 1)
    more = layer.arguments.get("output_padding")
    if groups != 1:
        raise Unsupported("with groups")
    extents = (window.extent(0), window.extent(1))
    extra = (None, None) if more is None else pair(more)
    cuts = [
        _cut(convention.rule == "same", *sizes) for sizes in zip(extents, window.stride, extra, strict=True)
    ]
    tensors = weights(layer, _kernel(layer, "kernel", "HWIO"))
    filters = count(layer.arguments["filters"])
    return x.apply_op(
        ops.ConvTranspose(filters, window, (*cuts[0], *cuts[1]), bias="bias" in tensors), **tensors
    )


def _cut(same: bool, extent: int, stride: int, more: int | None) -> tuple[int, int]:
    """Cells that are cut at both ends (keras/src/backend/common/backend_utils.py,
    _get_output_shape_given_tf_padding).
    """
    asked = None if more is None else (2 * (extent // 2) if same else 0) - more
    less = asked if asked is not None else extent - stride if same else min(extent - stride, 0)
    first = max(less, 0) // 2 if same else 0
    return first, less - first


def _pool(layer: KerasLayer, x: Tensor) -> Tensor:
    largest = layer.op.startswith("Max")
    window = _window(layer, "pool_size", layer.arguments["pool_size"])
    return x.pool("max" if largest else "mean", window, _convention(layer, LOWEST if largest else 0.0))


def _adaptive_pool(layer: KerasLayer, x: Tensor) -> Tensor:
    rows, columns = map(count, pair(layer.arguments["output_size"]))
    function: ops.Function = "max" if "Max" in layer.op else "mean"
    return x.derive("pool", lambda node: adaptive_pool(x.walk, node, x.value, function, (rows, columns)))


def _sides(value: Any) -> Pads:
    """Top, bottom, left, right of a ZeroPadding2D or Cropping2D: a number, (rows, columns), or ((top,
    bottom), (left, right)).

    Raises:
        PaddingError: they are not numbers of cells.
    """
    (top, bottom), (left, right) = (pair(side) for side in pair(value))
    return Convention("explicit", (top, bottom, left, right)).pads


def is_already_of_size(layer: KerasLayer, x: Tensor) -> bool:
    """Whether a map already has the size that a layer crops or resizes it to."""
    return (layer.arguments["height"], layer.arguments["width"]) == _size(x)


def _size(x: Tensor) -> Size:
    """Rows and columns of a map."""
    shape = x.value.shape or ()
    return (shape[1], shape[2]) if len(shape) == 3 else (None, None)


def _resized(layer: KerasLayer, x: Tensor) -> Tensor:
    """UpSampling2D and Resizing, which may first crop or pad to the aspect of its size."""
    padded = x.pad_map(*evened(layer.arguments, _size(x)))
    op = resize_of(layer.op, layer.arguments, _size(padded))
    if op is None:
        return padded
    if op.mode == "nearest" and op.scale:
        return padded.apply_op(ops.Upsample(int(op.scale[0]), int(op.scale[1])))
    return padded.apply_op(op)


def _center_crop(layer: KerasLayer, x: Tensor) -> Tensor:
    """A crop; of an image that is smaller, Keras's smart_resize."""
    pads = centred(layer.arguments, _size(x))
    if pads is not None:
        return x.pad_map(pads)
    arguments = StatedFields({**layer.arguments, "crop_to_aspect_ratio": True})
    return _resized(replace(layer, op="Resizing", arguments=arguments), x)


WINDOWS: Mapping[str, Reader] = {
    **dict.fromkeys(("AdaptiveAveragePooling2D", "AdaptiveMaxPooling2D"), _adaptive_pool),
    "AveragePooling2D": _pool,
    "CenterCrop": _center_crop,
    "Conv2D": _conv,
    "Conv2DTranspose": _transposed,
    "Cropping2D": lambda layer, x: x.apply_op(ops.CropMap(_sides(layer.arguments["cropping"]))),
    "DepthwiseConv2D": _depthwise,
    "GlobalAveragePooling2D": lambda layer, x: x.apply_op(ops.GlobalAvgPool(layer.keeps())),
    "GlobalMaxPooling2D": lambda layer, x: x.apply_op(ops.GlobalMaxPool(layer.keeps())),
    "MaxPooling2D": _pool,
    "Resizing": _resized,
    "SeparableConv2D": _separable,
    "UpSampling2D": _resized,
    "ZeroPadding2D": lambda layer, x: x.pad_map(_sides(layer.arguments.get("padding", 1))),
}
"""Readers of layers of maps."""


def read_row(layer: KerasLayer, x: Tensor) -> Tensor:
    """A layer of rows, such as Conv1D, as its layer of maps: a tensor N×L×C is a map of one row."""
    row = x.as_row_map()
    kind = layer.op.replace("1D", "2D")
    arguments = StatedFields({name: _of_row(name, argument) for name, argument in layer.arguments.items()})
    if arguments.get("padding") == "causal":
        dilation = pair(arguments.get("dilation_rate") or 1)
        extent = Window(pair(arguments["kernel_size"]), dilation=dilation).extent(1)
        row = row.pad_map((0, 0, extent - 1, 0))
        arguments = StatedFields({**arguments, "padding": "valid"})
    of_maps: Tensor = WINDOWS[kind](replace(layer, op=kind, arguments=arguments), row)
    return of_maps.without_rows()


_OF_PLACES = frozenset(
    {"kernel_size", "strides", "dilation_rate", "pool_size", "output_size", "output_padding", "size"}
)
"""Arguments that state a number for each axis of places."""


def _of_row(name: str, argument: Any) -> Any:
    """An argument of a layer of rows as that of a layer of maps."""
    if name in _OF_PLACES and argument is not None:
        (size,) = argument if isinstance(argument, list | tuple) else [argument]
        return (0 if name == "output_padding" else 1, size)
    if name in ("cropping", "padding") and not isinstance(argument, str):
        return (0, pair(argument))
    return argument


ROWS = frozenset(
    kind.replace("2D", "1D") for kind in WINDOWS if "2D" in kind and not kind.startswith("Global")
)
"""Layers of rows."""
