"""`model.py` of a port: the plan in mlx.nn as a person would write it. Imports no MLX.

It needs mlx and the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping

from porter.frameworks.code.channels_last import FUNCTIONS
from porter.frameworks.code.channels_last_text import ChannelsLastLanguage
from porter.frameworks.code.code_ports import CodePorts
from porter.frameworks.code.language import Norm
from porter.frameworks.code.own_layers import definitions
from porter.frameworks.code.public_names import public_names, with_names
from porter.frameworks.code.write_source import write_source
from porter.frameworks.mlx.layout import canonical, stored, variables
from porter.frameworks.mlx.spellings import MAP_OF_FEATURES, MODULES, SPELLINGS
from porter.graph.blocks.parameters import PlainValue
from porter.graph.plan import Plan

_POSITIONAL: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("nn.Conv2d", "nn.ConvTranspose2d", "CroppedConvTranspose2d"),
        ("in_channels", "out_channels", "kernel_size"),
    ),
    **dict.fromkeys(("nn.LayerNorm", "nn.RMSNorm"), ("dims",)),
    **dict.fromkeys(("AddArray", "MultiplyArray"), ("shape",)),
    **dict.fromkeys(("nn.MaxPool2d", "nn.AvgPool2d"), ("kernel_size",)),
    **dict.fromkeys(("nn.Dropout", "nn.Dropout2d"), ("p",)),
    **dict.fromkeys(("mx.pad", "wrapping_pad"), ("pad_width",)),
    "nn.Linear": ("input_dims", "output_dims"),
    "nn.BatchNorm": ("num_features",),
    "nn.GroupNorm": ("num_groups", "dims"),
    "nn.PReLU": ("num_parameters",),
    "ChannelScale": ("features",),
    "Tokens": ("count", "features"),
    "mx.clip": ("a_min", "a_max"),
    "rearrange": ("pattern",),
}
_CONV: Mapping[str, PlainValue] = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "bias": True}
_TRANSPOSED: Mapping[str, PlainValue] = {**_CONV, "output_padding": 0}
_POOL: Mapping[str, PlainValue] = {"padding": 0}
_NORM: Mapping[str, PlainValue] = {"eps": 1e-5, "affine": True}
_LAYER_NORM: Mapping[str, PlainValue] = {**_NORM, "bias": True}
_DEFAULTS: Mapping[str, Mapping[str, PlainValue]] = {
    **dict.fromkeys(("nn.ConvTranspose2d", "CroppedConvTranspose2d"), _TRANSPOSED),
    **dict.fromkeys(("nn.LayerNorm", "nn.RMSNorm"), _LAYER_NORM),
    **dict.fromkeys(("nn.MaxPool2d", "nn.AvgPool2d"), _POOL),
    **{kind: {"keepdims": False} for kind in ("mx.mean", "mx.max", "mx.linalg.norm")},
    **{kind: {"order": "DCR"} for kind in ("depth_to_space", "space_to_depth")},
    **{kind: {"alpha": 1.0} for kind in ("nn.elu", "nn.celu")},
    "nn.Conv2d": _CONV,
    "nn.BatchNorm": {**_NORM, "momentum": 0.1},
    "nn.GroupNorm": {**_NORM, "pytorch_compatible": False},
    "nn.Linear": {"bias": True},
    "ChannelScale": {"use_bias": False},
    "affine": {"scale": 1.0, "offset": 0.0},
    "flatten": {"order": "HWC"},
    "matmul": {"transpose": False},
    "mx.pad": {"constant_values": 0},
    "same_avg_pool": {"lower": False},
    "same_pad": {"dilation": 1, "lower": False, "fill": 0.0},
    "step": {"inclusive": False},
}
# tests/roads/frameworks/test_code.py compares with MLX; `program` is of the module that porter
# builds.
_OF_MODULES = (
    "apply apply_to_modules children clear copy eval filter_and_map freeze fromkeys get is_module items keys "
    "leaf_modules load_weights modules named_modules parameters pop popitem program save_weights set_dtype "
    "setdefault state train trainable_parameter_filter trainable_parameters training unfreeze update "
    "update_modules valid_child_filter valid_parameter_filter values"
)

LANGUAGE = ChannelsLastLanguage(
    layers="nn",
    arrays="mx",
    identity="nn.Identity()",
    begin=("super().__init__()",),
    of_modules=frozenset(_OF_MODULES.split()),
    functions=FUNCTIONS,
    with_tensors=MODULES,
    of_map=MAP_OF_FEATURES,
    norms={"nn.BatchNorm": Norm("BatchNorm", "nn.BatchNorm", {"eps": 1e-5, "momentum": 0.1})},
    positional=_POSITIONAL,
    defaults=_DEFAULTS,
    own_layers=definitions("porter.frameworks.mlx", "layers.py"),
    imports={"import mlx.core as mx": r"mx\.", "import mlx.nn as nn": r"nn\."},
)


def model_source(plan: Plan) -> str:
    """Return the text of model.py.

    Raises:
        GraphError: part of a path is no Python name. PaddingError: the plan was made for another framework.
    """
    plan = with_names(plan, public_names(plan.lowered))
    return write_source(plan, SPELLINGS.steps(plan), LANGUAGE, _LOADER)


_LOADER = '''\
def load(folder=None):
    """The model with the weights in `folder` (by default this file's own), in inference mode."""
    model = Model()
    model.load_weights(str(Path(folder or Path(__file__).parent) / "model.safetensors"))
    return model.eval()'''


PORTS = CodePorts(SPELLINGS, LANGUAGE, model_source, variables, stored, canonical, public_names)
