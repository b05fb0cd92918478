"""What settings of libraries' models mean in porter's recipes, and what they are where a file has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from porter.zoos.tables import SIDE

TRANSFORMERS_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "bit": {
        "embedding_size": 64,
        "hidden_sizes": [256, 512, 1024, 2048],
        "depths": [3, 4, 6, 3],
        "layer_type": "preactivation",
        "hidden_act": "relu",
        "global_padding": None,
        "num_groups": 32,
        "embedding_dynamic_padding": False,
        "output_stride": 32,
        "width_factor": 1,
    },
    "convnext": {
        "hidden_sizes": [96, 192, 384, 768],
        "depths": [3, 3, 9, 3],
        "patch_size": 4,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
    },
    "efficientnet": {
        "width_coefficient": 2.0,
        "depth_coefficient": 3.1,
        "depth_divisor": 8,
        "kernel_sizes": [3, 3, 5, 3, 5, 5, 3],
        "in_channels": [32, 16, 24, 40, 80, 112, 192],
        "out_channels": [16, 24, 40, 80, 112, 192, 320],
        "depthwise_padding": [],
        "strides": [1, 2, 2, 2, 1, 2, 1],
        "num_block_repeats": [1, 2, 2, 3, 3, 4, 1],
        "expand_ratios": [1, 6, 6, 6, 6, 6, 6],
        "squeeze_expansion_ratio": 0.25,
        "hidden_dim": 2560,
        "pooling_type": "mean",
        "batch_norm_eps": 1e-3,
        "hidden_act": "swish",
    },
    "mobilenet_v1": {
        "depth_multiplier": 1.0,
        "min_depth": 8,
        "tf_padding": True,
        "layer_norm_eps": 1e-3,
        "hidden_act": "relu6",
    },
    "mobilenet_v2": {
        "depth_multiplier": 1.0,
        "min_depth": 8,
        "depth_divisible_by": 8,
        "expand_ratio": 6.0,
        "output_stride": 32,
        "first_layer_is_expansion": True,
        "finegrained_output": True,
        "tf_padding": True,
        "layer_norm_eps": 1e-3,
        "hidden_act": "relu6",
    },
    "regnet": {
        "embedding_size": 32,
        "hidden_sizes": [128, 192, 512, 1088],
        "depths": [2, 6, 12, 2],
        "groups_width": 64,
        "layer_type": "y",
        "downsample_in_first_stage": True,
        "hidden_act": "relu",
    },
    "resnet": {
        "embedding_size": 64,
        "hidden_sizes": [256, 512, 1024, 2048],
        "depths": [3, 4, 6, 3],
        "layer_type": "bottleneck",
        "downsample_in_first_stage": False,
        "downsample_in_bottleneck": False,
        "hidden_act": "relu",
    },
    "vit": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "patch_size": 16,
        "image_size": 224,
        "qkv_bias": True,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
    },
}
"""The settings, by `model_type`, that decide the function, and what they are where config.json leaves them
out (configuration_*.py of transformers 5.14). Its other settings act in training or on other heads.
"""


class OptionSetting(NamedTuple):
    """A setting of a library's model that is an option of a recipe.

    Attributes:
        values: the option's value for each of the setting's that porter's recipe can say; None if it is a
            number, the same in both.
    """

    option: str
    values: Mapping[Any, Any] | None = None


_BN_EPSILON = OptionSetting("bn_epsilon")
_RELU6 = OptionSetting("relu6", {"relu6": True, "relu": False})
SETTINGS: Mapping[str, Mapping[str, OptionSetting]] = {
    "timm": {"bn_eps": _BN_EPSILON},
    "bit": {},
    "convnext": {"layer_norm_eps": OptionSetting("head_epsilon")},
    "efficientnet": {"batch_norm_eps": _BN_EPSILON},
    "regnet": {},
    "mobilenet_v1": {"layer_norm_eps": _BN_EPSILON, "hidden_act": _RELU6},
    "mobilenet_v2": {"layer_norm_eps": _BN_EPSILON, "hidden_act": _RELU6},
    "resnet": {
        "downsample_in_bottleneck": OptionSetting("stride_on", {False: "first_3x3", True: "first_1x1"})
    },
    "vit": {
        "layer_norm_eps": OptionSetting("epsilon"),
        "image_size": OptionSetting(SIDE),
        "hidden_act": OptionSetting(
            "tanh_gelu", {"gelu": False, "gelu_new": True, "gelu_pytorch_tanh": True}
        ),
    },
}
"""The settings, by library or by `model_type` of transformers, that are options of porter's recipes."""
