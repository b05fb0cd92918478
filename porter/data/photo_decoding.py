"""Opens photos of strangers: in 8-bit RGB as the zoos' own loaders read them, within bounds of pixels."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from porter.base.errors import FileError, UsageError
from porter.data.jpeg import Jpeg, decode_fast, fast_decoder, is_jpeg

if TYPE_CHECKING:
    from PIL.Image import Image


_MOST_PIXELS = 1 << 26
"""The most pixels of one photo: a camera's 61 million, and the largest of ImageNet. Decoded and made floats
each takes 20 bytes.
"""
_ALWAYS_READ_PIXELS = 1 << 24
_PIXELS_PER_BYTE = 64
"""The most pixels for each byte of a photo with more than _ALWAYS_READ_PIXELS: a JPEG has 20 at most unless
it shows nothing, and a PNG of nothing unpacks to a thousand times its bytes.
"""
# Containers whose decoders are Pillow's own or a codec's. EPS is left out: Pillow runs Ghostscript for it.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")


def open_image(source: Path | bytes | BinaryIO, jpeg: Jpeg | None = None) -> Image:
    """Return a photo, in a file or in memory, as 8-bit RGB.

    Grey and palette images are expanded, CMYK is converted, 16-bit values keep their high byte (as libpng's
    strip_16 does for TensorFlow and OpenCV), and alpha is dropped (as torchvision's loader and
    tf.io.decode_image(channels=3) do).

    The EXIF orientation is not applied. torchvision's loader (Image.open(...).convert("RGB")) and
    TensorFlow's decoders ignore it, and their figures were measured without it; cv2.imread, which the Keras
    table's protocol used, applies it since OpenCV 3.1.

    JPEGs are decoded as torchvision and OpenCV decode them, with libjpeg's accurate transform.
    tf.io.decode_jpeg gives the same bytes with dct_method="INTEGER_ACCURATE"; its default, which slim's
    figures were measured with, is faster and differs by a few levels, in our 20 photos by up to 19: `jpeg` is
    then `fast`.

    Raises:
        FileError: there is no such file, it is no image of a known format, it is broken, or it has too many
            pixels.
        NotInstalled: simplejpeg, which decodes fast, is not installed.
    """
    from PIL import Image, UnidentifiedImageError

    if jpeg == "fast":
        fast_decoder()
    where = str(source) if isinstance(source, Path) else None
    try:
        with Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=_FORMATS) as image:
            assert image.fp is not None
            width, height = image.size
            encoded = _size_of_file(image.fp)
            most = min(_MOST_PIXELS, max(_ALWAYS_READ_PIXELS, _PIXELS_PER_BYTE * encoded))
            if width * height > most:
                raise FileError(
                    f"the image has {width}x{height} pixels, more than the {most} that porter reads from "
                    f"{encoded} bytes"
                )
            return decode_fast(image) if jpeg == "fast" and is_jpeg(image) else to_rgb(image)
    except FileError as error:
        raise error.at(where) from None
    except UnidentifiedImageError:
        message = f"cannot be read as an image: it is none of {', '.join(_FORMATS)}"
        raise FileError(message, where=where, next="check the file") from None
    except OSError as error:
        raise FileError(f"cannot be read as an image: {error}", where=where, next="check the file") from None
    except Exception as error:
        # Pillow's plugins raise many kinds: struct.error, SyntaxError, zlib.error, ...
        raise FileError(f"a broken image: {error!r}", where=where, next="check the file") from None


def as_image(photo: Image | NDArray[np.generic]) -> Image:
    """Return a photo in memory as 8-bit RGB, as `open_image` does: an image of Pillow, or bytes H x W x RGB
    or H x W.

    Raises:
        UsageError: it is something else.
        FileError: its values have no defined brightness.
    """
    from PIL import Image as pillow

    if isinstance(photo, pillow.Image):
        return to_rgb(photo)
    pixels = np.asarray(photo)
    is_grey_or_rgb = pixels.ndim in (2, 3) and pixels.shape[2:] in ((), (3,))
    if pixels.dtype != np.uint8 or not pixels.size or not is_grey_or_rgb:
        shape = " x ".join(map(str, pixels.shape)) or type(photo).__name__
        next = "give bytes H x W x RGB, a path or an image of Pillow; the protocol scales them"
        raise UsageError(f"this is no photo: {shape} of {pixels.dtype}", next=next)
    return to_rgb(pillow.fromarray(pixels))


def _size_of_file(file: IO[bytes]) -> int:
    """Return the size of an open file, whose position stays."""
    position = file.tell()
    size = file.seek(0, 2)  # to the end
    file.seek(position)
    return size


def to_rgb(image: Image) -> Image:
    """Return a photo of any mode of Pillow's (grey, palette, CMYK, 16 bits, ...) in RGB with 8 bits, as the
    zoos' own loaders read it.

    Raises:
        FileError: its values have no defined brightness, or exceed 16 bits.
    """
    from PIL import Image as pillow

    if image.mode == "F":
        raise FileError(
            "a floating-point image has no defined brightness range", next="save it with 8 bits per channel"
        )
    if image.mode.startswith("I"):  # convert("RGB") would clip 16-bit values at 255
        wide = np.asarray(image)
        if wide.min() < 0 or wide.max() > 0xFFFF:
            raise FileError(
                f"values from {wide.min()} to {wide.max()} exceed 16 bits",
                next="save it with 8 bits per channel",
            )
        # the high byte of 16 bits
        return pillow.fromarray((wide >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "P" and "transparency" in image.info:
        # Pillow warns when such a palette goes to RGB at once; the colours are the same.
        image = image.convert("RGBA")
    return image.convert("RGB")
