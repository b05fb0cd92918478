"""`model.py` of a port: the plan in flax.nnx as a person would write it; and the places of its variables.
Imports no JAX.

It needs jax, flax, safetensors and the standard library only.
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
from porter.frameworks.code.text import Bracketed, Choice, Expression, Item, call, flat, literal
from porter.frameworks.code.tree import make_tree
from porter.frameworks.flax.layout import canonical, stored, variables
from porter.frameworks.flax.spellings import FUNCTIONS, MAP_OF_FEATURES, SPELLINGS, WITH_TENSORS
from porter.graph import INPUT
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
_SHORTEST = 3
"""So many equal modules of a row are written one by one."""
# tests/roads/frameworks/test_code.py compares with Flax; `program` is of the module that porter
# builds.
_OF_MODULES = "eval iter_children iter_modules perturb program set_attributes sow train"


def _function_call(function: str, inputs: Sequence[Expression]) -> Expression:
    """Return the expression of a function of FUNCTIONS applied to values: `jnp.concatenate([a, b], axis=-1)`;
    values with an operator between them, `a + b`; or calls of two within each other,
    `jnp.maximum(jnp.maximum(a, b), c)`.
    """
    if function == "concat":
        values = Bracketed("", tuple(map(Item, inputs)), "[]")
        return Bracketed("jnp.concatenate", (Item(values), Item("-1", "axis")))
    if function in OPERATORS:
        return OPERATORS[function].join(
            f"({flat(value)})" if isinstance(value, Choice) else str(value) for value in inputs
        )
    return reduce(partial(call, f"jnp.{function}"), inputs)


def _layer_call(
    kind: str, texts: Mapping[str, Expression], values: Sequence[Expression], name: str | None = None
) -> Bracketed:
    """Return the call of a layer's class or function: `nnx.max_pool(x, (2, 2), strides=(2, 2))`. Arguments in
    _POSITIONAL have no keyword, and those at their defaults are left out.

    Args:
        texts: of all arguments, by name.
        values: what a function is applied to, in front of its arguments.
        name: of what is called, if that is not `kind`.
    """
    defaults = {slot: literal(value) for slot, value in _DEFAULTS.get(kind, {}).items()}
    positional: tuple[str, ...] = ()
    if kind in WITH_TENSORS or kind.startswith(("nnx.", "jnp.pad", "rearrange")):
        positional = _POSITIONAL.get(kind, ())
    named = {
        slot: text for slot, text in texts.items() if slot not in positional and defaults.get(slot) != text
    }
    return call(name or kind, *values, *(texts[slot] for slot in positional), **named)


def _constructor_call(kind: str, texts: Mapping[str, Expression], name: str | None) -> Expression:
    """Return the expression that makes a layer: a module with its `rngs`, a `partial` of a function with its
    arguments, or the function's name. `name` is what a module's class is called in model.py, if it is not
    `kind`.
    """
    if kind in WITH_TENSORS:
        constructor_call = _layer_call(kind, texts, (), name)
        return replace(constructor_call, items=(*constructor_call.items, Item("rngs", "rngs")))
    defaults = {slot: literal(value) for slot, value in _DEFAULTS.get(kind, {}).items()}
    named = {slot: text for slot, text in texts.items() if defaults.get(slot) != text}
    return call("partial", kind, **named) if named else kind


def _chain_call(items: tuple[Item, ...], row: bool) -> Bracketed:
    """Return the expression of layers one after the other: a Sequential for a `row`, whose layers have no
    names, otherwise `Layers`. Many equal layers of a row become `*(layer for _ in range(n))`.
    """
    texts = {flat(item.value) for item in items}
    if row and len(texts) == 1 and len(items) > _SHORTEST:
        items = (Item(f"*({texts.pop()} for _ in range({len(items)}))"),)
    if row:
        return Bracketed("nnx.Sequential", tuple(Item(item.value) for item in items))
    return Bracketed("Layers", items)


_OWN_LAYERS = definitions("porter.frameworks.flax", "layers.py")

LANGUAGE = Language(
    module="nnx.Module",
    begin=(),
    method="__call__",
    identity="nnx.identity",
    row="nnx.Sequential()",
    imported=frozenset({"jax", "jnp", "nnx", "partial", *_OWN_LAYERS}),
    taken=frozenset({"Path", "load_file", "math", "re", "BatchNorm", "rngs"}),
    of_modules=frozenset(_OF_MODULES.split()),
    functions=FUNCTIONS,
    with_tensors=WITH_TENSORS,
    of_map=MAP_OF_FEATURES,
    kept=lambda layer: (
        replace(layer, arguments={**layer.arguments, "keepdims": True})
        if layer.arguments.get("axis") == (1, 2)
        else None
    ),
    norms={"nnx.BatchNorm": Norm("BatchNorm", "nnx.BatchNorm", {"epsilon": 1e-5, "momentum": 0.99})},
    applied=_function_call,
    made=_constructor_call,
    chained=_chain_call,
    added=lambda target, name, layer: (
        call("setattr", "self", f'f"{name}"', layer)
        if target == "self"
        else call(f"{target}.layers.append", layer)
    ),
    got=lambda name: f'getattr(self, f"{name}")',
    given="rngs",
    rows=True,
    inline=lambda kind, texts, inputs: _layer_call(kind, texts, inputs),
)


def model_source(plan: Plan) -> str:
    """Return the text of model.py.

    Raises:
        GraphError: part of a path is no Python name. PaddingError: the plan was made for another framework.
    """
    steps = SPELLINGS.steps(plan)
    tree = make_tree(plan.lowered, steps, LANGUAGE)
    body = model_classes(tree, plan.lowered, steps, LANGUAGE, size_checks(plan, {INPUT: "x", **tree.further}))
    own_layers = needed_definitions(body, _OWN_LAYERS)
    norms = named_norms(tree, LANGUAGE)
    # Dropouts draw random numbers, which the loader has to make.
    draws = any(step.layer.kind == "nnx.Dropout" for step in steps)
    loader = _LOADER.format(**(_DRAWING if draws else _LASTING))
    text = "\n\n\n".join(filter(None, (norms, own_layers, body, loader)))
    # Each import that the text may need, and whether it does.
    standard_imports = {
        "import math": "math." in own_layers,
        "import re": "re." in own_layers,
        "from functools import partial": "partial(" in text,
        "from pathlib import Path": True,
        "from typing import Any": re.search(r"\bAny\b", own_layers) is not None,
    }
    other_imports = {
        "import jax": draws or re.search(r"\bjax\.", own_layers + body) is not None,
        "import jax.numpy as jnp": "jnp." in own_layers + body,
        "from flax import nnx": True,
        "from safetensors.flax import load_file": True,
    }
    standard, others = (
        [line for line, is_needed in imports.items() if is_needed]
        for imports in (standard_imports, other_imports)
    )
    head = docstring(plan, tree, "N x H x W x {channels}")
    # One blank line before a statement, two before a class or function.
    blank_lines = [""] if norms else ["", ""]
    return "\n".join((head, "", *standard, "", *others, *blank_lines, text)) + "\n"


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
