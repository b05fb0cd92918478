"""The closed tables of implementations that porter did not write and proves ports against: by framework and
by the name in a recipe's `reference`, each with its variants and the calls that build them.

A recipe cannot name what is imported or called. Nothing is imported here, so a recipe is compared with these
tables when it is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Call = tuple[str, Mapping[str, Any]]
"""The function or class that builds a variant, and its arguments."""


def _same(*names: str) -> dict[str, Call]:
    """Return the calls of variants that have the same name as the function that builds each."""
    return {name: (name, {}) for name in names}


_DENSENETS = ("densenet121", "densenet161", "densenet169", "densenet201")
_CONVNEXTS = tuple(f"convnext_{size}" for size in ("tiny", "small", "base", "large"))
_EFFICIENTNETS = tuple(f"efficientnet_b{n}" for n in range(8))
_REGNETS: Mapping[str, str] = {
    "regnet_x_400mf": "regnetx_004_tv",
    "regnet_x_800mf": "regnetx_008",
    "regnet_x_1_6gf": "regnetx_016",
    "regnet_x_3_2gf": "regnetx_032",
    "regnet_x_8gf": "regnetx_080",
    "regnet_x_16gf": "regnetx_160",
    "regnet_x_32gf": "regnetx_320",
    "regnet_y_400mf": "regnety_004",
    "regnet_y_800mf": "regnety_008_tv",
    "regnet_y_1_6gf": "regnety_016",
    "regnet_y_3_2gf": "regnety_032",
    "regnet_y_8gf": "regnety_080_tv",
    "regnet_y_16gf": "regnety_160",
    "regnet_y_32gf": "regnety_320",
    "regnet_y_128gf": "regnety_1280",
}
"""torchvision's names of RegNets, with timm's. Where the two round a width otherwise, timm has torchvision's
as `_tv`.
"""
_OTHER_REGNETS: Mapping[str, str] = {
    **{
        f"regnet_{kind}_{size}": f"regnet{kind}_{number}"
        for kind in "xy"
        for size, number in (
            ("200mf", "002"),
            ("600mf", "006"),
            ("4gf", "040"),
            ("6_4gf", "064"),
            ("12gf", "120"),
        )
    },
    "regnet_x_400mf_pycls": "regnetx_004",
    "regnet_y_800mf_pycls": "regnety_008",
    "regnet_y_8gf_pycls": "regnety_080",
}
"""porter's names of those that torchvision lacks."""
_VGGS = ("vgg11", "vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn")
_WITHOUT_AUXILIARIES = {"aux_logits": False, "transform_input": True, "init_weights": False}
_PREPROCESSING = {"include_preprocessing": True}

SCALES_AGAIN = "scales_again"
"""The recipe's option that says whether Keras's EfficientNets have the second Rescaling, which is no argument
of theirs.
"""

KERAS: Mapping[str, Call] = {
    **{
        f"convnext_{size.lower()}": (f"ConvNeXt{size}", {})
        for size in ("Tiny", "Small", "Base", "Large", "XLarge")
    },
    "densenet121": ("DenseNet121", {}),
    "densenet169": ("DenseNet169", {}),
    "densenet201": ("DenseNet201", {}),
    **{f"efficientnet_b{n}": (f"EfficientNetB{n}", {SCALES_AGAIN: True}) for n in range(8)},
    "inception_v3": ("InceptionV3", {}),
    "mobilenet_v1": ("MobileNet", {"alpha": 1.0}),
    **{f"mobilenet_v1_{width}": ("MobileNet", {"alpha": width}) for width in (0.75, 0.5, 0.25)},
    "mobilenet_v2": ("MobileNetV2", {"alpha": 1.0}),
    **{f"mobilenet_v2_{width}": ("MobileNetV2", {"alpha": width}) for width in (1.4, 1.3, 0.75, 0.5, 0.35)},
    "mobilenet_v3_large": ("MobileNetV3Large", {"alpha": 1.0, **_PREPROCESSING}),
    "mobilenet_v3_large_0.75": ("MobileNetV3Large", {"alpha": 0.75, **_PREPROCESSING}),
    "mobilenet_v3_large_minimalistic": ("MobileNetV3Large", {"minimalistic": True, **_PREPROCESSING}),
    "mobilenet_v3_small": ("MobileNetV3Small", {"alpha": 1.0, **_PREPROCESSING}),
    **{
        f"mobilenet_v3_small_{width}": ("MobileNetV3Small", {"alpha": width, **_PREPROCESSING})
        for width in (0.75, 0.5)
    },
    "mobilenet_v3_small_minimalistic": ("MobileNetV3Small", {"minimalistic": True, **_PREPROCESSING}),
    **{f"resnet{layers}": (f"ResNet{layers}", {}) for layers in (50, 101, 152)},
    **{f"resnet{layers}v2": (f"ResNet{layers}V2", {}) for layers in (50, 101, 152)},
    "vgg16": ("VGG16", {}),
    "vgg19": ("VGG19", {}),
    "xception": ("Xception", {}),
}
"""Constructors of keras.applications."""

