"""The protocol by which a photograph becomes the array that a zoo's weights were measured with. It is read
with a recipe, by commands that need neither numpy nor Pillow.

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
from math import inf, isfinite
from typing import Literal, get_args

from porter.base.errors import PorterError
from porter.data.interpolations import RESAMPLINGS, Interpolation, Resampling
from porter.data.jpeg import Jpeg

ResizeRule = Literal["shorter_side", "squash", "square", "none"]
Channels = Literal["rgb", "bgr"]
CropRounding = Literal["even", "down", "up"]
Triple = tuple[float, float, float]


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
        """How the corner of a crop is rounded: torchvision's CenterCrop rounds half to even, TensorNets, slim
        and Keras round down.
        """
        return self.crop_rounding or ("even" if self.resampling.torchvision else "down")

    @property
    def square_rounding(self) -> CropRounding:
        """How the corner of `square`, which lies before the resize, is rounded: keras.ops.image.resize rounds
        it down.
        """
        return self.crop_rounding or "down"

    @property
    def square(self) -> int:
        """`fed_side` of a protocol that has one."""
        assert self.fed_side is not None, "every photo has another size"
        return self.fed_side

    def at(self, side: int) -> Preprocess:
        """Return this protocol in proportion for a model that is fed squares of `side`; itself if that is its
        `fed_side`, or if it has none.

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
        size = self.size * side // own_side
        if self.resampling.sizes_to_nearest:
            size = round(self.size * side / own_side)
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
