"""What Keras's layers of other cells compute: tf.image.resize by half pixels, without its antialias."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from porter.filegraph.walk import NoOp
from porter.formats.keras.layer import count, pair
from porter.formats.tensorflow import has_cubic_shares
from porter.graph import Resize
from porter.padding import Size

_PLAIN = ("crop_to_aspect_ratio", "pad_to_aspect_ratio", "antialias")


def resize_of(kind: str, arguments: Mapping[str, Any], size: Size) -> Resize | None:
    """An UpSampling2D or a Resizing of a map of `size`; None where the map has its size.

    Raises:
        NoOp: porter has no op for it.
    """
    mode = str(arguments.get("interpolation", "nearest" if kind == "UpSampling2D" else "bilinear"))
    scale: tuple[float, ...] = ()
    wanted: tuple[int, ...] = ()
    if kind == "UpSampling2D":
        factors = scale = tuple(float(count(times)) for times in pair(arguments["size"]))
    else:
        wanted = count(arguments["height"]), count(arguments["width"])
        factors = tuple(new / old if old else 0.0 for new, old in zip(wanted, size, strict=True))
    if set(factors) == {1.0}:
        return None
    if stated := [name for name in _PLAIN if arguments.get(name)]:
        raise NoOp(f"{kind} with {stated[0]}")
    match mode:
        case "nearest":
            return Resize("nearest", scale, wanted, rounding="round_prefer_ceil")
        case "bilinear":
            return Resize("linear", scale, wanted)
        case "bicubic" if has_cubic_shares(factors):
            return Resize("cubic", scale, wanted, a=-0.5, inside=True)
        case "bicubic":
            raise NoOp(f"{kind} (bicubic) by other factors than powers of two, whose shares TensorFlow takes from a table")
    raise NoOp(f"{kind} with interpolation {mode!r:.40}")
