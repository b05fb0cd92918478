"""A protocol as the image_converter.json of a KerasHub preset states it
(keras_hub/src/layers/preprocessing/image_converter.py).

An ImageConverter resizes as keras.layers.Resizing, which may take the largest square of the centre first,
multiplies by a scale and adds an offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONVERTER_FILE = "image_converter.json"
_INTERPOLATIONS = {
    ("bilinear", False): "tf_bilinear",
    ("bicubic", False): "tf_bicubic",
    ("bilinear", True): "tf_antialiased",
}
"""porter's interpolation by KerasHub's kernel and whether it is antialiased."""
ROUNDING_DIFFERS = (
    "photos are prepared as KerasHub prepares those in floats, to some last bits; of photos in bytes, it "
    "rounds what it resizes, "
    "so values differ by half a level"
)


def from_keras_hub(converter: Mapping[str, Any]) -> dict[str, Any]:
    """Return the protocol of an ImageConverter as porter.data.statements reads it.

    Raises:
        KeyError, TypeError, ValueError, ZeroDivisionError: it is incomplete, or none that porter can prepare.
    """
    settings = converter["config"]
    rows, columns = settings["image_size"]
    kernel = settings.get("interpolation", "bilinear"), settings.get("antialias", False)
    is_padded = settings.get("pad_to_aspect_ratio")
    if rows != columns or kernel not in _INTERPOLATIONS or is_padded:
        antialiased = ", antialiased" if kernel[1] else ""
        padded = ", padded" if is_padded else ""
        raise ValueError(f"{rows}x{columns} by {kernel[0]}{antialiased}{padded}")
    # KerasHub computes pixel * scale + offset; a protocol computes (pixel / divide - mean) / std.
    scale = _value_per_channel(settings.get("scale"), 1.0)
    offset = _value_per_channel(settings.get("offset"), 0.0)
    divide = 1 / scale[0] if len(set(scale)) == 1 else 255.0
    std = [1 / (value * divide) for value in scale]
    return {
        "resize": "square" if settings.get("crop_to_aspect_ratio", True) else "squash",
        "size": rows,
        "interpolation": _INTERPOLATIONS[kernel],
        "divide": round(divide, 9),
        "mean": [round(-value * deviation, 9) for value, deviation in zip(offset, std, strict=True)],
        "std": [round(value, 9) for value in std],
    }


def _value_per_channel(setting: Any, default: float) -> list[float]:
    """Return a setting as a number for each of the three channels: a list as it is, one number three times,
    and the default if it is not set.
    """
    if setting is None:
        return [default] * 3
    values = setting if isinstance(setting, list) else [setting] * 3
    return [float(value) for value in values]
