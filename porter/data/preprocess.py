"""Makes of a photograph the array that a zoo's weights were measured with.

What makes a published accuracy reproducible is the resampling: which kernel, antialiased or not, on bytes or
on floats, where pixel centres lie, and which way sizes and crops round. Each `interpolation` therefore names
an implementation, roundings included, and is reproduced exactly:

- `pil_bilinear`, `pil_bicubic`, ...: torchvision's and timm's Resize and CenterCrop on PIL images
  (antialiased, on bytes), and Keras's load_img.
- `torch_bilinear`, `torch_bicubic`: the same of torchvision on tensors, which are
  torch.nn.functional.interpolate with antialias=True on floats, rounded to bytes.
- `opencv_bilinear`: cv2.INTER_LINEAR, as MXNet's transforms call it.
- `opencv_cubic`: cv2.INTER_CUBIC with the roundings of TensorNets' `load_img` and `crop`, the protocol of the
  Keras table (keras-applications#88).
- `tf_bilinear`: tf.image.resize, image_dataset_from_directory and keras.layers.Resizing (no antialiasing, on
  floats); `tf_bicubic` is tf.image.resize with that kernel, and `tf_antialiased` with antialias=True.
- `tf_area`: tf.image.resize with that method and the roundings of big_vision's resize_small, to bytes.
- `tf1_bilinear`: tf.image.resize_bilinear of TensorFlow 1 with the roundings of slim's vgg_preprocessing and
  inception_preprocessing (no antialiasing, no half-pixel centres, on floats).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from io import BytesIO
from math import inf, isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Literal, TypeAlias, get_args

from porter.base.errors import FileError, PorterError, UsageError
from porter.base.options import CROPS, PREPROCESS
from porter.data.interpolations import RESAMPLINGS, Interpolation, Resampling
from porter.data.jpeg import Jpeg, decode_fast, fast_decoder, is_jpeg

if TYPE_CHECKING:  # a recipe's preprocessing is read by commands that need neither numpy nor Pillow
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Pixels: TypeAlias = NDArray[np.uint8] | NDArray[np.float32]

ResizeRule = Literal["shorter_side", "squash", "square", "none"]
Channels = Literal["rgb", "bgr"]
CropRounding = Literal["even", "down", "up"]
Triple = tuple[float, float, float]

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
_MAX_RESIZED_PIXELS = 1 << 25


class ProtocolError(PorterError):
    """Values that do not make a protocol. `key` is the wrong one."""

    code = "protocol"

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True)
class Preprocess:
    """A preprocessing protocol: value = (pixel / divide - mean) / std, in float32.

    Attributes:
        resize: `shorter_side` keeps the aspect ratio; `squash` gives size x size whatever the input's;
            `square` does so of the largest square in the centre, as keras.layers.Resizing with
            crop_to_aspect_ratio; `none` takes photos that have size x size pixels already.
        size: of the shorter side, or of both.
        interpolation: the implementation, its roundings included (see the module); `none` where nothing is
            resized.
        central_fraction: share of height and width that is kept before resizing, or None for all; of
            `square` the share of its side.
        crop: side of the square kept from the centre after resizing, or None for all.
        crop_rounding: which way a centre between two pixels is rounded, of a crop and of `square`; None as
            the library of the interpolation does.
        channels: their order in the result.
        jpeg: `fast` where JPEGs are decoded as TensorFlow does by default; None for libjpeg's accurate
            transform.
        divide: of every pixel (0..255) before mean and std.
        mean: per channel, in the order of `channels`.
        std: per channel, in the order of `channels`.

    Raises:
        ProtocolError: values that do not make a protocol.
    """

    resize: ResizeRule
    size: int
    interpolation: Interpolation
    central_fraction: float | None = None
    crop: int | None = None
    crop_rounding: CropRounding | None = None
    jpeg: Jpeg | None = None
    channels: Channels = "rgb"
    divide: float = 1.0
    mean: Triple = (0.0, 0.0, 0.0)
    std: Triple = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        for name, kind in (("resize", ResizeRule), ("interpolation", Interpolation), ("channels", Channels)):
            if getattr(self, name) not in get_args(kind):
                raise ProtocolError(
                    f"'{name}' must be one of {', '.join(get_args(kind))}, got '{getattr(self, name)}'",
                    key=name,
                )
        for name, kind in (("crop_rounding", CropRounding), ("jpeg", Jpeg)):
            if getattr(self, name) not in (None, *get_args(kind)):
                named = ", ".join(get_args(kind))
                raise ProtocolError(f"'{name}' must be one of {named}, got '{getattr(self, name)}'", key=name)
        if (self.resize == "none") != (self.interpolation == "none"):
            message = (
                f"'resize' and 'interpolation' must be 'none' together, got '{self.resize}' and "
                f"'{self.interpolation}'"
            )
            raise ProtocolError(message, key="interpolation")
        if not 1 <= self.size <= 4096:
            raise ProtocolError(f"'size' must be from 1 to 4096, got {self.size}", key="size")
        if self.crop is not None and not 1 <= self.crop <= self.size:
            raise ProtocolError(f"'crop' must be from 1 to the size {self.size}, got {self.crop}", key="crop")
        if self.central_fraction is not None and not 0 < self.central_fraction <= 1:
            raise ProtocolError(
                f"'central_fraction' must be above 0 and at most 1, got {self.central_fraction}",
                key="central_fraction",
            )
        if not 0 < self.divide < inf:
            raise ProtocolError(f"'divide' must be above 0, got {self.divide}", key="divide")
        if len(self.mean) != 3 or not all(map(isfinite, self.mean)):
            raise ProtocolError(f"'mean' must have three values, got {self.mean}", key="mean")
        if len(self.std) != 3 or not all(0 < value < inf for value in self.std):
            raise ProtocolError(f"'std' must have three values above 0, got {self.std}", key="std")

    @property
    def fed_side(self) -> int | None:
        """Return the side of the square that a model is fed; None where the protocol keeps each photo's own
        shape.
        """
        if self.crop is not None:
            return self.crop
        return None if self.resize == "shorter_side" else self.size

    @property
    def resampling(self) -> Resampling:
        """What is known of its interpolation, such as whether it gives fractions."""
        return RESAMPLINGS[self.interpolation]

    @property
    def rounding(self) -> CropRounding:
        """How the corner of a square is rounded: torchvision's CenterCrop rounds half to even, TensorNets,
        slim and Keras round down.
        """
        return self.crop_rounding or ("even" if self.resampling.torchvision else "down")

    @property
    def square(self) -> int:
        """`fed_side` of a protocol that has one."""
        assert self.fed_side is not None, "every photo has another size"
        return self.fed_side

    def at(self, side: int) -> Preprocess:
        """Return this protocol in proportion for a model that is fed squares of `side`; itself if that is
        `own_side`, or if there is no `own_side`.

        The zoos round the size before the crop: torchvision (bilinear) to the nearest, 342 for 299 as 256 for
        224, TensorNets (`side * 8 // 7`) and timm (`floor(side / crop_pct)`) down.

        Raises:
            ProtocolError: `side` makes a size above 4096.
        """
        own_side = self.fed_side
        if own_side is None or own_side == side:
            return self
        if self.crop is None:
            return replace(self, size=side)
        nearest = self.interpolation in ("pil_bilinear", "torch_bilinear")
        size = round(self.size * side / own_side) if nearest else self.size * side // own_side
        return replace(self, size=size, crop=side)

    @property
    def geometry(self) -> Preprocess:
        """Return the part of the protocol that decides what `resize_image` gives, by which resized photos are
        kept for several models. It is the same for every crop, channel order and scaling of the result.

        Where pixels are divided before they are resized, `divide` belongs to it.
        """
        divide = self.divide if self.resampling.divides_first else 1.0
        rounding = self.crop_rounding if self.resize == "square" else None
        return Preprocess(
            self.resize,
            self.size,
            self.interpolation,
            self.central_fraction,
            crop_rounding=rounding,
            jpeg=self.jpeg,
            divide=divide,
        )


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
            return decode_fast(image) if jpeg == "fast" and is_jpeg(image) else _to_rgb(image)
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
    import numpy as np
    from PIL import Image as pillow

    if isinstance(photo, pillow.Image):
        return _to_rgb(photo)
    pixels = np.asarray(photo)
    is_grey_or_rgb = pixels.ndim in (2, 3) and pixels.shape[2:] in ((), (3,))
    if pixels.dtype != np.uint8 or not pixels.size or not is_grey_or_rgb:
        shape = " x ".join(map(str, pixels.shape)) or type(photo).__name__
        next = "give bytes H x W x RGB, a path or an image of Pillow; the protocol scales them"
        raise UsageError(f"this is no photo: {shape} of {pixels.dtype}", next=next)
    return _to_rgb(pillow.fromarray(pixels))


def _size_of_file(file: IO[bytes]) -> int:
    """Return the size of an open file, whose position stays."""
    position = file.tell()
    size = file.seek(0, 2)  # to the end
    file.seek(position)
    return size


def _to_rgb(image: Image) -> Image:
    """Return a photo of any mode of Pillow's (grey, palette, CMYK, 16 bits, ...) in RGB with 8 bits, as the
    zoos' own loaders read it.

    Raises:
        FileError: its values have no defined brightness, or exceed 16 bits.
    """
    import numpy as np
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
    import numpy as np
    from PIL import Image as pillow

    from porter.data import resampling

    image = image if image.mode == "RGB" else _to_rgb(image)
    if protocol.resize == "square":
        image = image.crop(_central_square(*image.size, protocol))
    elif protocol.central_fraction is not None:
        image = image.crop(_central_box(*image.size, protocol.central_fraction))
    rows, columns = _target_size(image.height, image.width, protocol)
    pixels = np.asarray(image)
    if protocol.interpolation == "none":
        return pixels
    if protocol.interpolation == "tf1_bilinear":
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
    top, left = _corner_of_crop(pixels.shape[0], pixels.shape[1], protocol)
    return _crop_at(pixels, top, left, protocol.crop)


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
    starts = [_corner_of_crop(height, width, protocol), (0, 0), (0, right), (bottom, 0), (bottom, right)]
    mirrored = _mirror(pixels)
    # torchvision crops the mirrored image at the same places; the others' crops lie there mirrored.
    mirrored_starts = starts
    if not protocol.resampling.torchvision:
        mirrored_starts = [(top, right - left) for top, left in starts]
    return [
        *(_crop_at(pixels, top, left, side) for top, left in starts),
        *(_crop_at(mirrored, top, left, side) for top, left in mirrored_starts),
    ]


def _mirror(pixels: Pixels) -> Pixels:
    """Return the pixels mirrored left to right, as a copy. numpy copies backwards five times as fast channel
    by channel as pixel by pixel.
    """
    import numpy as np

    result = np.empty_like(pixels)
    for channel in range(3):
        result[:, :, channel] = pixels[:, ::-1, channel]
    return result


def normalise(pixels: NDArray[np.generic], protocol: Preprocess) -> NDArray[np.float32]:
    """Return (pixel / divide - mean) / std of any number of crops: ... x H x W x RGB in, ... x 3 x H x W in
    the protocol's order out.

    They are divided here unless `resize_image` has divided them already.
    """
    import numpy as np

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


def _crop_at(pixels: Pixels, top: int, left: int, side: int) -> Pixels:
    return pixels[top : top + side, left : left + side]


def _central_box(width: int, height: int, fraction: float) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of the central part, as tf.image.central_crop rounds them: the
    offset is rounded down and taken from both sides.
    """
    left, top = int((width - width * fraction) / 2), int((height - height * fraction) / 2)
    return left, top, width - left, height - top


