"""How torch's code says layers, modules and their calls. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce

from porter.frameworks.code.forward import OPERATORS
from porter.frameworks.code.language import Language, Layer, Norm
from porter.frameworks.code.text import Bracketed, Choice, Expression, Item, call, flat, literal
from porter.frameworks.torch.code.signatures import DEFAULTS, NORM_DEFAULTS, NORMS, OWN_LAYERS, POSITIONAL
from porter.frameworks.torch.spellings import (
    FUNCTIONS,
    GLOBAL_POOLS,
    MAP_OF_FEATURES,
    OF_NUMBERS,
    REDUCTIONS,
    WITH_TENSORS,
)

# tests/unit/frameworks/torch/test_code.py compares with torch.
_MODULE_ATTRIBUTES = (
    "T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda double "
    "dump_patches eval extra_repr "
    "float forward get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict "
    "modules mtia named_buffers "
    "named_children named_modules named_parameters parameters register_backward_hook register_buffer "
    "register_forward_hook "
    "register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook "
    "register_load_state_dict_post_hook "
    "register_load_state_dict_pre_hook register_module register_parameter register_state_dict_post_hook "
    "register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule share_memory state_dict "
    "to to_empty train training "
    "type xpu zero_grad"
)


def _function_call(function: str, inputs: Sequence[Expression]) -> Expression:
    """Return the expression of a function of FUNCTIONS of these values: `torch.cat([a, b], 1)`, a function of
    one value, `torch.maximum(a, b)`, values with an operator between them, or a reduction `x.mean(2,
    keepdim=True)`.
    """
    if function == "concat":
        values = Bracketed("", tuple(map(Item, inputs)), "[]")
        return Bracketed("torch.cat", (Item(values), Item("1")))
    if function in OF_NUMBERS:
        return call(f"torch.{function}", inputs[0])
    if function in ("maximum", "minimum"):
        return reduce(partial(call, f"torch.{function}"), inputs)
    texts = [f"({flat(value)})" if isinstance(value, Choice) else str(value) for value in inputs]
    if function in OPERATORS:
        return OPERATORS[function].join(texts)
    method, dim = REDUCTIONS[function]
    if method == "norm":  # its first argument is the order
        return call(f"{texts[0]}.{method}", dim=str(dim), keepdim="True")
    return call(f"{texts[0]}.{method}", str(dim), keepdim="True")


def _constructor_call(kind: str, texts: Mapping[str, Expression], name: str | None) -> Expression:
    """Return the code that makes a layer, such as `nn.Conv2d(64, 128, 3, stride=2, bias=False)`, without the
    arguments that are at torch's defaults. A global pool is a Sequential.

    Args:
        kind: the class of torch.nn.
        texts: the code of each argument, by its name.
        name: the variable that holds the class, as `norm_layer` does; None for the class itself.
    """
    if kind in GLOBAL_POOLS:
        return call("nn.Sequential", f"nn.{GLOBAL_POOLS[kind]}(1)", "nn.Flatten()")
    defaults = {slot: literal(value) for slot, value in DEFAULTS.get(kind, {}).items()}
    positional = POSITIONAL.get(kind, ())
    # As people write it: the argument `stride` of a class is passed on by its place.
    if texts.get("stride") == "stride" and positional[-1:] == ("kernel_size",):
        positional = (*positional, "stride")
    named = {
        slot: text for slot, text in texts.items() if slot not in positional and defaults.get(slot) != text
    }
    class_name = kind if kind in OWN_LAYERS else f"nn.{kind}"
    return call(name or class_name, *(texts[slot] for slot in positional), **named)


LANGUAGE = Language(
    module="nn.Module",
    begin=("super().__init__()",),
    method="forward",
    identity="nn.Identity()",
    row="nn.Sequential()",
    imported=frozenset({"torch", "nn", "F"}),
    taken=frozenset({"Path", "DTYPES", "chain", "load_file", "pair", "partial", *NORMS, *OWN_LAYERS}),
    of_modules=frozenset(_MODULE_ATTRIBUTES.split()),
    functions=FUNCTIONS,
    with_tensors=WITH_TENSORS,
    of_map=MAP_OF_FEATURES,
    keep_map=lambda layer: (
        Layer(GLOBAL_POOLS[layer.kind], {"output_size": 1}) if layer.kind in GLOBAL_POOLS else None
    ),
    norms={
        kind: Norm(kind, f"nn.{kind}", {slot: NORM_DEFAULTS[slot] for slot in ("eps", "momentum")})
        for kind in NORMS
    },
    apply_function=_function_call,
    construct=_constructor_call,
    chain=lambda items, row: Bracketed("chain", items),
    add_part=lambda target, name, layer: call(f"{target}.add_module", f'f"{name}"', layer),
    get_part=lambda name: f'self.get_submodule(f"{name}")',
)