KERAS_APPLICATIONS: Mapping[str, str] = {"resnext50_32x4d": "ResNeXt50", "resnext101_32x4d": "ResNeXt101"}
"""Functions of keras_applications/resnet_common.py."""

# The widths and `finegrain_classification_mode` as nets/mobilenet_v1.py and nets/mobilenet/mobilenet_v2.py
# name them (mobilenet_v1_075, mobilenet_v2_140, mobilenet_v2_050, mobilenet_v2_035): below 1.0, v2 keeps its
# last layer at 1280.
_FINE = {"finegrain_classification_mode": True}
TF_SLIM: Mapping[str, Call] = {
    "inception_v3": ("inception_v3", {}),
    "mobilenet_v1": ("mobilenet_v1", {"depth_multiplier": 1.0}),
    **{f"mobilenet_v1_{width}": ("mobilenet_v1", {"depth_multiplier": width}) for width in (0.75, 0.5, 0.25)},
    "mobilenet_v2": ("mobilenet_v2", {"depth_multiplier": 1.0}),
    **{f"mobilenet_v2_{width}": ("mobilenet_v2", {"depth_multiplier": width}) for width in (1.4, 1.3)},
    **{
        f"mobilenet_v2_{width}": ("mobilenet_v2", {"depth_multiplier": width, **_FINE})
        for width in (0.75, 0.5, 0.35)
    },
    **{f"resnet{layers}": ("resnet_v1", {"layers": layers}) for layers in (50, 101, 152)},
    **{f"resnet{layers}v2": ("resnet_v2", {"layers": layers}) for layers in (50, 101, 152, 200)},
}
"""Networks of porter.zoos.slim.networks, which has one for each file of slim's code."""

TENSORNETS: Mapping[str, tuple[str, str]] = {
    "inception_v3": ("inceptions", "inception3"),
    "mobilenet_v1": ("mobilenets", "mobilenet100"),
    **{f"mobilenet_v1_{width / 100}": ("mobilenets", f"mobilenet{width}") for width in (75, 50, 25)},
    "mobilenet_v2": ("mobilenets", "mobilenet100v2"),
    **{
        f"mobilenet_v2_{width / 100}": ("mobilenets", f"mobilenet{width}v2")
        for width in (140, 130, 75, 50, 35)
    },
    **{name: ("resnets", name) for name in ("resnet50", "resnet101", "resnet152")},
    **{name: ("resnets", name) for name in ("resnet50v2", "resnet101v2", "resnet152v2", "resnet200v2")},
    "resnext50_32x4d": ("resnets", "resnext50c32"),
    "resnext101_32x4d": ("resnets", "resnext101c32"),
    "resnext101_64x4d": ("resnets", "resnext101c64"),
    "wide_resnet50_2": ("resnets", "wideresnet50"),
}
"""TensorNets' modules and functions."""

