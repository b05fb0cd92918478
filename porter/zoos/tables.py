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

KERAS: Mapping[str, Call] = {
    "densenet121": ("DenseNet121", {}),
    "densenet169": ("DenseNet169", {}),
    "densenet201": ("DenseNet201", {}),
    "inception_v3": ("InceptionV3", {}),
    "mobilenet_v1": ("MobileNet", {"alpha": 1.0}),
    "mobilenet_v1_0.75": ("MobileNet", {"alpha": 0.75}),
    "mobilenet_v1_0.5": ("MobileNet", {"alpha": 0.5}),
    "mobilenet_v1_0.25": ("MobileNet", {"alpha": 0.25}),
    "mobilenet_v2": ("MobileNetV2", {"alpha": 1.0}),
    "mobilenet_v2_1.4": ("MobileNetV2", {"alpha": 1.4}),
    "mobilenet_v2_1.3": ("MobileNetV2", {"alpha": 1.3}),
    "mobilenet_v2_0.75": ("MobileNetV2", {"alpha": 0.75}),
    "mobilenet_v2_0.5": ("MobileNetV2", {"alpha": 0.5}),
    "mobilenet_v2_0.35": ("MobileNetV2", {"alpha": 0.35}),
    "mobilenet_v3_large": ("MobileNetV3Large", {"alpha": 1.0, "include_preprocessing": True}),
    "mobilenet_v3_large_0.75": ("MobileNetV3Large", {"alpha": 0.75, "include_preprocessing": True}),
    "mobilenet_v3_large_minimalistic": ("MobileNetV3Large", {"minimalistic": True, "include_preprocessing": True}),
    "mobilenet_v3_small": ("MobileNetV3Small", {"alpha": 1.0, "include_preprocessing": True}),
    "mobilenet_v3_small_0.75": ("MobileNetV3Small", {"alpha": 0.75, "include_preprocessing": True}),
    "mobilenet_v3_small_0.5": ("MobileNetV3Small", {"alpha": 0.5, "include_preprocessing": True}),
    "mobilenet_v3_small_minimalistic": ("MobileNetV3Small", {"minimalistic": True, "include_preprocessing": True}),
    "resnet50": ("ResNet50", {}),
    "resnet101": ("ResNet101", {}),
    "resnet152": ("ResNet152", {}),
    "resnet50v2": ("ResNet50V2", {}),
    "resnet101v2": ("ResNet101V2", {}),
    "resnet152v2": ("ResNet152V2", {}),
    "vgg16": ("VGG16", {}),
    "vgg19": ("VGG19", {}),
    "xception": ("Xception", {}),
}
"""Constructors of keras.applications."""

KERAS_APPLICATIONS: Mapping[str, str] = {"resnext50_32x4d": "ResNeXt50", "resnext101_32x4d": "ResNeXt101"}
"""Functions of keras_applications/resnet_common.py."""

# The widths and `finegrain_classification_mode` as nets/mobilenet_v1.py and nets/mobilenet/mobilenet_v2.py name them
# (mobilenet_v1_075, mobilenet_v2_140, mobilenet_v2_050, mobilenet_v2_035): below 1.0, v2 keeps its last layer at 1280.
TF_SLIM: Mapping[str, Call] = {
    "inception_v3": ("inception_v3", {}),
    "mobilenet_v1": ("mobilenet_v1", {"depth_multiplier": 1.0}),
    "mobilenet_v1_0.75": ("mobilenet_v1", {"depth_multiplier": 0.75}),
    "mobilenet_v1_0.5": ("mobilenet_v1", {"depth_multiplier": 0.5}),
    "mobilenet_v1_0.25": ("mobilenet_v1", {"depth_multiplier": 0.25}),
    "mobilenet_v2": ("mobilenet_v2", {"depth_multiplier": 1.0}),
    "mobilenet_v2_1.4": ("mobilenet_v2", {"depth_multiplier": 1.4}),
    "mobilenet_v2_1.3": ("mobilenet_v2", {"depth_multiplier": 1.3}),
    "mobilenet_v2_0.75": ("mobilenet_v2", {"depth_multiplier": 0.75, "finegrain_classification_mode": True}),
    "mobilenet_v2_0.5": ("mobilenet_v2", {"depth_multiplier": 0.5, "finegrain_classification_mode": True}),
    "mobilenet_v2_0.35": ("mobilenet_v2", {"depth_multiplier": 0.35, "finegrain_classification_mode": True}),
    "resnet50": ("resnet_v1", {"layers": 50}),
    "resnet101": ("resnet_v1", {"layers": 101}),
    "resnet152": ("resnet_v1", {"layers": 152}),
    "resnet50v2": ("resnet_v2", {"layers": 50}),
    "resnet101v2": ("resnet_v2", {"layers": 101}),
    "resnet152v2": ("resnet_v2", {"layers": 152}),
    "resnet200v2": ("resnet_v2", {"layers": 200}),
}
"""Networks of porter.zoos.slim.networks, which has one for each file of slim's code."""

