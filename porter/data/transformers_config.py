"""A protocol as the preprocessor_config.json of transformers states it.

Its image processors resize, take the centre, rescale and normalise, each if `do_...` says so (transformers 5:
`PilBackend` in image_processing_backends.py). They round both corners of the centre down (`center_crop` in
image_transforms.py); torchvision's transforms round to even. ConvNeXT's (image_processing_pil_convnext.py)
resizes to the size over `crop_pct`, rounded down, and takes the centre, and squashes from 384 on. LeViT's
resizes the shorter side to the size times 256/224. EfficientNet's subtracts 1 after rescaling where
`rescale_offset` says so, and divides by the deviations once more for a network with its head. MobileViT's
does not normalise. What a file leaves out is its class's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

PROCESSOR_FILE = "preprocessor_config.json"
_KERNELS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""The kernels in the order in which Pillow numbers them."""
_SQUASHED_FROM_SIZE = 384
_DEFAULT_SHARE = 224 / 256
_LEVITS_SHARE = 256 / 224
_SETTINGS_OF_CLASS = {
    "do_pad": "",
    "keep_aspect_ratio": "",
    "do_flip_channel_order": "MobileViT",
    "rescale_offset": "EfficientNet",
}
"""Settings that change photos, each with the only class of which porter follows it; empty for none."""


class _Processor(NamedTuple):
    """Defaults of a class that prepares photos in these steps only.

    Attributes:
        resample: None where versions of the class differ.
        square: whether a size of one number squashes; it is the shorter side's otherwise.
        crops: whether it takes the centre; None where versions differ.
        normalises: whether it takes mean and deviations.
    """

    resample: int | None
    square: bool
    crops: bool | None
    normalises: bool = True


_PROCESSORS: Mapping[str, _Processor] = {
    "Beit": _Processor(3, True, None),
    "Bit": _Processor(3, False, True),
    "CLIP": _Processor(3, False, True),
    "ConvNext": _Processor(None, False, False),
    "DPT": _Processor(None, True, False),
    "DeiT": _Processor(3, True, True),
    "EfficientNet": _Processor(None, True, False),
    "Levit": _Processor(3, False, True),
    "MobileNetV1": _Processor(2, False, True),
    "MobileNetV2": _Processor(2, False, True),
    "MobileViT": _Processor(None, False, True, normalises=False),
    "Pvt": _Processor(None, True, False),
    "Segformer": _Processor(2, True, False),
    "Siglip": _Processor(3, True, False),
    "ViT": _Processor(2, True, False),
}
"""What each image processor does by default, by the name of its class without `ImageProcessor` or
`FeatureExtractor` (as it was called before 4.26). ResNet and RegNet use ConvNeXT's, Swin ViT's, ViTs of
DINOv2 Bit's.
"""


def from_transformers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a processor as a protocol that porter.data.statements reads.

    Raises:
        KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError: it is incomplete, or none that
        porter can prepare.
    """
    name = _class_name(settings)
    settings = {key: value for key, value in settings.items() if value is not None}
    kind = _class_of_processor(name)
    if kind not in _PROCESSORS:
        raise ValueError(
            f"porter does not know what '{name}' does; it knows those of {', '.join(_PROCESSORS)}"
        )
    for key, followed_class in _SETTINGS_OF_CLASS.items():
        if settings.get(key) and kind != followed_class:
            raise ValueError(f"'{key}'")
    if not settings.get("do_resize", True):
        raise ValueError("it resizes nothing")
    defaults = _PROCESSORS[kind]
    steps = _crop_share(settings) if kind == "ConvNext" else _resize_and_crop(settings, kind, defaults)
    kernel = _setting(settings, "resample", defaults.resample)
    if not 0 <= kernel < len(_KERNELS):
        raise ValueError(f"a 'resample' of {kernel}")
    return {
        **steps,
        "interpolation": f"pil_{_KERNELS[kernel]}",
        "crop_rounding": "down",
        "channels": "bgr" if settings.get("do_flip_channel_order", kind == "MobileViT") else "rgb",
        **_parse_scaling(settings, kind, defaults),
    }


def differences_of_transformers(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a processor does otherwise than the protocol of `from_transformers`, which is that of
    transformers' PIL processors.
    """
    name = _class_name(settings)
    resized = (
        f"photos are resized by Pillow, and {name} resizes them by torch: some values differ by a "
        "level or two"
    )
    divides_twice = (
        f"{name} divides twice by the deviations, and porter once by their squares: some values "
        "differ in the last bit"
    )
    differs = {
        resized: name.endswith("Fast"),
        divides_twice: _divides_twice(settings, _class_of_processor(name)),
    }
    return tuple(words for words, holds in differs.items() if holds)


