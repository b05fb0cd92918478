"""JPEGs as TensorFlow decodes them by default: by libjpeg's fast transform, which Pillow does not offer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from porter.base.errors import NotInstalled
from porter.base.package import install

if TYPE_CHECKING:  # a recipe's preprocessing is read by commands that need neither numpy nor Pillow
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

Jpeg = Literal["fast"]


def fast_decoder() -> Callable[..., NDArray[np.uint8]]:
    """Return simplejpeg's decode_jpeg.

    Raises:
        NotInstalled: it is not installed.
    """
    try:
        from simplejpeg import decode_jpeg
    except ImportError as error:
        raise NotInstalled(
            f"simplejpeg, which the protocol's jpeg=fast needs, cannot be imported: {error}",
            next=install("data"),
        ) from None
    decoder: Callable[..., NDArray[np.uint8]] = decode_jpeg
    return decoder


def is_jpeg(image: ImageFile) -> bool:
    """Return whether an opened photo is a JPEG of colours or greys. A JPEG of CMYK is decoded by Pillow."""
    return image.format in ("JPEG", "MPO") and image.mode in ("L", "RGB")


def decode_fast(image: ImageFile) -> Image:
    """Decode an opened JPEG to 8-bit RGB, and return an image equal to the last bit to what
    tf.io.decode_image(channels=3) gives.

    Raises:
        Exception: whatever Pillow raises for a broken photo.
    """
    from PIL import Image as pillow

    assert image.fp is not None
    image.fp.seek(0)
    content = image.fp.read()
    decode = fast_decoder()
    try:
        pixels = decode(content, "RGB", fastdct=True)
    except ValueError:
        image.load()  # a photo is broken if Pillow cannot read it; otherwise libjpeg only warned of it
        pixels = decode(content, "RGB", fastdct=True, strict=False)
    return pillow.fromarray(pixels)
