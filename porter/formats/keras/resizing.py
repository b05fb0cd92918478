"""What Keras's layers of other cells compute: tf.image.resize by half pixels, without its antialias, of a map
or a part of it.
"""

from __future__ import annotations

from porter.base.name_tables import JsonObject
from porter.filegraph.file_graph import Unsupported
from porter.formats.keras.stated_layer import count, number, pair
from porter.formats.tensorflow import has_cubic_shares
from porter.graph import Resize
from porter.padding import KnownSize, Pads, Size

_CROP, _PAD = "crop_to_aspect_ratio", "pad_to_aspect_ratio"
_EXACT_IN_FLOAT32 = 2**24
"""Keras divides products of sizes in float32, which has smaller ones exactly."""


def pads_to_aspect(arguments: JsonObject, size: Size) -> tuple[Pads, float]:
    """Return the pads that give a map of `size` the aspect of a Resizing's own size, and what fills them.
    They are below zero where it crops (keras/src/backend/tensorflow/image.py, `resize`).

    Raises:
        Unsupported: the map has an open size.
    """
    crops, pads = bool(arguments.get(_CROP)), bool(arguments.get(_PAD))
    if not crops and not pads:
        return (0, 0, 0, 0), 0.0
    rows, columns = _fixed_size(size)
    height, width = count(arguments["height"]), count(arguments["width"])
    # Keras divides in float32, which rounds larger products.
    is_inexact = max(columns * height, rows * width) >= _EXACT_IN_FLOAT32
    if is_inexact or (pads and arguments.get("fill_mode", "constant") != "constant"):
        raise Unsupported(f"with {_CROP if crops else _PAD} of {rows}x{columns} to {height}x{width}")
    # The rows that fit the map's columns, and the columns that fit its rows.
    fitting_rows, fitting_columns = columns * height // width, rows * width // height
    if crops:
        kept_size = max(min(rows, fitting_rows), 1), max(min(columns, fitting_columns), 1)
        return _crop_pads((rows, columns), kept_size), 0.0
    # Only one of the two is above 0: the other side fills the size.
    top = max(fitting_rows - rows, 0) // 2
    left = max(fitting_columns - columns, 0) // 2
    return (top, top, left, left), number(arguments.get("fill_value", 0.0))


def center_crop_pads(arguments: JsonObject, size: Size) -> Pads | None:
    """Return the pads below zero by which a CenterCrop crops a map of `size`; None where the map is smaller.

    Raises:
        Unsupported: the map has an open size.
    """
    rows, columns = _fixed_size(size)
    height, width = count(arguments["height"]), count(arguments["width"])
    return _crop_pads((rows, columns), (height, width)) if rows >= height and columns >= width else None


def _crop_pads(size: KnownSize, target: tuple[int, int]) -> Pads:
    """Return the pads below zero that leave `target` rows and columns in the middle of `size`."""
    removed = [old - new for old, new in zip(size, target, strict=True)]
    # An odd cell goes at the end.
    (top, bottom), (left, right) = ((-(cells // 2), cells // 2 - cells) for cells in removed)
    return top, bottom, left, right


def _fixed_size(size: Size) -> tuple[int, int]:
    """Return the rows and columns of a map, and raise Unsupported where one is open."""
    rows, columns = size
    if rows is None or columns is None:
        raise Unsupported("of a map of any size: save the model for one size")
    return rows, columns


def resize_of(kind: str, arguments: JsonObject, size: Size) -> Resize | None:
    """Return the op of an UpSampling2D or a Resizing of a map of `size`; None where the map has its size.

    Raises:
        Unsupported: porter has no op for it.
    """
    mode = str(arguments.get("interpolation", "nearest" if kind == "UpSampling2D" else "bilinear"))
    scale: tuple[float, ...] = ()
    target: tuple[int, ...] = ()
    if kind == "UpSampling2D":
        scale = tuple(float(count(times)) for times in pair(arguments["size"]))
        factors = scale
    else:
        target = count(arguments["height"]), count(arguments["width"])
        # An open size is 0 here, and has no factor.
        factors = tuple(new / old if old else 0.0 for new, old in zip(target, size, strict=True))
    if set(factors) == {1.0}:
        return None
    if arguments.get("antialias"):
        raise Unsupported("with antialias")
    match mode:
        case "nearest":
            return Resize("nearest", scale, target, rounding="round_prefer_ceil")
        case "bilinear":
            return Resize("linear", scale, target)
        case "bicubic" if has_cubic_shares(factors):
            return Resize("cubic", scale, target, a=-0.5, inside=True)
        case "bicubic":
            raise Unsupported(
                "(bicubic) by other factors than powers of two, whose shares TensorFlow takes from a table"
            )
    raise Unsupported(f"with interpolation {mode!r:.40}")
