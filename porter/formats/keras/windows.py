"""Keras's windows over maps and over rows, and its layers of other cells, in porter's ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from porter.filegraph.builder import Value
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.resampling import adaptive_pool
from porter.filegraph.walk import Read
from porter.formats.keras.layer import Layer, count, pair
from porter.formats.keras.resizing import centred, evened, resize_of
from porter.formats.limits import Members
from porter.graph import ops
from porter.padding import LOWEST, Convention, Pads, Size, Window


def _window(layer: Layer, kernel: str, strides: Any) -> Window:
    stride = layer.arguments.get("strides") or strides
    return Window(
        pair(layer.arguments[kernel]), pair(stride), pair(layer.arguments.get("dilation_rate") or 1)
    )


def _convention(layer: Layer, fill: float = 0.0) -> Convention:
    rule = layer.arguments.get("padding", "valid")
    if rule not in ("valid", "same"):
        raise Unsupported(f"with padding {rule!r:.40}")
    return Convention(rule, fill=fill)


def _kernel(layer: Layer, variable: str, axes: str) -> Stored:
    """A kernel, which has no rows if its layer has one axis of places."""
    return layer.tensor(variable, axes[-layer.arrays[variable].ndim :] if variable in layer.arrays else axes)


def weights(layer: Layer, kernel: Stored) -> dict[str, Stored]:
    return {"kernel": kernel, **({"bias": layer.tensor("bias")} if layer.flag("use_bias") else {})}


def _conv(layer: Layer) -> Read:
    tensors = weights(layer, _kernel(layer, "kernel", "HWIO"))
    window, groups = _window(layer, "kernel_size", 1), count(layer.arguments.get("groups", 1))
    op = ops.Conv(count(layer.arguments["filters"]), window, _convention(layer), groups)
    return layer.build.conv(layer.name, layer.input, op, tensors)


def _depthwise(layer: Layer) -> Read:
    """The kernel's shape has the number of channels. Keras 3 calls it `kernel`."""
    kernel = "depthwise_kernel" if "depthwise_kernel" in layer.tensors else "kernel"
    return _by_channel(
        layer, layer.name, weights(layer, _kernel(layer, kernel, "HWIM")), layer.arrays[kernel].shape
    )


def _by_channel(layer: Layer, name: str, tensors: Mapping[str, Stored], shape: tuple[int, ...]) -> Value:
    if len(shape) not in (3, 4):
        raise Unsupported(f"with a kernel of {len(shape)} axes")
    filters = shape[-2] * count(layer.arguments.get("depth_multiplier", 1))
    op = ops.Conv(filters, _window(layer, "kernel_size", 1), _convention(layer), shape[-2])
    return layer.build.conv(name, layer.input, op, tensors)


def _separable(layer: Layer) -> Read:
    depthwise, tensors = (
        _kernel(layer, "depthwise_kernel", "HWIM"),
        weights(layer, _kernel(layer, "pointwise_kernel", "HWIO")),
    )
    between = _by_channel(
        layer, f"{layer.name}:depthwise", {"kernel": depthwise}, layer.arrays["depthwise_kernel"].shape
    )
    op = ops.Conv(count(layer.arguments["filters"]), Window((1, 1)), Convention())
    return layer.build.conv(layer.name, between, op, tensors)


def _transposed(layer: Layer) -> Read:
    """Keras's transposed convolution: the gradient of a convolution whose input has the size that `_cut`
    leaves.
    """
    window, convention = _window(layer, "kernel_size", 1), _convention(layer)
    groups, more = layer.arguments.get("groups", 1), layer.arguments.get("output_padding")
    if groups != 1:
        raise Unsupported("with groups")
    extents, extra = (window.extent(0), window.extent(1)), (None, None) if more is None else pair(more)
    cuts = [
        _cut(convention.rule == "same", *sizes) for sizes in zip(extents, window.stride, extra, strict=True)
    ]
    tensors = weights(layer, _kernel(layer, "kernel", "HWIO"))
    filters = count(layer.arguments["filters"])
    return layer.add(
        ops.ConvTranspose(filters, window, (*cuts[0], *cuts[1]), bias="bias" in tensors), **tensors
    )


