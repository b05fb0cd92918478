"""`model.py` of a port: the plan in mlx.nn as a person would write it. Imports no MLX.

It needs mlx and the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

from porter.frameworks.code.channels_last import size_checks
from porter.frameworks.code.code_ports import CodePorts
from porter.frameworks.code.forward import OPERATORS
from porter.frameworks.code.language import Language, Norm
from porter.frameworks.code.model_classes import docstring, model_classes, named_norms
from porter.frameworks.code.own_layers import definitions, needed_definitions
from porter.frameworks.code.public_names import public_names, with_names
from porter.frameworks.code.text import Bracketed, Choice, Expression, Item, call, flat, literal
from porter.frameworks.code.tree import make_tree
from porter.frameworks.mlx.layout import canonical, stored, variables
from porter.frameworks.mlx.spellings import FUNCTIONS, MAP_OF_FEATURES, MODULES, SPELLINGS
from porter.graph import INPUT
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
_SHORTEST = 3
"""So many equal modules of a row are written one by one."""
# tests/roads/frameworks/test_code.py compares with MLX; `program` is of the module that porter
# builds.
_OF_MODULES = (
    "apply apply_to_modules children clear copy eval filter_and_map freeze fromkeys get is_module items keys "
    "leaf_modules load_weights modules named_modules parameters pop popitem program save_weights set_dtype "
    "setdefault state train trainable_parameter_filter trainable_parameters training unfreeze update "
    "update_modules valid_child_filter valid_parameter_filter values"
)


def _function_call(function: str, inputs: Sequence[Expression]) -> Expression:
    """Return the expression of a function of FUNCTIONS applied to values: `mx.concatenate([a, b], axis=-1)`;
    values with an operator between them, `a + b`; or calls of two within each other,
    `mx.maximum(mx.maximum(a, b), c)`.
    """
    if function == "concat":
        values = Bracketed("", tuple(map(Item, inputs)), "[]")
        return Bracketed("mx.concatenate", (Item(values), Item("-1", "axis")))
    if function in OPERATORS:
        return OPERATORS[function].join(
            f"({flat(value)})" if isinstance(value, Choice) else str(value) for value in inputs
        )
    return reduce(partial(call, f"mx.{function}"), inputs)


def _layer_call(
    kind: str, texts: Mapping[str, Expression], values: Sequence[Expression], name: str | None = None
) -> Bracketed:
    """Return the call of a layer's class or function: `nn.Conv2d(3, 64, 7, stride=2)`. Arguments in
    _POSITIONAL have no keyword, and those at their defaults are left out.

    Args:
        texts: of all arguments, by name.
        values: what a function is applied to, in front of its arguments.
        name: of what is called, if that is not `kind`.
    """
    positional = _POSITIONAL.get(kind, ())
    named = _stated_arguments(kind, texts, positional)
    return call(name or kind, *values, *(texts[slot] for slot in positional), **named)


def _stated_arguments(
    kind: str, texts: Mapping[str, Expression], positional: Sequence[str] = ()
) -> dict[str, Expression]:
    """Return the arguments that are stated by keyword: those that are neither at their defaults nor
    positional.
    """
    defaults = {slot: literal(value) for slot, value in _DEFAULTS.get(kind, {}).items()}
    return {
        slot: text for slot, text in texts.items() if slot not in positional and defaults.get(slot) != text
    }


def _constructor_call(kind: str, texts: Mapping[str, Expression], name: str | None) -> Expression:
    """Return the expression that makes a layer: for a module the call of its class, or of `name` where it is
    given; for a function a `partial` with its arguments, or its bare name if all are at their defaults.
    """
    if kind in MODULES:
        return _layer_call(kind, texts, (), name)
    named = _stated_arguments(kind, texts)
    return call("partial", kind, **named) if named else kind


def _chain_call(items: tuple[Item, ...], row: bool) -> Bracketed:
    """Return the expression of layers one after the other: a Sequential for a `row`, whose layers have no
    names, otherwise `Layers`. Many equal layers of a row become `*(layer for _ in range(n))`.
    """
    texts = {flat(item.value) for item in items}
    if row and len(texts) == 1 and len(items) > _SHORTEST:
        items = (Item(f"*({texts.pop()} for _ in range({len(items)}))"),)
    if row:
        return Bracketed("nn.Sequential", tuple(Item(item.value) for item in items))
    return Bracketed("Layers", items)


_OWN_LAYERS = definitions("porter.frameworks.mlx", "layers.py")

LANGUAGE = Language(
    module="nn.Module",
    begin=("super().__init__()",),
    method="__call__",
    identity="nn.Identity()",
    row="nn.Sequential()",
    imported=frozenset({"mx", "nn", "partial", *_OWN_LAYERS}),
    taken=frozenset({"Path", "math", "re", "BatchNorm"}),
    of_modules=frozenset(_OF_MODULES.split()),
    functions=FUNCTIONS,
    with_tensors=MODULES,
    of_map=MAP_OF_FEATURES,
    kept=lambda layer: (
        replace(layer, arguments={**layer.arguments, "keepdims": True})
        if layer.arguments.get("axis") == (1, 2)
        else None
    ),
    norms={"nn.BatchNorm": Norm("BatchNorm", "nn.BatchNorm", {"eps": 1e-5, "momentum": 0.1})},
    applied=_function_call,
    made=_constructor_call,
    chained=_chain_call,
    added=lambda target, name, layer: (
        call("setattr", "self", f'f"{name}"', layer)
        if target == "self"
        else call(f"{target}.layers.append", layer)
    ),
    got=lambda name: f'getattr(self, f"{name}")',
    rows=True,
    inline=lambda kind, texts, inputs: _layer_call(kind, texts, inputs),
)


def model_source(plan: Plan) -> str:
    """Return the text of model.py.

    Raises:
        GraphError: part of a path is no Python name. PaddingError: the plan was made for another framework.
    """
    plan = with_names(plan, public_names(plan.lowered))
    steps = SPELLINGS.steps(plan)
    tree = make_tree(plan.lowered, steps, LANGUAGE)
    body = model_classes(tree, plan.lowered, steps, LANGUAGE, size_checks(plan, {INPUT: "x", **tree.further}))
    # copies of the layers of layers.py that the classes call
    own_layers = needed_definitions(body, _OWN_LAYERS)
    norms = named_norms(tree, LANGUAGE)
    text = "\n\n\n".join(filter(None, (norms, own_layers, body, _LOADER)))
    # Each import that the text may need, and whether it does.
    standard_imports = {
        "import math": "math." in own_layers,
        "import re": "re." in own_layers,
        "from functools import partial": "partial(" in text,
        "from pathlib import Path": True,
        "from typing import Any": re.search(r"\bAny\b", own_layers) is not None,
    }
    mlx_imports = {
        "import mlx.core as mx": "mx." in own_layers + body,
        "import mlx.nn as nn": True,
    }
    standard, others = (
        [line for line, is_needed in imports.items() if is_needed]
        for imports in (standard_imports, mlx_imports)
    )
    head = docstring(plan, tree, "N x H x W x {channels}")
    # One blank line before a statement, two before a class or function.
    blank_lines = [""] if norms else ["", ""]
    return "\n".join((head, "", *standard, "", *others, *blank_lines, text)) + "\n"


_LOADER = '''\
def load(folder=None):
    """The model with the weights in `folder` (by default this file's own), in inference mode."""
    model = Model()
    model.load_weights(str(Path(folder or Path(__file__).parent) / "model.safetensors"))
    return model.eval()'''


PORTS = CodePorts(SPELLINGS, LANGUAGE, model_source, variables, stored, canonical, public_names)
