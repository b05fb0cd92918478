"""What Keras's layers that resize and crop compute, by Keras's own arithmetic, whatever porter's reader
(porter.formats.keras.resizing) makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from porter.base.dtypes import Array
from porter.base.name_tables import JsonObject
from porter.formats.keras.flow import LayerCall
from porter.formats.keras.stated_layer import pair
from porter.frameworks.tf.runtime import keras_do
from porter.graph import Resize
from porter.padding import Size

_INTERPOLATIONS: Mapping[str, Literal["linear", "cubic"]] = {"bilinear": "linear", "bicubic": "cubic"}


def rounds_to_float32(call: LayerCall) -> bool:
    """Say whether Keras's own resize computes in float32, whatever it is given, by a rule of TensorFlow's
    that porter knows.
    """
    usual = "nearest" if call.kind == "UpSampling2D" else "bilinear"
    known = call.arguments.get("interpolation", usual) in _INTERPOLATIONS
    return known and not call.arguments.get("antialias")


def tensorflow_resize(call: LayerCall) -> Resize:
    """Return the resize with TensorFlow's own shares (core/kernels/image/resize_bicubic_op.cc: Keys's, with a
    of -0.5, of the cells inside the map), whatever porter's reader makes of it.
    """
    stated = call.arguments
    mode = _INTERPOLATIONS[stated.get("interpolation", "bilinear")]
    # An op has a scale or a size.
    scale, size = tuple[float, ...](), tuple[int, ...]()
    if call.kind == "UpSampling2D":
        scale = tuple(map(float, pair(stated["size"])))
    else:
        size = stated["height"], stated["width"]
    return Resize(mode, scale, size, a=-0.5, inside=mode == "cubic")


def keeps_size(kind: str, arguments: JsonObject, size: Size) -> bool:
    """Say whether a resizing layer leaves a map of this size as large as it is."""
    if kind == "UpSampling2D":
        return pair(arguments["size"]) == (1, 1)
    return (arguments["height"], arguments["width"]) == size


def resizes_instead(kind: str, arguments: JsonObject, size: Size) -> bool:
    """Say whether Keras resizes in place of cropping: a CenterCrop to more than the map has does, and every
    RandomCrop in inference, unless the map has its size.
    """
    if kind == "RandomCrop":
        return not keeps_size(kind, arguments, size)
    rows, columns = size  # a size that is not known counts as 0
    return (rows or 0) < int(arguments["height"]) or (columns or 0) < int(arguments["width"])


def fit_aspect_ratio(arguments: JsonObject, value: Any) -> Any:
    """Return the input N x H x W x C of a Resizing, cropped or padded to the target's aspect ratio where the
    layer says so, by Keras's own arithmetic (`resize` in its keras/src/backend/tensorflow/image.py), whatever
    porter's reader makes of it.
    """
    crops, pads = arguments.get("crop_to_aspect_ratio"), arguments.get("pad_to_aspect_ratio")
    if not crops and not pads:
        return value
    size = np.array(value.shape[1:3])
    target = np.array([arguments["height"], arguments["width"]])
    # Rows and columns that go with the map's columns and rows in the target's ratio.
    same_ratio = ((size[::-1] * target).astype(np.float32) / target[::-1]).astype(int)
    if crops:
        rows, columns = cropped_size = np.maximum(np.minimum(size, same_ratio), 1)
        top, left = _half(size - cropped_size)
        return value[:, top : top + rows, left : left + columns]
    margin = _half(np.maximum(size, same_ratio) - size)
    widths = [[0, 0], *([cells, cells] for cells in margin.tolist()), [0, 0]]
    return keras_do("pad", value, widths, constant_values=arguments.get("fill_value", 0.0))


def _half(cells: Array) -> Array:
    """Return half of each number of cells, rounded down as Keras does it, in float32."""
    return (cells.astype(np.float32) / 2).astype(int)