TORCHVISION: Mapping[str, Call] = {
    **_same(*_CONVNEXTS, *_DENSENETS, *_EFFICIENTNETS),
    "googlenet": ("googlenet", _WITHOUT_AUXILIARIES),
    "inception_v3": ("inception_v3", _WITHOUT_AUXILIARIES),
    "mnasnet": ("mnasnet1_0", {}),
    "mnasnet_1.3": ("mnasnet1_3", {}),
    "mnasnet_0.75": ("mnasnet0_75", {}),
    "mnasnet_0.5": ("mnasnet0_5", {}),
    "mobilenet_v2": ("mobilenet_v2", {}),
    **{
        f"mobilenet_v2_{width}": ("mobilenet_v2", {"width_mult": width})
        for width in (1.4, 1.3, 0.75, 0.5, 0.35)
    },
    **_same("mobilenet_v3_large", "mobilenet_v3_small"),
    **_same(*_REGNETS),
    **_same("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    **_same("resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d"),
    **_same("shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0"),
    **_same("squeezenet1_0", "squeezenet1_1"),
    **_same(*_VGGS),
    **_same("vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32"),
    **_same("wide_resnet50_2", "wide_resnet101_2"),
}

_BITS = ("r50x1", "r101x1", "r50x3", "r101x3", "r152x2", "r152x4")
TIMM: Mapping[str, Call] = {
    **{f"bit_{size}": (f"resnetv2_{size[1:]}_bit", {}) for size in _BITS},
    **_same(
        *_CONVNEXTS, "convnext_xlarge", *_DENSENETS, *_EFFICIENTNETS, "efficientnet_lite0", "inception_v3"
    ),
    **{f"mixer_{size}_16": (f"mixer_{size}16_224", {}) for size in "sbl"},
    "mnasnet": ("mnasnet_100", {}),
    "mnasnet_1.4": ("mnasnet_140", {}),
    "mnasnet_0.75": ("mnasnet_075", {}),
    "mnasnet_0.5": ("mnasnet_050", {}),
    "mobilenet_v1": ("mobilenetv1_100", {}),
    "mobilenet_v2": ("mobilenetv2_100", {}),
    **{f"mobilenet_v2_{width / 100}": (f"mobilenetv2_{width:03}", {}) for width in (140, 75, 50, 35)},
    "mobilenet_v3_large": ("mobilenetv3_large_100", {}),
    "mobilenet_v3_large_0.75": ("mobilenetv3_large_075", {}),
    "mobilenet_v3_small": ("mobilenetv3_small_100", {}),
    "mobilenet_v3_small_0.75": ("mobilenetv3_small_075", {}),
    "mobilenet_v3_small_0.5": ("mobilenetv3_small_050", {}),
    **{name: (theirs, {}) for name, theirs in {**_REGNETS, **_OTHER_REGNETS}.items()},
    **_same("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", *_VGGS),
    **{
        f"vit_{short}_{patch}": (f"vit_{name}_patch{patch}_224", {})
        for short, name in (("ti", "tiny"), ("s", "small"), ("b", "base"), ("l", "large"))
        for patch in ((16,) if short == "ti" else (16, 32))
    },
    "xception": ("legacy_xception", {}),
}

TIMM_JAX: Mapping[str, Call] = {variant: call for variant, call in TIMM.items() if variant.startswith("vit_")}
"""timm's models that load Google's files of JAX themselves."""
TIMM_BIG_VISION: Mapping[str, Call] = {name: TIMM[name] for name in ("vit_s_16", "vit_b_16", "vit_l_16")}
"""The models that load big_vision's files of DeiT III."""
TIMM_BIT: Mapping[str, Call] = {variant: call for variant, call in TIMM.items() if variant.startswith("bit_")}
"""The models that load Google's Big Transfer."""

_LIKE_TF: Mapping[str, Any] = {"pad_type": "same", "bn_eps": 1e-3}
"""What timm's own tf_ models set."""
TIMM_TF: Mapping[str, Call] = {
    **{name: (f"tf_{name}", {}) for name in (*_EFFICIENTNETS, "efficientnet_lite0")},
    "mobilenet_v1": ("mobilenetv1_100", _LIKE_TF),
    "mobilenet_v2": ("mobilenetv2_100", _LIKE_TF),
    "mobilenet_v2_1.4": ("mobilenetv2_140", _LIKE_TF),
    "mobilenet_v2_0.75": ("mobilenetv2_075", _LIKE_TF),
    "mobilenet_v2_0.5": ("mobilenetv2_050", _LIKE_TF),
    "mobilenet_v2_0.35": ("mobilenetv2_035", _LIKE_TF),
    "mobilenet_v3_large": ("tf_mobilenetv3_large_100", {}),
    "mobilenet_v3_large_0.75": ("tf_mobilenetv3_large_075", {}),
    "mobilenet_v3_large_minimalistic": ("tf_mobilenetv3_large_minimal_100", {}),
    "mobilenet_v3_small": ("tf_mobilenetv3_small_100", {}),
    "mobilenet_v3_small_0.75": ("tf_mobilenetv3_small_075", {}),
    "mobilenet_v3_small_minimalistic": ("tf_mobilenetv3_small_minimal_100", {}),
}
"""timm's models that pad as TensorFlow does."""

WITH_EPSILON = ("efficientnet", "mnasnet", "mobilenet")
"""What the names of timm's models begin with that take `bn_eps` (timm/models/_efficientnet_builder.py,
resolve_bn_args).
"""

OF_ONE_SIZE: Mapping[str, str] = {"torchvision": "image_size", "timm": "img_size"}
"""The argument, by library, that builds its transformers for an input size: they have a position for each
cell.
"""
SIDE = "side"
"""The recipe's option that states this size."""


def takes_any_size(variant: str) -> bool:
    """Return whether a library's model of a variant takes every input size: transformers and mixers are
    built for one.
    """
    return not variant.startswith(("vit_", "mixer_"))


TWINS_OF_TIMM = ("resnetaa50", "resnetblur18", "resnetblur50")
"""timm's models that take the tensors of one of the above, compute something else, and are in no recipe
(timm/models/resnet.py).
"""

UNLIKE_TIMM: Mapping[str, str] = {
    f"resnet{layers}v2": f"its resnetv2_{layers} has strides in the first unit of a stage, and slim's and "
    "Keras's in the last one"
    for layers in (50, 101, 152)
}
"""The reason, by variant, why timm's model of a similar name is not it (timm/models/resnetv2.py)."""

_RESNETS = {
    18: ("basic", [2, 2, 2, 2]),
    34: ("basic", [3, 4, 6, 3]),
    50: ("bottleneck", [3, 4, 6, 3]),
    101: ("bottleneck", [3, 4, 23, 3]),
    152: ("bottleneck", [3, 8, 36, 3]),
}
_CONVNEXT_STAGES = {
    "tiny": ([3, 3, 9, 3], 96),
    "small": ([3, 3, 27, 3], 96),
    "base": ([3, 3, 27, 3], 128),
    "large": ([3, 3, 27, 3], 192),
    "xlarge": ([3, 3, 27, 3], 256),
}
_EFFICIENTNET_FACTORS: tuple[tuple[float, float, int, list[int]], ...] = (
    (1.0, 1.0, 1280, []),
    (1.0, 1.1, 1280, [16]),
    (1.1, 1.2, 1408, [5, 8, 16]),
    (1.2, 1.4, 1536, [5, 18]),
    (1.4, 1.8, 1792, [6]),
    (1.6, 2.2, 2048, [13, 27]),
    (1.8, 2.6, 2304, [31]),
    (2.0, 3.1, 2560, [18]),
)
"""What each of b0 to b7 has: the factors of widths and of depths, the last width, and the units that pad both
sides alike.
"""
_REGNET_STAGES = {
    "x_200mf": ([1, 1, 4, 7], [24, 56, 152, 368], 8),
    "x_400mf": ([1, 2, 7, 12], [32, 64, 160, 400], 16),
    "x_400mf_pycls": ([1, 2, 7, 12], [32, 64, 160, 384], 16),
    "x_600mf": ([1, 3, 5, 7], [48, 96, 240, 528], 24),
    "x_800mf": ([1, 3, 7, 5], [64, 128, 288, 672], 16),
    "x_1_6gf": ([2, 4, 10, 2], [72, 168, 408, 912], 24),
    "x_3_2gf": ([2, 6, 15, 2], [96, 192, 432, 1008], 48),
    "x_4gf": ([2, 5, 14, 2], [80, 240, 560, 1360], 40),
    "x_6_4gf": ([2, 4, 10, 1], [168, 392, 784, 1624], 56),
    "x_8gf": ([2, 5, 15, 1], [80, 240, 720, 1920], 120),
    "x_12gf": ([2, 5, 11, 1], [224, 448, 896, 2240], 112),
    "x_16gf": ([2, 6, 13, 1], [256, 512, 896, 2048], 128),
    "x_32gf": ([2, 7, 13, 1], [336, 672, 1344, 2520], 168),
    "y_200mf": ([1, 1, 4, 7], [24, 56, 152, 368], 8),
    "y_400mf": ([1, 3, 6, 6], [48, 104, 208, 440], 8),
    "y_600mf": ([1, 3, 7, 4], [48, 112, 256, 608], 16),
    "y_800mf": ([1, 3, 8, 2], [64, 144, 320, 784], 16),
    "y_800mf_pycls": ([1, 3, 8, 2], [64, 128, 320, 768], 16),
    "y_1_6gf": ([2, 6, 17, 2], [48, 120, 336, 888], 24),
    "y_3_2gf": ([2, 5, 13, 1], [72, 216, 576, 1512], 24),
    "y_4gf": ([2, 6, 12, 2], [128, 192, 512, 1088], 64),
    "y_6_4gf": ([2, 7, 14, 2], [144, 288, 576, 1296], 72),
    "y_8gf": ([2, 4, 10, 1], [224, 448, 896, 2016], 56),
    "y_8gf_pycls": ([2, 4, 10, 1], [168, 448, 896, 2016], 56),
    "y_12gf": ([2, 5, 11, 1], [224, 448, 896, 2240], 112),
    "y_16gf": ([2, 4, 11, 1], [224, 448, 1232, 3024], 112),
    "y_32gf": ([2, 5, 12, 1], [232, 696, 1392, 3712], 232),
    "y_128gf": ([2, 7, 17, 1], [528, 1056, 2904, 7392], 264),
}
_VITS = {"ti": (192, 12), "s": (384, 12), "b": (768, 12), "l": (1024, 24)}


def _transformers_vit(width: int, depth: int, patch: int) -> dict[str, Any]:
    """Return transformers' settings of a vision transformer; its heads have 64 channels."""
    return {
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
        "patch_size": patch,
    }


def _transformers_mobilenets(tf_padding: bool) -> dict[str, Call]:
    """Return the calls that build MobileNets v1 and v2 of all widths."""
    v1 = {"mobilenet_v1": 1.0, **{f"mobilenet_v1_{width}": width for width in (0.75, 0.5, 0.25)}}
    v2 = {"mobilenet_v2": 1.0, **{f"mobilenet_v2_{width}": width for width in (1.4, 1.3, 0.75, 0.5, 0.35)}}
    widths = {"mobilenet_v1": v1, "mobilenet_v2": v2}
    return {
        variant: (kind, {"depth_multiplier": width, "tf_padding": tf_padding})
        for kind, variants in widths.items()
        for variant, width in variants.items()
    }


def _transformers_bit(layers: int, wider: int) -> dict[str, Any]:
    """Return transformers' settings of a Big Transfer: a ResNet `wider` times as wide."""
    widths = {
        "embedding_size": 64 * wider,
        "hidden_sizes": [width * wider for width in (256, 512, 1024, 2048)],
    }
    return {"depths": _RESNETS[layers][1], **widths}


TRANSFORMERS: Mapping[str, Call] = {
    **{f"bit_{size}": ("bit", _transformers_bit(*map(int, size[1:].split("x")))) for size in _BITS},
    **{
        f"convnext_{size}": (
            "convnext",
            {"depths": depths, "hidden_sizes": [width, 2 * width, 4 * width, 8 * width]},
        )
        for size, (depths, width) in _CONVNEXT_STAGES.items()
    },
    **{
        f"efficientnet_b{number}": (
            "efficientnet",
            {
                "width_coefficient": width,
                "depth_coefficient": depth,
                "hidden_dim": last,
                "depthwise_padding": symmetric_units,
            },
        )
        for number, (width, depth, last, symmetric_units) in enumerate(_EFFICIENTNET_FACTORS)
    },
    **_transformers_mobilenets(tf_padding=True),
    **{
        f"regnet_{name}": (
            "regnet",
            {"layer_type": name[0], "depths": depths, "hidden_sizes": widths, "groups_width": group},
        )
        for name, (depths, widths, group) in _REGNET_STAGES.items()
    },
    **{
        f"resnet{layers}": (
            "resnet",
            {
                "layer_type": kind,
                "depths": depths,
                "hidden_sizes": [64, 128, 256, 512] if kind == "basic" else [256, 512, 1024, 2048],
            },
        )
        for layers, (kind, depths) in _RESNETS.items()
    },
    **{
        f"vit_{size}_{patch}": ("vit", _transformers_vit(*measures, patch))
        for size, measures in _VITS.items()
        for patch in ((16,) if size == "ti" else (16, 32))
    },
}
"""transformers' `model_type`, and the settings of config.json that make a variant of it."""
TRANSFORMERS_TORCH: Mapping[str, Call] = _transformers_mobilenets(tf_padding=False)
"""The models that pad as torch does."""

REFERENCES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "tf": {
        "keras": KERAS,
        "keras_applications": KERAS_APPLICATIONS,
        "tf_slim": TF_SLIM,
        "tensornets": TENSORNETS,
        "timm_bit": TIMM_BIT,
    },
    "torch": {
        "torchvision": TORCHVISION,
        "timm": TIMM,
        "timm_tf": TIMM_TF,
        "transformers": TRANSFORMERS,
        "transformers_torch": TRANSFORMERS_TORCH,
    },
    "jax": {"timm_jax": TIMM_JAX, "timm_big_vision": TIMM_BIG_VISION},
    "mxnet": {},
    "caffe": {},
}
"""The variants by framework and reference."""

STOCK: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "tf": {"keras": ("keras",)},
    "torch": {"torchvision": ("torchvision",), "timm": ("timm", "timm_tf")},
}
"""The libraries whose names `--stock` writes, by framework, that of the default zoo first; and the zoos by
library whose functions its models compute.
"""

DEFAULT_ZOOS: Mapping[str, str] = {
    "tf": "keras",
    "torch": "torchvision",
    "jax": "vit_jax",
    "mxnet": "gluon",
    "caffe": "caffe",
}
"""The zoo, by framework, that its name stands for after `--from`, and whose library has its stock classes."""
