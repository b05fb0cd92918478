"""Keras's convolutions and pools, and the pad layers before them."""

from __future__ import annotations

from typing import Any

from porter.filegraph.file_graph import Foreign
from porter.formats.keras.layer import Arguments, Layer, Step, count, flag, pair
from porter.graph import AvgPool, Conv, MaxPool
from porter.padding import LOWEST, Convention, Pads, Window


def takes_pads(kind: str, arguments: Arguments) -> bool:
    """Whether the pads of a ZeroPadding2D before it can be the layer's own."""
    return kind in ("Conv2D", "DepthwiseConv2D", "MaxPooling2D", "AveragePooling2D") and arguments.get("padding") == "valid"


def padding_of(arguments: Arguments) -> Pads:
    """The pads of a ZeroPadding2D: a number, (rows, columns), or ((top, bottom), (left, right)).

    Raises:
        PaddingError: the pads are no numbers of cells.
    """
    padding = arguments.get("padding", 1)
    rows, columns = padding if isinstance(padding, list) else (padding, padding)
    (top, bottom), (left, right) = (side if isinstance(side, list) else (side, side) for side in (rows, columns))
    return Convention("explicit", (top, bottom, left, right)).pads


def _window(arguments: Arguments, kernel: str, strides: Any) -> Window:
    stride = arguments.get("strides") or strides
    return Window(pair(arguments[kernel]), pair(stride), pair(arguments.get("dilation_rate") or 1))


def _convention(kind: str, arguments: Arguments, pads: Pads) -> Convention | None:
    """None for a padding that porter does not know."""
    rule, fill = arguments.get("padding", "valid"), 0.0
    if rule == "valid" and any(pads):
        # For the pool, the zeros of the pad layer are cells of its input.
        return Convention("explicit", pads, average="full_window" if kind == "AveragePooling2D" else "real_cells")
    if kind == "MaxPooling2D":
        fill = LOWEST
    return Convention(rule, fill=fill) if rule in ("valid", "same") else None


def convolution(layer: Layer) -> Step:
    """Conv2D or DepthwiseConv2D. A depthwise kernel's shape has the number of channels.

    Raises:
        PaddingError: the numbers make no window.
    """
    depthwise = layer.kind == "DepthwiseConv2D"
    kernel = layer.variables.get("depthwise_kernel" if depthwise and "depthwise_kernel" in layer.variables else "kernel")
    bias, convention = flag(layer.arguments, "use_bias"), _convention(layer.kind, layer.arguments, layer.pads)
    if convention is None:
        return Foreign(f"{layer.kind} with padding {layer.arguments['padding']!r:.40}")
    if kernel is None or kernel.ndim != 4 or (bias and "bias" not in layer.variables):
        return Foreign(f"{layer.kind} without its weights in the file")
    window = _window(layer.arguments, "kernel_size", 1)
    if depthwise:
        channels = kernel.shape[2]
        return Conv(channels * int(layer.arguments.get("depth_multiplier", 1)), window, convention, channels, bias)
    return Conv(count(layer.arguments["filters"]), window, convention, count(layer.arguments.get("groups", 1)), bias)


def pool(layer: Layer) -> Step:
    """MaxPooling2D or AveragePooling2D.

    Raises:
        PaddingError: the numbers make no window.
    """
    convention = _convention(layer.kind, layer.arguments, layer.pads)
    if convention is None:
        return Foreign(f"{layer.kind} with padding {layer.arguments['padding']!r:.40}")
    window = _window(layer.arguments, "pool_size", layer.arguments["pool_size"])
    return MaxPool(window, convention) if layer.kind == "MaxPooling2D" else AvgPool(window, convention)