TENSORNETS: Mapping[str, tuple[str, str]] = {
    "inception_v3": ("inceptions", "inception3"),
    "mobilenet_v1": ("mobilenets", "mobilenet100"),
    "mobilenet_v1_0.75": ("mobilenets", "mobilenet75"),
    "mobilenet_v1_0.5": ("mobilenets", "mobilenet50"),
    "mobilenet_v1_0.25": ("mobilenets", "mobilenet25"),
    "mobilenet_v2": ("mobilenets", "mobilenet100v2"),
    "mobilenet_v2_1.4": ("mobilenets", "mobilenet140v2"),
    "mobilenet_v2_1.3": ("mobilenets", "mobilenet130v2"),
    "mobilenet_v2_0.75": ("mobilenets", "mobilenet75v2"),
    "mobilenet_v2_0.5": ("mobilenets", "mobilenet50v2"),
    "mobilenet_v2_0.35": ("mobilenets", "mobilenet35v2"),
    "resnet50": ("resnets", "resnet50"),
    "resnet101": ("resnets", "resnet101"),
    "resnet152": ("resnets", "resnet152"),
    "resnet50v2": ("resnets", "resnet50v2"),
    "resnet101v2": ("resnets", "resnet101v2"),
    "resnet152v2": ("resnets", "resnet152v2"),
    "resnet200v2": ("resnets", "resnet200v2"),
    "resnext50_32x4d": ("resnets", "resnext50c32"),
    "resnext101_32x4d": ("resnets", "resnext101c32"),
    "resnext101_64x4d": ("resnets", "resnext101c64"),
    "wide_resnet50_2": ("resnets", "wideresnet50"),
}
"""TensorNets' modules and functions."""

TORCHVISION: Mapping[str, Call] = {
    "densenet121": ("densenet121", {}),
    "densenet161": ("densenet161", {}),
    "densenet169": ("densenet169", {}),
    "densenet201": ("densenet201", {}),
    "googlenet": ("googlenet", {"aux_logits": False, "transform_input": True, "init_weights": False}),
    "inception_v3": ("inception_v3", {"aux_logits": False, "transform_input": True, "init_weights": False}),
    "mnasnet": ("mnasnet1_0", {}),
    "mnasnet_1.3": ("mnasnet1_3", {}),
    "mnasnet_0.75": ("mnasnet0_75", {}),
    "mnasnet_0.5": ("mnasnet0_5", {}),
    "mobilenet_v2": ("mobilenet_v2", {}),
    "mobilenet_v2_1.4": ("mobilenet_v2", {"width_mult": 1.4}),
    "mobilenet_v2_1.3": ("mobilenet_v2", {"width_mult": 1.3}),
    "mobilenet_v2_0.75": ("mobilenet_v2", {"width_mult": 0.75}),
    "mobilenet_v2_0.5": ("mobilenet_v2", {"width_mult": 0.5}),
    "mobilenet_v2_0.35": ("mobilenet_v2", {"width_mult": 0.35}),
    "mobilenet_v3_large": ("mobilenet_v3_large", {}),
    "mobilenet_v3_small": ("mobilenet_v3_small", {}),
    "resnet18": ("resnet18", {}),
    "resnet34": ("resnet34", {}),
    "resnet50": ("resnet50", {}),
    "resnet101": ("resnet101", {}),
    "resnet152": ("resnet152", {}),
    "resnext50_32x4d": ("resnext50_32x4d", {}),
    "resnext101_32x8d": ("resnext101_32x8d", {}),
    "resnext101_64x4d": ("resnext101_64x4d", {}),
    "shufflenet_v2_x0_5": ("shufflenet_v2_x0_5", {}),
    "shufflenet_v2_x1_0": ("shufflenet_v2_x1_0", {}),
    "shufflenet_v2_x1_5": ("shufflenet_v2_x1_5", {}),
    "shufflenet_v2_x2_0": ("shufflenet_v2_x2_0", {}),
    "squeezenet1_0": ("squeezenet1_0", {}),
    "squeezenet1_1": ("squeezenet1_1", {}),
    "vgg11": ("vgg11", {}),
    "vgg13": ("vgg13", {}),
    "vgg16": ("vgg16", {}),
    "vgg19": ("vgg19", {}),
    "vgg11_bn": ("vgg11_bn", {}),
    "vgg13_bn": ("vgg13_bn", {}),
    "vgg16_bn": ("vgg16_bn", {}),
    "vgg19_bn": ("vgg19_bn", {}),
    "wide_resnet50_2": ("wide_resnet50_2", {}),
    "wide_resnet101_2": ("wide_resnet101_2", {}),
}

