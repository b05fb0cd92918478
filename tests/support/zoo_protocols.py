"""What each zoo's own code makes of a photo for each of its protocols: by the zoo's library, or by the steps
of its code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.runtime import import_keras
from porter.zoos.transformers import import_transformers
from tests.support import originals
from tests.support.originals import Pixels, Values
from tests.support.protocol_guide import Use, uses

TIMM = {  # by a variant whose protocol is its own, or by architecture
    ("bit", "timm"): "resnetv2_50x1_bit.goog_distilled_in1k",
    ("bit_r101x1", "timm"): "resnetv2_101x1_bit.goog_in21k_ft_in1k",
    ("bit_r152x4", "timm"): "resnetv2_152x4_bit.goog_in21k_ft_in1k",
    ("convnext", "timm"): "convnext_tiny.fb_in1k",
    ("densenet", "timm"): "densenet121.ra_in1k",
    **{
        (f"efficientnet_b{n}", "timm"): f"efficientnet_b{n}{tag}"
        for n, tag in enumerate(
            (".ra_in1k", ".ft_in1k", ".ra_in1k", ".ra2_in1k", ".ra2_in1k", ".sw_in12k_ft_in1k", "", "")
        )
    },
    **{(f"efficientnet_b{n}", "timm_tf"): f"tf_efficientnet_b{n}.aa_in1k" for n in range(8)},
    ("efficientnet_lite", "timm"): "efficientnet_lite0.ra_in1k",
    ("efficientnet_lite", "timm_tf"): "tf_efficientnet_lite0.in1k",
    ("inception_v3", "timm"): "inception_v3.tv_in1k",
    ("inception_v3", "timm_tf"): "inception_v3.tf_in1k",
    ("mlp_mixer", "timm"): "mixer_b16_224.goog_in21k_ft_in1k",
    ("mnasnet", "timm"): "mnasnet_100.rmsp_in1k",
    ("mobilenet_v1", "timm"): "mobilenetv1_100.ra4_e3600_r224_in1k",
    ("mobilenet_v1", "timm_tf"): "mobilenetv1_100.ra4_e3600_r224_in1k",
    ("mobilenet_v2", "timm"): "mobilenetv2_100.ra_in1k",
    ("mobilenet_v2", "timm_tf"): "mobilenetv2_100.ra_in1k",
    ("mobilenet_v3", "timm"): "mobilenetv3_large_100.ra_in1k",
    ("mobilenet_v3", "timm_tf"): "tf_mobilenetv3_large_100.in1k",
    ("regnet", "timm"): "regnety_016.tv2_in1k",
    ("regnet_x_200mf", "timm"): "regnetx_002.pycls_in1k",
    ("resnet_v1", "timm"): "resnet50.gluon_in1k",
    ("vgg", "timm"): "vgg16.tv_in1k",
    ("vit", "timm"): "vit_base_patch16_224.augreg_in21k_ft_in1k",
    ("vit", "timm_384"): "vit_base_patch16_384.augreg_in21k_ft_in1k",
    ("xception", "timm"): "legacy_xception.tf_in1k",
}
TORCHVISION = {
    "torchvision": "V1",
    "torchvision_v2": "V2",
    "torchvision_swag": "SWAG_E2E_V1",
    "torchvision_swag_linear": "SWAG_LINEAR_V1",
}
_CONVNEXTS: tuple[str, dict[str, Any]] = (
    "ConvNext",
    {
        "size": {"shortest_edge": 224},
        "crop_pct": 0.875,
        "resample": 3,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    },
)
# An image processor, and what the folders of the authors say of it.
TRANSFORMERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bit": (
        "Bit",
        {
            "size": {"shortest_edge": 448},
            "crop_size": {"height": 448, "width": 448},
            "resample": 2,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
    ),
    "convnext": _CONVNEXTS,
    "mobilenet_v1": ("MobileNetV1", {}),
    "mobilenet_v2": ("MobileNetV2", {}),
    "regnet": _CONVNEXTS,
    "resnet_v1": _CONVNEXTS,
    "vit": ("ViT", {}),
}
DEIT = {"input_size": (3, 224, 224), "crop_pct": 0.875, "interpolation": "bicubic"}
"""facebookresearch/deit, datasets.py: torchvision's transforms with ImageNet's mean and deviation, as timm
makes them too.
"""
HALVES = (0.5, 0.5, 0.5)


def big_vision_deit3(size: int) -> dict[str, Any]:
    """The same with --eval-crop-ratio 1.0, for pixels from -1 to 1."""
    scaling = {"mean": HALVES, "std": HALVES}
    return {"input_size": (3, size, size), "crop_pct": 1.0, "interpolation": "bicubic", **scaling}


TENSORNETS = {
    "inception_v3": "tfslim",
    "mobilenet_v1": "tfslim",
    "mobilenet_v2": "tfslim",
    "resnet_v1": "keras_resnet",
    "resnet_v2": "tfslim",
    "resnet200v2": "fb",
    "resnext": "fb",
    "wide_resnet": "wrn",
}
KERAS = {
    "convnext": "convnext",
    "densenet": "densenet",
    "efficientnet": "efficientnet",
    "inception_v3": "inception_v3",
    "mobilenet_v1": "mobilenet",
    "mobilenet_v2": "mobilenet_v2",
    "mobilenet_v3": "mobilenet_v3",
    "resnet_v1": "resnet",
    "resnet_v2": "resnet_v2",
    "vgg": "vgg16",
    "xception": "xception",
}


OPENCV = [use for use in uses() if use.protocol.interpolation == "opencv_cubic"]


def input_of(file: Path, use: Use) -> Values:
    """The input 3 x rows x columns that a zoo's code makes of a JPEG."""
    if use in OPENCV:
        import cv2

        assert use.protocol.crop is not None
        pixels = originals.tensornets_pixels(file, use.protocol.size, cv2)
        return scaled(use, originals.tensornets_crops(pixels, use.protocol.crop)[0])
    if use.protocol.interpolation == "tf1_bilinear":
        tf: Any = import_tensorflow()
        return original(
            use,
            tf.io.decode_jpeg(tf.io.read_file(str(file)), channels=3, dct_method="INTEGER_ACCURATE").numpy(),
        )
    return original(use, Image.open(file).convert("RGB"))


