"""Makes of a decoded photo the array that a model takes, by a protocol: resized, cropped, normalised."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from porter.base.errors import FileError, UsageError
from porter.base.options import CROPS, PREPROCESS
from porter.data import resampling
from porter.data.photo_decoding import to_rgb
from porter.data.preprocess import CropRounding, Preprocess

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels: TypeAlias = NDArray[np.uint8] | NDArray[np.float32]

_MAX_RESIZED_PIXELS = 1 << 25


def prepare(image: Image, protocol: Preprocess) -> NDArray[np.float32]:
    """Return an image as the array 3 x H x W that a model takes.

    Raises:
        FileError: the image is so narrow that it would be enlarged beyond any use.
    """
    return normalise(centre_crop(resize_image(image, protocol), protocol), protocol)


def resize_image(image: Image, protocol: Preprocess) -> Pixels:
    """Return an image resized, before the crop: rows x columns x RGB, bytes or floats as the resampling gives
    them, and already divided if it divides first.

    Only the `geometry` of the protocol matters.

    Raises:
        FileError: as `prepare`.
    """
    from PIL import Image as pillow

    image = image if image.mode == "RGB" else to_rgb(image)
    if protocol.resize == "square":
        image = image.crop(_central_square(*image.size, protocol))
    elif protocol.central_fraction is not None:
        image = image.crop(_central_box(*image.size, protocol.central_fraction))
    rows, columns = _target_size(image.height, image.width, protocol)
    pixels = np.asarray(image)
    if protocol.interpolation == "none":
        return pixels
    if protocol.resampling.divides_first:
        # Slim scales before it resizes, and tf.image.convert_image_dtype multiplies by the reciprocal.
        pixels = pixels.astype(np.float32) * np.float32(1 / protocol.divide)
    if protocol.interpolation in resampling.FUNCTIONS:
        return resampling.FUNCTIONS[protocol.interpolation](pixels, rows, columns)
    kernel = getattr(pillow.Resampling, protocol.interpolation.removeprefix("pil_").upper())
    return np.asarray(image.resize((columns, rows), kernel))


def centre_crop(pixels: Pixels, protocol: Preprocess) -> Pixels:
    """Return the crop that the protocol takes of resized pixels, as a view."""
    if protocol.crop is None:
        return pixels
    top, left = _corner_of_square(pixels.shape[0], pixels.shape[1], protocol.crop, protocol.rounding)
    return pixels[top : top + protocol.crop, left : left + protocol.crop]


def mirror_pair(pixels: Pixels, protocol: Preprocess) -> list[Pixels]:
    """Return two crops: the one that the protocol takes, and its mirror image."""
    crop = centre_crop(pixels, protocol)
    return [crop, _mirror(crop)]


def ten_crops(pixels: Pixels, protocol: Preprocess) -> list[Pixels]:
    """Return the crops at the centre, top left, top right, bottom left and bottom right, then the same
    mirrored, as views.

    torchvision's TenCrop mirrors the image and crops it, so its sixth crop is the mirrored image's centre;
    TensorNets mirrors the crops. If the centre lies between two columns, the two differ by one column.

    Raises:
        UsageError: the protocol does not crop.
    """
    if protocol.crop is None:
        raise UsageError("ten crops need a protocol that crops after resizing", next=f"use {CROPS(1)}")
    height, width = pixels.shape[:2]
    side = protocol.crop
    bottom, right = height - side, width - side
    # top and left of each crop
    centre = _corner_of_square(height, width, side, protocol.rounding)
    starts = [centre, (0, 0), (0, right), (bottom, 0), (bottom, right)]
    mirrored = _mirror(pixels)
    # torchvision crops the mirrored image at the same places; the others' crops lie there mirrored.
    mirrored_starts = starts
    if not protocol.resampling.torchvision:
        mirrored_starts = [(top, right - left) for top, left in starts]
    return [
        view[top : top + side, left : left + side]
        for view, corners in ((pixels, starts), (mirrored, mirrored_starts))
        for top, left in corners
    ]


def _mirror(pixels: Pixels) -> Pixels:
    """Return the pixels mirrored left to right, as a copy. numpy copies backwards five times as fast channel
    by channel as pixel by pixel.
    """
    result = np.empty_like(pixels)
    for channel in range(3):
        result[:, :, channel] = pixels[:, ::-1, channel]
    return result


def normalise(pixels: NDArray[np.generic], protocol: Preprocess) -> NDArray[np.float32]:
    """Return (pixel / divide - mean) / std of any number of crops: ... x H x W x RGB in, ... x 3 x H x W in
    the protocol's order out.

    They are divided here unless `resize_image` has divided them already.
    """
    ordered = pixels if protocol.channels == "rgb" else pixels[..., ::-1]
    mean, std = (np.asarray(triple, np.float32)[:, None, None] for triple in (protocol.mean, protocol.std))
    result = np.empty((*pixels.shape[:-3], 3, *pixels.shape[-3:-1]), np.float32)
    for index in np.ndindex(pixels.shape[:-3]):  # crop by crop, which stays in the processor's cache
        values = result[index]  # a view: `result` is filled through it
        values[...] = ordered[index].transpose(2, 0, 1)
        if not protocol.resampling.divides_first:
            values /= np.float32(protocol.divide)
        values -= mean
        values /= std
    return result


def _central_box(width: int, height: int, fraction: float) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of the central part, as tf.image.central_crop rounds them: the
    offset is rounded down and taken from both sides.
    """
    left, top = int((width - width * fraction) / 2), int((height - height * fraction) / 2)
    return left, top, width - left, height - top


def _central_square(width: int, height: int, protocol: Preprocess) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of the square in the middle. Its side is rounded down, as flax's
    ImageNet example does (input_pipeline.py), and its corner as the protocol says.
    """
    side = int(min(width, height) * (protocol.central_fraction or 1))
    top, left = _corner_of_square(height, width, side, protocol.square_rounding)
    return left, top, left + side, top + side


def _target_size(height: int, width: int, protocol: Preprocess) -> tuple[int, int]:
    """Return rows and columns after resizing.

    torchvision gives the longer side int(size * long / short), TensorNets long * size // short, which are
    equal; slim's vgg_preprocessing and big_vision round long * (size / short) to even in float32.
    """
    size = protocol.size
    if protocol.resize == "none" and (height, width) != (size, size):
        raise FileError(
            f"it has {width}x{height} pixels, and the protocol takes {size}x{size} and resizes nothing",
            next=f"resize the photo first, or state a protocol that resizes: {PREPROCESS}",
        )
    if protocol.resize != "shorter_side":
        return size, size
    short, long = sorted((height, width))
    if protocol.resampling.sides_in_float32:
        longer = int(np.rint(np.float32(long) * (np.float32(size) / np.float32(short))))
    else:
        longer = int(size * long / short)
    if longer * size > _MAX_RESIZED_PIXELS:
        raise FileError(
            f"an image of {width}x{height} pixels would be enlarged to {longer}x{size}", next="crop it"
        )
    return (longer, size) if height > width else (size, longer)


def _corner_of_square(height: int, width: int, side: int, rounding: CropRounding) -> tuple[int, int]:
    """Return top and left of a square in the centre; `rounding` says which way half a pixel goes."""
    if rounding == "even":
        return round((height - side) / 2), round((width - side) / 2)
    added = 1 if rounding == "up" else 0  # before the halves are rounded down
    return (height - side + added) // 2, (width - side + added) // 2