TIMM: Mapping[str, Call] = {
    "densenet121": ("densenet121", {}),
    "densenet161": ("densenet161", {}),
    "densenet169": ("densenet169", {}),
    "densenet201": ("densenet201", {}),
    "efficientnet_lite0": ("efficientnet_lite0", {}),
    "inception_v3": ("inception_v3", {}),
    "mnasnet": ("mnasnet_100", {}),
    "mnasnet_1.4": ("mnasnet_140", {}),
    "mnasnet_0.75": ("mnasnet_075", {}),
    "mnasnet_0.5": ("mnasnet_050", {}),
    "mobilenet_v2": ("mobilenetv2_100", {}),
    "mobilenet_v2_1.4": ("mobilenetv2_140", {}),
    "mobilenet_v2_0.75": ("mobilenetv2_075", {}),
    "mobilenet_v2_0.5": ("mobilenetv2_050", {}),
    "mobilenet_v2_0.35": ("mobilenetv2_035", {}),
    "mobilenet_v3_large": ("mobilenetv3_large_100", {}),
    "mobilenet_v3_large_0.75": ("mobilenetv3_large_075", {}),
    "mobilenet_v3_small": ("mobilenetv3_small_100", {}),
    "mobilenet_v3_small_0.75": ("mobilenetv3_small_075", {}),
    "mobilenet_v3_small_0.5": ("mobilenetv3_small_050", {}),
    "resnet18": ("resnet18", {}),
    "resnet34": ("resnet34", {}),
    "resnet50": ("resnet50", {}),
    "resnet101": ("resnet101", {}),
    "resnet152": ("resnet152", {}),
    "vgg11": ("vgg11", {}),
    "vgg13": ("vgg13", {}),
    "vgg16": ("vgg16", {}),
    "vgg19": ("vgg19", {}),
    "vgg11_bn": ("vgg11_bn", {}),
    "vgg13_bn": ("vgg13_bn", {}),
    "vgg16_bn": ("vgg16_bn", {}),
    "vgg19_bn": ("vgg19_bn", {}),
    "xception": ("legacy_xception", {}),
}

TIMM_TF: Mapping[str, Call] = {
    "efficientnet_lite0": ("tf_efficientnet_lite0", {}),
    "mobilenet_v3_large": ("tf_mobilenetv3_large_100", {}),
    "mobilenet_v3_large_0.75": ("tf_mobilenetv3_large_075", {}),
    "mobilenet_v3_large_minimalistic": ("tf_mobilenetv3_large_minimal_100", {}),
    "mobilenet_v3_small": ("tf_mobilenetv3_small_100", {}),
    "mobilenet_v3_small_0.75": ("tf_mobilenetv3_small_075", {}),
    "mobilenet_v3_small_minimalistic": ("tf_mobilenetv3_small_minimal_100", {}),
}
"""timm's models that pad as TensorFlow does."""

REFERENCES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "tf": {"keras": KERAS, "keras_applications": KERAS_APPLICATIONS, "tf_slim": TF_SLIM, "tensornets": TENSORNETS},
    "torch": {"torchvision": TORCHVISION, "timm": TIMM, "timm_tf": TIMM_TF},
}
"""By framework and reference, the variants."""

DEFAULT_ZOOS: Mapping[str, str] = {"tf": "keras", "torch": "torchvision"}
"""By framework, the zoo that its name stands for after `--from`, and whose library has its stock classes."""