def original(use: Use, image: Image.Image | Pixels) -> Values:
    """The input 3 x rows x columns of the zoos that do not resample with OpenCV's cubic."""
    protocol = use.protocol
    channels_last = _channels_last(use, np.asarray(image))
    if channels_last is not None:
        return channels_last.transpose(2, 0, 1)
    assert isinstance(image, Image.Image)
    if use.zoo in TORCHVISION:
        return originals.torchvision_preset(use.variants[0], f"IMAGENET1K_{TORCHVISION[use.zoo]}")(image)
    if use.zoo.startswith("transformers"):
        kind, settings = TRANSFORMERS[use.architecture]
        made: Values = getattr(import_transformers(), f"{kind}ImageProcessorPil")(**settings)(image)[
            "pixel_values"
        ][0]
        return made
    if use.zoo == "deit":
        return originals.timm_transform(DEIT)(image)
    if use.zoo.startswith("big_vision_deit3"):
        return originals.timm_transform(big_vision_deit3(protocol.size))(image)
    if use.zoo == "big_transfer":
        return originals.big_transfer(image, protocol.size)
    if use.zoo == "akamaster":
        return originals.akamaster_preset(image)
    return originals.timm_preset(TIMM.get((use.variants[0], use.zoo)) or TIMM[use.architecture, use.zoo])(
        image
    )


def _channels_last(use: Use, pixels: Pixels) -> Values | None:
    """The input rows x columns x 3 of the zoos that compute it in this order; None for others."""
    protocol = use.protocol
    size, crop = protocol.size, protocol.crop or 0
    if protocol.interpolation == "tf1_bilinear":
        if protocol.resize == "squash":
            return originals.slim_inception(pixels, size, protocol.central_fraction or 1)
        return originals.slim_vgg(pixels, size, crop)
    if use.zoo.startswith("big_vision") and not use.zoo.startswith("big_vision_deit3"):
        return originals.big_vision(pixels, size, crop)
    if use.zoo.startswith("vit_jax"):
        return originals.vit_jax(pixels, size)
    if use.zoo == "flax_examples":
        return originals.flax_examples(pixels, size)
    if use.zoo == "gluon":
        return originals.gluon(pixels, size, crop)
    if use.zoo == "caffe":
        return originals.caffe(pixels, size, crop, protocol.mean, protocol.std[0])
    return None


def scaled(use: Use, pixels: Pixels) -> Values:
    """Rows x columns x RGB as the zoos that resample with OpenCV scale them: 3 x rows x columns."""
    if use.zoo == "tensornets":
        return originals.tensornets_scaled(TENSORNETS[use.architecture], pixels).transpose(2, 0, 1)
    applications, values = import_keras().applications, pixels.astype(np.float32)
    if use.architecture in KERAS:
        found: Values = getattr(applications, KERAS[use.architecture]).preprocess_input(values)
    else:  # keras-applications' ResNeXt, which Keras 3 no longer has
        found = applications.imagenet_utils.preprocess_input(values, mode="torch")
    return found.transpose(2, 0, 1)