def _central_square(width: int, height: int, protocol: Preprocess) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of the square in the middle. Its side is rounded down, as flax's
    ImageNet example does (input_pipeline.py), and its corner as the protocol says: keras.ops.image.resize
    rounds it down.
    """
    side = int(min(width, height) * (protocol.central_fraction or 1))
    top, left = _corner_of_square(height, width, side, protocol.crop_rounding or "down")
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
    if protocol.interpolation in ("tf1_bilinear", "tf_area"):
        import numpy as np

        longer = int(np.rint(np.float32(long) * (np.float32(size) / np.float32(short))))
    else:
        longer = int(size * long / short)
    if longer * size > _MAX_RESIZED_PIXELS:
        raise FileError(
            f"an image of {width}x{height} pixels would be enlarged to {longer}x{size}", next="crop it"
        )
    return (longer, size) if height > width else (size, longer)


def _corner_of_crop(height: int, width: int, protocol: Preprocess) -> tuple[int, int]:
    """Return top and left of the centre crop."""
    return _corner_of_square(height, width, protocol.square, protocol.rounding)


def _corner_of_square(height: int, width: int, side: int, rounding: CropRounding) -> tuple[int, int]:
    """Return top and left of a square in the centre; `rounding` says which way half a pixel goes."""
    if rounding == "even":
        return round((height - side) / 2), round((width - side) / 2)
    added = 1 if rounding == "up" else 0  # before the halves are rounded down
    return (height - side + added) // 2, (width - side + added) // 2
