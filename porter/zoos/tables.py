"""The closed tables of implementations that porter did not write and proves ports against: by framework and by the name in a
recipe's `reference`, each with its variants and the calls that build them.

A recipe cannot name what is imported or called. Nothing is imported here, so a recipe is compared with these tables when it is
loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Call = tuple[str, Mapping[str, Any]]
"""The function or class that builds a variant, and its arguments."""


def _same(*names: str) -> dict[str, Call]:
    """Variants of the same name as the function that builds each."""
    return {name: (name, {}) for name in names}


_DENSENETS = ("densenet121", "densenet161", "densenet169", "densenet201")
_VGGS = ("vgg11", "vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn")
_WITHOUT_AUXILIARIES = {"aux_logits": False, "transform_input": True, "init_weights": False}
_PREPROCESSING = {"include_preprocessing": True}

KERAS: Mapping[str, Call] = {
    "densenet121": ("DenseNet121", {}),
    "densenet169": ("DenseNet169", {}),
    "densenet201": ("DenseNet201", {}),
    "inception_v3": ("InceptionV3", {}),
    "mobilenet_v1": ("MobileNet", {"alpha": 1.0}),
    **{f"mobilenet_v1_{width}": ("MobileNet", {"alpha": width}) for width in (0.75, 0.5, 0.25)},
    "mobilenet_v2": ("MobileNetV2", {"alpha": 1.0}),
    **{f"mobilenet_v2_{width}": ("MobileNetV2", {"alpha": width}) for width in (1.4, 1.3, 0.75, 0.5, 0.35)},
    "mobilenet_v3_large": ("MobileNetV3Large", {"alpha": 1.0, **_PREPROCESSING}),
    "mobilenet_v3_large_0.75": ("MobileNetV3Large", {"alpha": 0.75, **_PREPROCESSING}),
    "mobilenet_v3_large_minimalistic": ("MobileNetV3Large", {"minimalistic": True, **_PREPROCESSING}),
    "mobilenet_v3_small": ("MobileNetV3Small", {"alpha": 1.0, **_PREPROCESSING}),
    **{f"mobilenet_v3_small_{width}": ("MobileNetV3Small", {"alpha": width, **_PREPROCESSING}) for width in (0.75, 0.5)},
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

# The widths and `finegrain_classification_mode` as nets/mobilenet_v1.py and nets/mobilenet/mobilenet_v2.py name them
# (mobilenet_v1_075, mobilenet_v2_140, mobilenet_v2_050, mobilenet_v2_035): below 1.0, v2 keeps its last layer at 1280.
_FINE = {"finegrain_classification_mode": True}
TF_SLIM: Mapping[str, Call] = {
    "inception_v3": ("inception_v3", {}),
    "mobilenet_v1": ("mobilenet_v1", {"depth_multiplier": 1.0}),
    **{f"mobilenet_v1_{width}": ("mobilenet_v1", {"depth_multiplier": width}) for width in (0.75, 0.5, 0.25)},
    "mobilenet_v2": ("mobilenet_v2", {"depth_multiplier": 1.0}),
    **{f"mobilenet_v2_{width}": ("mobilenet_v2", {"depth_multiplier": width}) for width in (1.4, 1.3)},
    **{f"mobilenet_v2_{width}": ("mobilenet_v2", {"depth_multiplier": width, **_FINE}) for width in (0.75, 0.5, 0.35)},
    **{f"resnet{layers}": ("resnet_v1", {"layers": layers}) for layers in (50, 101, 152)},
    **{f"resnet{layers}v2": ("resnet_v2", {"layers": layers}) for layers in (50, 101, 152, 200)},
}
"""Networks of porter.zoos.slim.networks, which has one for each file of slim's code."""