def _cut(same: bool, extent: int, stride: int, more: int | None) -> tuple[int, int]:
    """Cells that are cut at both ends (keras/src/backend/common/backend_utils.py,
    _get_output_shape_given_tf_padding).
    """
    stated = None if more is None else (2 * (extent // 2) if same else 0) - more
    less = stated if stated is not None else extent - stride if same else min(extent - stride, 0)
    first = max(less, 0) // 2 if same else 0
    return first, less - first


def _pool(layer: Layer) -> Read:
    largest = layer.op.startswith("Max")
    window, convention = (
        _window(layer, "pool_size", layer.arguments["pool_size"]),
        _convention(layer, LOWEST if largest else 0.0),
    )
    return layer.build.pool(layer.name, layer.input, "max" if largest else "mean", window, convention)


def _global_pool(layer: Layer) -> Read:
    keep = bool(layer.arguments.get("keepdims"))
    op = ops.GlobalAvgPool(keep) if layer.op == "GlobalAveragePooling2D" else ops.GlobalMaxPool(keep)
    return layer.build.add(layer.name, op, layer.input)


def _adaptive_pool(layer: Layer) -> Read:
    rows, columns = map(count, pair(layer.arguments["output_size"]))
    return adaptive_pool(
        layer.walk, layer, layer.input, "max" if "Max" in layer.op else "mean", (rows, columns)
    )


def _sides(value: Any) -> Pads:
    """Top, bottom, left, right of a ZeroPadding2D or Cropping2D: a number, (rows, columns), or ((top,
    bottom), (left, right)).

    Raises:
        PaddingError: they are not numbers of cells.
    """
    (top, bottom), (left, right) = (pair(side) for side in pair(value))
    return Convention("explicit", (top, bottom, left, right)).pads


def has_size(layer: Layer) -> bool:
    """Whether the input has the size that a layer crops or resizes it to."""
    return (layer.arguments["height"], layer.arguments["width"]) == _size(layer.input)


def _size(value: Value) -> Size:
    """Rows and columns of a map."""
    shape = value.shape or ()
    return (shape[1], shape[2]) if len(shape) == 3 else (None, None)


def _resized(layer: Layer) -> Read:
    """UpSampling2D and Resizing, which may first crop or pad to the aspect of its size."""
    pads, fill = evened(layer.arguments, _size(layer.input))
    value = layer.build.pad(f"{layer.name}:aspect", layer.input, pads, fill)
    op = resize_of(layer.op, layer.arguments, _size(value))
    if op is None:
        return value
    if op.mode == "nearest" and op.scale:
        return layer.build.add(layer.name, ops.Upsample(int(op.scale[0]), int(op.scale[1])), value)
    return layer.build.add(layer.name, op, value)


def _center_crop(layer: Layer) -> Read:
    """A crop; of an image that is smaller, Keras's smart_resize."""
    pads = centred(layer.arguments, _size(layer.input))
    if pads is not None:
        return layer.build.pad(layer.name, layer.input, pads)
    return _resized(
        replace(layer, op="Resizing", arguments=Members({**layer.arguments, "crop_to_aspect_ratio": True}))
    )


WINDOWS: Mapping[str, Callable[[Layer], Read]] = {
    **dict.fromkeys(("AdaptiveAveragePooling2D", "AdaptiveMaxPooling2D"), _adaptive_pool),
    "AveragePooling2D": _pool,
    "CenterCrop": _center_crop,
    "Conv2D": _conv,
    "Conv2DTranspose": _transposed,
    "Cropping2D": lambda layer: layer.build.add(
        layer.name, ops.CropMap(_sides(layer.arguments["cropping"])), layer.input
    ),
    "DepthwiseConv2D": _depthwise,
    "GlobalAveragePooling2D": _global_pool,
    "GlobalMaxPooling2D": _global_pool,
    "MaxPooling2D": _pool,
    "Resizing": _resized,
    "SeparableConv2D": _separable,
    "UpSampling2D": _resized,
    "ZeroPadding2D": lambda layer: layer.build.pad(
        layer.name, layer.input, _sides(layer.arguments.get("padding", 1))
    ),
}
"""Readers of layers of maps."""


def read_row(layer: Layer) -> Read:
    """A layer of rows, such as Conv1D, as its layer of maps: a tensor N×L×C is a map of one row."""
    wide = (
        layer.walk.view(layer.source).with_axes([1])
        if len(layer.walk.sizes(layer.source) or ()) == 3
        else None
    )
    value = None if wide is None else layer.walk.views.settled(f"{layer.name}:row", wide)
    if value is None or not value.is_map:
        raise Unsupported("of what is no row of cells")
    arguments = Members({name: _of_row(name, stated) for name, stated in layer.arguments.items()})
    if arguments.get("padding") == "causal":
        extent = Window(
            pair(arguments["kernel_size"]), dilation=pair(arguments.get("dilation_rate") or 1)
        ).extent(1)
        value, arguments = (
            layer.build.pad(f"{layer.name}:causal", value, (0, 0, extent - 1, 0)),
            Members({**arguments, "padding": "valid"}),
        )
    kind = layer.op.replace("1D", "2D")
    found = WINDOWS[kind](replace(layer, op=kind, given=value, arguments=arguments))
    return layer.walk.views.of(found).without([1]) if isinstance(found, Value) else found


_OF_PLACES = frozenset(
    {"kernel_size", "strides", "dilation_rate", "pool_size", "output_size", "output_padding", "size"}
)
"""Arguments that state a number for each axis of places."""


def _of_row(name: str, stated: Any) -> Any:
    """An argument of a layer of rows as that of a layer of maps."""
    if name in _OF_PLACES and stated is not None:
        (size,) = stated if isinstance(stated, list | tuple) else [stated]
        return (0 if name == "output_padding" else 1, size)
    if name in ("cropping", "padding") and not isinstance(stated, str):
        return (0, pair(stated))
    return stated


ROWS = frozenset(
    kind.replace("2D", "1D") for kind in WINDOWS if "2D" in kind and not kind.startswith("Global")
)
"""Layers of rows."""
