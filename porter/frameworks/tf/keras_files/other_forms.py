"""Layers of a Keras file that are run in another form: Keras on a CPU lacks theirs, or runs it slowly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from porter.base.dtypes import Array
from porter.base.name_tables import JsonObject
from porter.formats.keras.call_names import NamedCall
from porter.formats.keras.flow import LayerCall
from porter.formats.keras.stated_layer import pair
from porter.frameworks.tf.runtime import keras_do


def runnable_form(call: LayerCall, channels: int) -> tuple[str, JsonObject]:
    """Return the class of a layer and its arguments in the form in which they are run.

    A convolution whose groups are its channels is a depthwise one: Keras runs groups on a CPU by XLA (`conv`
    in its keras/src/backend/tensorflow/nn.py), which took ConvNeXt-Tiny ten times as long. Filter c *
    multiplier + m of the first is filter m of channel c of the second, so the kernel's numbers stay in their
    order. A transposed convolution with dilation, which TensorFlow lacks on a CPU, is one with zeros in its
    kernel.
    """
    arguments = call.arguments
    if call.kind == "Conv2D" and 1 < channels == arguments.get("groups", 1):
        row_stride, column_stride = pair(arguments.get("strides") or 1)
        is_dilated = pair(arguments.get("dilation_rate") or 1) != (1, 1)
        # What a DepthwiseConv2D takes: equal strides, and none beside a dilation.
        if row_stride == column_stride and (row_stride == 1 or not is_dilated):
            return "DepthwiseConv2D", {**arguments, "depth_multiplier": arguments["filters"] // channels}
    if call.kind == "Conv2DTranspose":
        return call.kind, {**arguments, "kernel_size": _extents(arguments), "dilation_rate": 1}
    return call.kind, arguments


def dilate_kernel(kernel: Array, arguments: JsonObject, shape: tuple[int, ...]) -> Array:
    """Return a kernel of this shape, with zeros between the cells of the given one, as far apart as the
    layer's `dilation_rate` says.
    """
    row_dilation, column_dilation = pair(arguments.get("dilation_rate") or 1)
    dilated = np.zeros(shape, kernel.dtype)
    dilated[::row_dilation, ::column_dilation] = kernel
    return dilated


def pad_as_theano(named: NamedCall, value: Any, call_layer: Callable[[NamedCall, list[Any]], Any]) -> Any:
    """Run a layer with the `same` padding that Keras used on Theano (its keras/backend/theano_backend.py,
    `conv2d` and `pool2d`): as many cells behind the map as before it, and of the result no more than the
    strides make of the map. Here the cells behind are so few that no more comes out.
    """
    call = named.call
    pads = _pads_of_theano(call.kind, call.arguments)
    without_padding = replace(named, call=replace(call, arguments={**call.arguments, "padding": "valid"}))
    padded = keras_do("pad", value, pads, constant_values=-np.inf if call.kind == "MaxPooling2D" else 0)
    result = call_layer(without_padding, [padded])
    if call.kind != "AveragePooling2D":
        return result
    # Theano's `average_exc_pad` divides by the number of the map's own cells in each window.
    ones = keras_do("pad", keras_do("ones_like", value), pads)
    return result / call_layer(without_padding, [ones])


def _pads_of_theano(kind: str, arguments: JsonObject) -> list[list[int]]:
    """Return how many cells Theano's `same` adds before and behind each axis of N x H x W x C. A Conv2D of 3
    x 3 has [[0, 0], [1, 1], [1, 1], [0, 0]].
    """
    pads = []
    if kind == "Conv2D":
        for extent in _extents(arguments):
            before = extent // 2
            pads.append([before, extent - 1 - before])
    else:
        for cells in pair(arguments["pool_size"]):
            is_odd = cells > 2 and cells % 2 == 1
            before = cells - (2 if is_odd else 1)
            pads.append([before, cells - 1 - before])
    return [[0, 0], *pads, [0, 0]]


def _extents(arguments: JsonObject) -> tuple[int, int]:
    """Return how many rows and columns a kernel spans, its dilation included: (5, 5) for 3 x 3 and 2."""
    sizes = zip(pair(arguments["kernel_size"]), pair(arguments.get("dilation_rate") or 1), strict=True)
    rows, columns = ((size - 1) * dilation + 1 for size, dilation in sizes)
    return rows, columns