TENSORNETS: Mapping[str, tuple[str, str]] = {
    "inception_v3": ("inceptions", "inception3"),
    "mobilenet_v1": ("mobilenets", "mobilenet100"),
    **{f"mobilenet_v1_{width / 100}": ("mobilenets", f"mobilenet{width}") for width in (75, 50, 25)},
    "mobilenet_v2": ("mobilenets", "mobilenet100v2"),
    **{f"mobilenet_v2_{width / 100}": ("mobilenets", f"mobilenet{width}v2") for width in (140, 130, 75, 50, 35)},
    **{name: ("resnets", name) for name in ("resnet50", "resnet101", "resnet152")},
    **{name: ("resnets", name) for name in ("resnet50v2", "resnet101v2", "resnet152v2", "resnet200v2")},
    "resnext50_32x4d": ("resnets", "resnext50c32"),
    "resnext101_32x4d": ("resnets", "resnext101c32"),
    "resnext101_64x4d": ("resnets", "resnext101c64"),
    "wide_resnet50_2": ("resnets", "wideresnet50"),
}
"""TensorNets' modules and functions."""

TORCHVISION: Mapping[str, Call] = {
    **_same(*_DENSENETS),
    "googlenet": ("googlenet", _WITHOUT_AUXILIARIES),
    "inception_v3": ("inception_v3", _WITHOUT_AUXILIARIES),
    "mnasnet": ("mnasnet1_0", {}),
    "mnasnet_1.3": ("mnasnet1_3", {}),
    "mnasnet_0.75": ("mnasnet0_75", {}),
    "mnasnet_0.5": ("mnasnet0_5", {}),
    "mobilenet_v2": ("mobilenet_v2", {}),
    **{f"mobilenet_v2_{width}": ("mobilenet_v2", {"width_mult": width}) for width in (1.4, 1.3, 0.75, 0.5, 0.35)},
    **_same("mobilenet_v3_large", "mobilenet_v3_small"),
    **_same("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    **_same("resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d"),
    **_same("shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0"),
    **_same("squeezenet1_0", "squeezenet1_1"),
    **_same(*_VGGS),
    **_same("vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32"),
    **_same("wide_resnet50_2", "wide_resnet101_2"),
}

TIMM: Mapping[str, Call] = {
    **_same(*_DENSENETS, "efficientnet_lite0", "inception_v3"),
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

_LIKE_TF: Mapping[str, Any] = {"pad_type": "same", "bn_eps": 1e-3}
"""What timm's own tf_ models set."""
TIMM_TF: Mapping[str, Call] = {
    "efficientnet_lite0": ("tf_efficientnet_lite0", {}),
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
"""What the names of timm's models begin with that take `bn_eps` (timm/models/_efficientnet_builder.py, resolve_bn_args)."""

OF_ONE_SIZE: Mapping[str, str] = {"torchvision": "image_size", "timm": "img_size"}
"""By library, the argument that its transformers are built for an input of a size with: they have a position for each cell."""
SIDE = "side"
"""The recipe's option that states this size."""


def takes_any_size(variant: str) -> bool:
    """Whether a library's model of a variant is right at every input size."""
    return not variant.startswith("vit_")


TWINS_OF_TIMM = ("resnetaa50", "resnetblur18", "resnetblur50")
"""timm's models that take the tensors of one of the above, compute something else, and are in no recipe (timm/models/resnet.py)."""

UNLIKE_TIMM: Mapping[str, str] = {
    f"resnet{layers}v2": f"its resnetv2_{layers} has strides in the first unit of a stage, and slim's and Keras's in the last one"
    for layers in (50, 101, 152)
}
"""By variant, why timm's model of a similar name is not it (timm/models/resnetv2.py)."""

REFERENCES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "tf": {"keras": KERAS, "keras_applications": KERAS_APPLICATIONS, "tf_slim": TF_SLIM, "tensornets": TENSORNETS},
    "torch": {"torchvision": TORCHVISION, "timm": TIMM, "timm_tf": TIMM_TF},
    "jax": {"timm_jax": TIMM_JAX},
    "mxnet": {},
    "caffe": {},
}
"""By framework and reference, the variants."""

STOCK: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "tf": {"keras": ("keras",)},
    "torch": {"torchvision": ("torchvision",), "timm": ("timm", "timm_tf")},
}
"""By framework, the libraries whose names `--stock` writes, that of the default zoo first; by library, the zoos whose functions its
models compute.
"""

DEFAULT_ZOOS: Mapping[str, str] = {"tf": "keras", "torch": "torchvision", "jax": "vit_jax", "mxnet": "gluon", "caffe": "caffe"}
"""By framework, the zoo that its name stands for after `--from`, and whose library has its stock classes."""
