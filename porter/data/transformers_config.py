"""A protocol as the preprocessor_config.json of transformers states it.

Its image processors resize, take the centre, rescale and normalise, each if `do_...` says so (transformers 5: `PilBackend` in
image_processing_backends.py). They round both corners of the centre down (`center_crop` in image_transforms.py); torchvision's
transforms round to even. ConvNeXT's (image_processing_pil_convnext.py) resizes to the size over `crop_pct`, rounded down, and takes
the centre, and squashes from 384 on. What a file leaves out is its class's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

PROCESSOR_FILE = "preprocessor_config.json"
_KERNELS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""By Pillow's number."""
_SQUASHED_FROM = 384
_USUAL_SHARE = 224 / 256
_OTHERWISE = ("do_pad", "do_flip_channel_order", "rescale_offset")


class _Processor(NamedTuple):
    """Defaults of a class that prepares photos in these steps only.

    Attributes:
        resample: None where versions of the class differ.
        square: whether a size of one number squashes; it is the shorter side's otherwise.
        crops: whether it takes the centre.
    """

    resample: int | None
    square: bool
    crops: bool


_PROCESSORS: Mapping[str, _Processor] = {
    "Bit": _Processor(3, False, True),
    "CLIP": _Processor(3, False, True),
    "ConvNext": _Processor(None, False, False),
    "DeiT": _Processor(3, True, True),
    "MobileNetV1": _Processor(2, False, True),
    "MobileNetV2": _Processor(2, False, True),
    "Pvt": _Processor(None, True, False),
    "ViT": _Processor(2, True, False),
}
"""By the name of the class without `ImageProcessor` or `FeatureExtractor` (as it was called before 4.26). ResNet and RegNet
use ConvNeXT's, Swin ViT's."""


def from_transformers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A protocol as porter.data.statements reads it.

    Raises:
        KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError: it is incomplete, or none that porter can prepare.
    """
    name, settings = _name(settings), {key: value for key, value in settings.items() if value is not None}
    kind = name.removesuffix("Fast").removesuffix("Pil").removesuffix("ImageProcessor").removesuffix("FeatureExtractor")
    if kind not in _PROCESSORS:
        raise ValueError(f"porter does not know what '{name}' does; it knows those of {', '.join(_PROCESSORS)}")
    if strange := [key for key in _OTHERWISE if settings.get(key)]:
        raise ValueError(f"'{strange[0]}'")
    if not settings.get("do_resize", True):
        raise ValueError("it resizes nothing")
    usual = _PROCESSORS[kind]
    resample = settings.get("resample", usual.resample)
    if resample is None:
        raise KeyError("resample")
    steps = _centre_of_share(settings) if kind == "ConvNext" else _resized_and_cropped(settings, usual)
    return {**steps, "interpolation": f"pil_{_KERNELS[resample]}", "crop_rounding": "down", **_scaled(settings)}


def unlike_transformers(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What a processor does otherwise than the protocol of `from_transformers`, which is that of transformers' PIL processors."""
    name = _name(settings)
    said = f"photos are resized by Pillow, and {name} resizes them by torch: some values differ by a level or two"
    return (said,) if name.endswith("Fast") else ()


def _name(settings: Mapping[str, Any]) -> str:
    return str(settings.get("image_processor_type") or settings["feature_extractor_type"])


def _resized_and_cropped(settings: Mapping[str, Any], usual: _Processor) -> dict[str, Any]:
    resize, size = _side(settings["size"], usual.square)
    crop = None
    if settings.get("do_center_crop", usual.crops):
        shape, crop = _side(settings["crop_size"], True)
        if shape != "squash":
            raise ValueError(f"a crop of {settings['crop_size']}")
    return {"resize": resize, "size": size, "crop": crop}


def _centre_of_share(settings: Mapping[str, Any]) -> dict[str, Any]:
    resize, size = _side(settings["size"], False)
    if resize != "shorter_side" or settings.get("do_center_crop"):
        raise ValueError(f"a size of {settings['size']}")
    if size >= _SQUASHED_FROM:
        return {"resize": "squash", "size": size}
    return {"resize": resize, "size": int(size / settings.get("crop_pct", _USUAL_SHARE)), "crop": size}


def _side(size: Any, square: bool) -> tuple[str, int]:
    """How photos get a size, which is one number or a table of them."""
    if isinstance(size, int):
        return "squash" if square else "shorter_side", size
    if set(size) == {"shortest_edge"}:
        return "shorter_side", size["shortest_edge"]
    if set(size) != {"height", "width"} or size["height"] != size["width"]:
        raise ValueError(f"a size of {size}")
    return "squash", size["height"]


def _scaled(settings: Mapping[str, Any]) -> dict[str, Any]:
    factor = settings.get("rescale_factor", 1 / 255) if settings.get("do_rescale", True) else 1
    scaled = {"divide": round(1 / factor, 9)}
    return scaled | {name: settings[f"image_{name}"] for name in ("mean", "std")} if settings.get("do_normalize", True) else scaled
