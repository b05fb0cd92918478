"""Photos on disk, whole and broken, for tests of what reads them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from porter.data.photos import Bytes, Photo
from porter.data.preparing import normalise, resize_image, ten_crops
from porter.data.preprocess import Preprocess

SIZES = ((120, 90), (91, 121), (64, 64), (83, 97), (57, 200))


def picture(number: int) -> Image.Image:
    width, height = SIZES[number % len(SIZES)]
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8))


def prepare_ten(image: Image.Image, protocol: Preprocess) -> NDArray[np.float32]:
    """The ten crops 10 x 3 x H x W that an evaluation shows a model, in the order of `ten_crops`."""
    return normalise(np.stack(ten_crops(resize_image(image, protocol), protocol)), protocol)


def realistic(width: int, height: int) -> Image.Image:
    """Smooth colours, a sharp edge and some noise."""
    random = np.random.default_rng(width * 1000 + height)
    coarse = Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    values = np.asarray(coarse).astype(np.float32) + random.normal(0, 12, (height, width, 3))
    values[height // 3 :, : width // 2] += 90
    return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))


def encoded(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def write_photos(folder: Path, count: int) -> list[Photo]:
    """JPEGs of different sizes, `0.jpg` onwards."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}.jpg" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(encoded(picture(number), quality=90))
    return [Photo(path.name, (number,), Bytes(path)) for number, path in enumerate(paths)]


def png_of(width: int, height: int) -> bytes:
    """A PNG whose header claims any size."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 100))
        + chunk(b"IEND", b"")
    )


def odd_photos() -> Mapping[str, bytes]:
    """Unusual photos that are fine."""
    turned = Image.Exif()
    turned[0x0112] = 6
    return {
        "grey.jpg": encoded(picture(0).convert("L")),
        "cmyk.jpg": encoded(picture(1).convert("CMYK")),
        "turned.jpg": encoded(picture(0), exif=turned),
        "deep.png": encoded(Image.fromarray(np.arange(90 * 80, dtype=np.uint16).reshape(90, 80)), "PNG"),
        "alpha.png": encoded(picture(2).convert("RGBA"), "PNG"),
    }


def broken_photos() -> Mapping[str, tuple[bytes, str]]:
    """Photos that cannot be used, and a part of the reason."""
    whole = encoded(picture(0))
    return {
        "truncated.jpg": (whole[: len(whole) // 2], "truncated"),
        "empty.jpg": (b"", "no bytes"),
        "text.jpg": (b"not an image", "none of JPEG"),
        "bomb.png": (png_of(60_000, 60_000), "DecompressionBomb"),
        "large.png": (png_of(10_000, 10_000), "10000x10000"),
        "strip.png": (encoded(Image.new("L", (1, 600_000)), "PNG"), "1x600000"),
        "float.tiff": (encoded(Image.fromarray(np.zeros((9, 9), np.float32)), "TIFF"), "floating-point"),
    }