def _class_name(settings: Mapping[str, Any]) -> str:
    """Return the name of the processor's class, as a file of any version has it."""
    return str(settings.get("image_processor_type") or settings["feature_extractor_type"])


def _class_of_processor(name: str) -> str:
    """Return the class of a processor, without what its versions add to the name: `ConvNext` of
    `ConvNextImageProcessorFast`.
    """
    return (
        name.removesuffix("Fast")
        .removesuffix("Pil")
        .removesuffix("ImageProcessor")
        .removesuffix("FeatureExtractor")
    )


def _setting(settings: Mapping[str, Any], key: str, default: Any) -> Any:
    """Return a setting, or its class's default. Raise KeyError if the setting is missing and versions of the
    class have several defaults.
    """
    return settings[key] if default is None else settings.get(key, default)


def _resize_and_crop(settings: Mapping[str, Any], kind: str, defaults: _Processor) -> dict[str, Any]:
    """Return `resize`, `size` and `crop` of a protocol: how photos are resized, and the side of the centre
    that is kept, None for all.

    Raises:
        ValueError: they make a size that porter cannot prepare exactly.
    """
    resize, size = _parse_size(settings["size"], defaults.square)
    if kind == "Levit" and resize == "shorter_side":
        size = int(_LEVITS_SHARE * size)
    if (multiple := settings.get("ensure_multiple_of", 1)) != 1:  # DPT's, by floats of each photo
        # Half way between two multiples, the floats of each photo decide which one the library takes.
        if 2 * size % (2 * multiple) == multiple:
            raise ValueError(f"a size of {size}, half way between multiples of {multiple}")
        size = round(size / multiple) * multiple
    crop = None
    if _setting(settings, "do_center_crop", defaults.crops):
        shape, crop = _parse_size(settings["crop_size"], True)
        if shape != "squash":
            raise ValueError(f"a crop of {settings['crop_size']}")
    return {"resize": resize, "size": size, "crop": crop}


def _crop_share(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resize and the crop of ConvNeXT's processor: a crop of `size`, which is a share of the
    resized photo. From 384 on, photos are squashed to the size instead.
    """
    resize, size = _parse_size(settings["size"], False)
    if resize != "shorter_side" or settings.get("do_center_crop"):
        raise ValueError(f"a size of {settings['size']}")
    if size >= _SQUASHED_FROM_SIZE:
        return {"resize": "squash", "size": size}
    return {"resize": resize, "size": int(size / settings.get("crop_pct", _DEFAULT_SHARE)), "crop": size}


def _parse_size(size: Any, square: bool) -> tuple[str, int]:
    """Return how photos get a size, `squash` or `shorter_side`, and the size. It is stated as one number or
    as a table.
    """
    if isinstance(size, int):
        return "squash" if square else "shorter_side", size
    if set(size) == {"shortest_edge"}:
        return "shorter_side", size["shortest_edge"]
    if set(size) != {"height", "width"} or size["height"] != size["width"]:
        raise ValueError(f"a size of {size}")
    return "squash", size["height"]


def _parse_scaling(settings: Mapping[str, Any], kind: str, defaults: _Processor) -> dict[str, Any]:
    """Return `divide`, `mean` and `std` of a protocol, which computes (pixel / divide - mean) / std. A
    processor multiplies by a factor instead of dividing.
    """
    factor = settings.get("rescale_factor", 1 / 255) if settings.get("do_rescale", True) else 1
    mean = [0.0, 0.0, 0.0]
    std = [1.0, 1.0, 1.0]
    if defaults.normalises and settings.get("do_normalize", True):
        mean, std = list(settings["image_mean"]), list(settings["image_std"])
    if settings.get("rescale_offset"):
        # The offset takes 1 off the scaled pixels.
        mean = [value + 1 for value in mean]
    if _divides_twice(settings, kind):
        std = [value * deviation for value, deviation in zip(std, settings["image_std"], strict=True)]
    return {"divide": round(1 / factor, 9), "mean": mean, "std": std}


def _divides_twice(settings: Mapping[str, Any], kind: str) -> bool:
    """Return whether a processor divides by the deviations once more, as EfficientNet's does for a network
    with its head.
    """
    return kind == "EfficientNet" and bool(settings.get("include_top", True))
