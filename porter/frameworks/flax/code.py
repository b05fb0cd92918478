"""`model.py` of a port: the plan in flax.nnx as a person would write it; and the places of its variables.
Imports no JAX.

It needs jax, flax, safetensors and the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping

from porter.frameworks.code.channels_last import FUNCTIONS
from porter.frameworks.code.channels_last_text import ChannelsLastLanguage
from porter.frameworks.code.code_ports import CodePorts
from porter.frameworks.code.language import Norm
from porter.frameworks.code.own_layers import definitions
from porter.frameworks.code.write_source import write_source
from porter.frameworks.flax.layout import canonical, stored, variables
from porter.frameworks.flax.spellings import MAP_OF_FEATURES, SPELLINGS, WITH_TENSORS
from porter.graph.blocks.parameters import PlainValue
from porter.graph.plan import Plan

_POSITIONAL: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("nnx.Conv", "nnx.ConvTranspose", "GroupedConvTranspose"),
        ("in_features", "out_features", "kernel_size"),
    ),
    **dict.fromkeys(("nnx.BatchNorm", "nnx.LayerNorm", "nnx.RMSNorm", "nnx.GroupNorm"), ("num_features",)),
    **dict.fromkeys(("ChannelScale", "PReLU"), ("features",)),
    **dict.fromkeys(("AddArray", "MultiplyArray"), ("shape",)),
    **dict.fromkeys(("nnx.max_pool", "nnx.avg_pool"), ("window_shape",)),
    "nnx.Linear": ("in_features", "out_features"),
    "Tokens": ("count", "features"),
    "nnx.Dropout": ("rate",),
    "jnp.pad": ("pad_width",),
    "rearrange": ("pattern",),
}
_POOL: Mapping[str, PlainValue] = {"padding": "VALID", "count_include_pad": True}
_CONV: Mapping[str, PlainValue] = {
    "strides": 1,
    "padding": "SAME",
    "kernel_dilation": 1,
    "feature_group_count": 1,
    "use_bias": True,
}
_TRANSPOSED: Mapping[str, PlainValue] = {"strides": (1, 1), "kernel_dilation": (1, 1), "use_bias": True}
_NORM: Mapping[str, PlainValue] = {"use_scale": True, "use_bias": True}
_LAYER_NORM: Mapping[str, PlainValue] = {**_NORM, "epsilon": 1e-6}
_DEFAULTS: Mapping[str, Mapping[str, PlainValue]] = {
    **dict.fromkeys(("nnx.max_pool", "nnx.avg_pool"), _POOL),
    **dict.fromkeys(("nnx.ConvTranspose", "GroupedConvTranspose"), _TRANSPOSED),
    **dict.fromkeys(("nnx.LayerNorm", "nnx.RMSNorm", "nnx.GroupNorm"), _LAYER_NORM),
    **{kind: {"keepdims": False} for kind in ("jnp.mean", "jnp.max", "jnp.linalg.norm")},
    **{kind: {"order": "DCR"} for kind in ("depth_to_space", "space_to_depth")},
    **{kind: {"alpha": 1.0} for kind in ("nnx.elu", "nnx.celu")},
    "nnx.BatchNorm": {**_NORM, "epsilon": 1e-5, "momentum": 0.99},
    "nnx.Conv": _CONV,
    "nnx.Dropout": {"broadcast_dims": ()},
    "nnx.Linear": {"use_bias": True},
    "nnx.gelu": {"approximate": True},
    "ChannelScale": {"use_bias": False},
    "affine": {"scale": 1.0, "offset": 0.0},
    "flatten": {"order": "HWC"},
    "jnp.pad": {"constant_values": 0},
    "matmul": {"transpose": False},
    "same_pad": {"dilation": (1, 1), "lower": False, "fill": 0.0},
    "step": {"inclusive": False},
}
# tests/roads/frameworks/test_code.py compares with Flax; `program` is of the module that porter
# builds.
_OF_MODULES = "eval iter_children iter_modules perturb program set_attributes sow train"

LANGUAGE = ChannelsLastLanguage(
    layers="nnx",
    arrays="jnp",
    identity="nnx.identity",
    begin=(),
    of_modules=frozenset(_OF_MODULES.split()),
    functions=FUNCTIONS,
    with_tensors=WITH_TENSORS,
    of_map=MAP_OF_FEATURES,
    norms={"nnx.BatchNorm": Norm("BatchNorm", "nnx.BatchNorm", {"epsilon": 1e-5, "momentum": 0.99})},
    positional=_POSITIONAL,
    defaults=_DEFAULTS,
    own_layers=definitions("porter.frameworks.flax", "layers.py"),
    imports={
        "import jax": r"jax\.",
        "import jax.numpy as jnp": r"jnp\.",
        "from flax import nnx": r"nnx\.",
        "from safetensors.flax import load_file": r"load_file\(",
    },
    passed="rngs",
)


def model_source(plan: Plan) -> str:
    """Return the text of model.py.

    Raises:
        GraphError: part of a path is no Python name. PaddingError: the plan was made for another framework.
    """
    steps = SPELLINGS.steps(plan)
    # Dropouts draw random numbers, which the loader has to make.
    draws = any(step.layer.kind == "nnx.Dropout" for step in steps)
    return write_source(plan, steps, LANGUAGE, _LOADER.format(**(_DRAWING if draws else _LASTING)))


_LOADER = '''\
def load(folder=None):
    """The model with the weights in `folder` (by default this file's own), in eval mode."""
    {split}
    weights = load_file(Path(folder or Path(__file__).parent) / "model.safetensors")
    filled = [
        (path, variable.replace(weights[".".join(map(str, path))]))
        for path, variable in nnx.to_flat_state(state)
    ]
    model = nnx.merge(graph, nnx.from_flat_state(filled){more})
    model.eval()
    return model'''
_SHAPED = "model = nnx.eval_shape(lambda: Model(rngs=nnx.Rngs(0)))  # takes no memory"
_LASTING = {"split": f"{_SHAPED}\n    graph, state = nnx.split(model)", "more": ""}
_DRAWING = {
    "split": (
        f"{_SHAPED}\n    graph, state, _ = nnx.split(model, nnx.Not(nnx.RngState), ...)\n"
        "    random = jax.jit(lambda: nnx.state(Model(rngs=nnx.Rngs(0)), nnx.RngState))()"
    ),
    "more": ", random",
}
"""What a model with dropouts says in its place: the file does not hold their random numbers, so these
are made, and nothing else is.
"""


PORTS = CodePorts(SPELLINGS, LANGUAGE, model_source, variables, stored, canonical)
