"""A small model of each of transformers' classes for classifying images, as the folder of the Hub that
transformers writes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support.random_models import CLASSES, calibrated

_SIDE = 64
_TOKENS = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": _SIDE,
}
_WINDOWS = {"image_size": _SIDE, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4}
_PYRAMID = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4]}
_STAGES = {"hidden_sizes": [16, 24, 32, 40], "depths": [1, 2, 1, 1]}
_OF_IMAGES = {"vision_config": _TOKENS}
MADE: Mapping[str, Mapping[str, Any]] = {
    "beit": {**_TOKENS, "use_relative_position_bias": True, "use_mean_pooling": True},
    "bit": {**_STAGES, "embedding_size": 16, "num_groups": 4},
    "clip": _OF_IMAGES,
    "convnext": _STAGES,
    "convnextv2": _STAGES,
    "cvt": {
        "embed_dim": [16, 24, 32],
        "num_heads": [1, 2, 2],
        "depth": [1, 2, 3],
        "cls_token": [False, False, True],
    },
    "data2vec-vision": {**_TOKENS, "use_relative_position_bias": True},
    "deit": _TOKENS,
    "dinat": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "dilations": [[1], [1]]},
    "dinov2": {**_TOKENS, "image_size": 56},
    "dinov2_with_registers": _TOKENS,
    "donut-swin": _WINDOWS,
    "efficientnet": {"width_coefficient": 0.5, "depth_coefficient": 0.5, "hidden_dim": 640},
    "focalnet": {"image_size": _SIDE, "embed_dim": 16, "depths": [1, 1, 2, 1]},
    "hgnet_v2": {"hidden_act": "relu", "stage_num_blocks": [1, 1, 1, 1]},
    "hiera": {
        "image_size": [_SIDE, _SIDE],
        "embed_dim": 16,
        "depths": [1, 1, 2, 1],
        "num_heads": [1, 2, 2, 4],
    },
    "ijepa": _TOKENS,
    "imagegpt": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "levit": {"image_size": _SIDE, "hidden_sizes": [32, 48, 64], "num_attention_heads": [2, 3, 4]},
    "metaclip_2": _OF_IMAGES,
    "mobilenet_v1": {"depth_multiplier": 0.25},
    "mobilenet_v2": {"depth_multiplier": 0.35},
    "mobilevit": {"image_size": _SIDE, "hidden_sizes": [32, 40, 48]},
    "mobilevitv2": {"image_size": _SIDE, "width_multiplier": 0.25},
    "perceiver": {"num_latents": 8, "d_latents": 32, "num_self_attends_per_block": 2, "image_size": _SIDE},
    "poolformer": _STAGES,
    "pp_lcnet": {"scale": 0.5},
    "pvt": {**_PYRAMID, "image_size": _SIDE},
    "pvt_v2": {**_PYRAMID, "image_size": [_SIDE, _SIDE]},
    "regnet": {**_STAGES, "embedding_size": 8, "groups_width": 8},
    "resnet": {**_STAGES, "embedding_size": 16},
    "segformer": _PYRAMID,
    "shieldgemma2": {**_OF_IMAGES, "text_config": {**_TOKENS, "head_dim": 16, "num_key_value_heads": 1}},
    "siglip": _OF_IMAGES,
    "siglip2": {"vision_config": {**_TOKENS, "num_patches": 16}},
    "swiftformer": {"image_size": _SIDE, "depths": [1, 1, 1, 1], "embed_dims": [16, 24, 32, 40]},
    "swin": _WINDOWS,
    "swinv2": _WINDOWS,
    "textnet": {"image_size": [_SIDE, _SIDE], "hidden_sizes": [16, 16, 24, 32, 40], "stem_out_channels": 16},
    "timm_wrapper": {"architecture": "test_resnet"},
    "vit": _TOKENS,
    "vit_msn": _TOKENS,
}
"""The settings that make each model_type small. These are all of transformers 5.14."""
_OF_NO_IMAGES = ("imagegpt", "shieldgemma2", "siglip2")
"""They take colours of a palette, text besides, or patches, and keep the weights that they are made with."""


def class_folder(kind: str, folder: Path) -> tuple[int, Callable[[Path, bool], Path]]:
    """The side of a class's images, and a function that writes its folder, once."""
    stated = MADE[kind].get("vision_config", MADE[kind]).get("image_size", _SIDE)
    side = stated[0] if isinstance(stated, list) else stated

    def write(_folder: Path, free: bool) -> Path:
        path = folder / kind
        if not path.exists():
            from porter.zoos.transformers import import_transformers

            library = import_transformers()
            # A config writes into the settings that it is given.
            config = library.AutoConfig.for_model(kind, num_labels=CLASSES, **copy.deepcopy(MADE[kind]))
            found = library.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING[type(config)]
            maker = found[0] if isinstance(found, tuple) else found
            model = maker(config)
            if kind not in _OF_NO_IMAGES:
                calibrated(model, kind, side, _logits)
            model.save_pretrained(path)
        return path

    return side, write


def _logits(answer: Any) -> Any:
    """PP-LCNet's class calls them its last hidden state."""
    return answer.logits if hasattr(answer, "logits") else answer.last_hidden_state
