"""How torch's code says layers, modules and their calls. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce

from porter.frameworks.code.forward import OPERATORS
from porter.frameworks.code.input_checks import refusal
from porter.frameworks.code.language import Language, Norm
from porter.frameworks.code.plan_layers import Layer
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
    "dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half "
    "ipu load_state_dict modules mtia named_buffers named_children named_modules named_parameters "
    "parameters register_backward_hook register_buffer register_forward_hook register_forward_pre_hook "
    "register_full_backward_hook register_full_backward_pre_hook register_load_state_dict_post_hook "
    "register_load_state_dict_pre_hook register_module register_parameter register_state_dict_post_hook "
    "register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule share_memory state_dict to "
    "to_empty train training type xpu zero_grad"
)

_SHARED_NORMS = {
    kind: Norm(kind, f"nn.{kind}", {slot: NORM_DEFAULTS[slot] for slot in ("eps", "momentum")})
    for kind in NORMS
}
_CHAIN_FUNCTION = '''\
def chain(**layers):
    """Layers one after the other, under these names in the state_dict."""
    return nn.Sequential(OrderedDict(layers))'''
_OWN_DEFINITIONS = {"chain": _CHAIN_FUNCTION, **OWN_LAYERS}
_IMPORTS = {
    "import torch": r"torch\.",
    "from safetensors.torch import load_file": r"load_file\(",
    "from torch import nn": r"nn\.",
    "from torch.nn import functional as F": r"F\.",
}


class TorchLanguage(Language):
    """How torch's code says a model."""

    layers = "nn"
    begin = ("super().__init__()",)
    method = "forward"
    identity = "nn.Identity()"
    imported = frozenset({"torch", "nn", "F"})
    taken = frozenset({"Path", "DTYPES", "chain", "load_file", "pair", "partial", *NORMS, *OWN_LAYERS})
    of_modules = frozenset(_MODULE_ATTRIBUTES.split())
    functions = FUNCTIONS
    with_tensors = WITH_TENSORS
    of_map = MAP_OF_FEATURES
    norms = _SHARED_NORMS
    own_layers = _OWN_DEFINITIONS
    imports = _IMPORTS
    images = "N x {channels} x H x W"

    def keep_map(self, layer: Layer) -> Layer | None:
        """Return the pool to 1x1 of a global pool; None for other layers."""
        return Layer(GLOBAL_POOLS[layer.kind], {"output_size": 1}) if layer.kind in GLOBAL_POOLS else None

    def apply_function(self, function: str, inputs: Sequence[Expression]) -> Expression:
        """Return the expression of one of `functions` of these values: `torch.cat([a, b], 1)`, a function of
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

    def construct(self, kind: str, texts: Mapping[str, Expression], name: str | None) -> Expression:
        """Return the expression that makes a layer, such as `nn.Conv2d(64, 128, 3, stride=2, bias=False)`. A
        global pool is a Sequential.
        """
        if kind in GLOBAL_POOLS:
            return call("nn.Sequential", f"nn.{GLOBAL_POOLS[kind]}(1)", "nn.Flatten()")
        defaults = {slot: literal(value) for slot, value in DEFAULTS.get(kind, {}).items()}
        positional = POSITIONAL.get(kind, ())
        # As people write it: the argument `stride` of a class is passed on by its place.
        if texts.get("stride") == "stride" and positional[-1:] == ("kernel_size",):
            positional = (*positional, "stride")
        named = {
            slot: text
            for slot, text in texts.items()
            if slot not in positional and defaults.get(slot) != text
        }
        class_name = kind if kind in OWN_LAYERS else f"nn.{kind}"
        return call(name or class_name, *(texts[slot] for slot in positional), **named)

    def chain(self, items: tuple[Item, ...], row: bool) -> Bracketed:
        """Return the call of model.py's function `chain`, which gives layers their names."""
        return Bracketed("chain", items)

    def add_part(self, target: str, name: str, layer: Expression) -> Bracketed:
        """Return the call that adds a part to a module."""
        return call(f"{target}.add_module", f'f"{name}"', layer)

    def get_part(self, name: str) -> str:
        """Return the expression of the part of that name."""
        return f'self.get_submodule(f"{name}")'

    def refuse_size(self, x: str, rows: int, columns: int, message: str) -> list[str]:
        """Return the lines that raise an error where a map has another size, or let its trace do so."""
        return [
            "        if torch.jit.is_tracing():  # a trace keeps these no-ops, which fail at any other size",
            f"            {x} = {x}.unflatten(2, ({rows},)).unflatten(3, ({columns},))",
            *refusal(f"elif {x}.shape[2:] != ({rows}, {columns})", f"{message} {{tuple({x}.shape[2:])}}"),
        ]

    def refuse_shape(self, x: str, axes: int, wrong_sizes: Sequence[str], message: str) -> list[str]:
        """Return the lines that raise an error where an input that is no map has another shape."""
        condition = " or ".join([f"{x}.dim() != {axes}", *wrong_sizes])
        return refusal(f"if not torch.jit.is_tracing() and ({condition})", f"{message} {{tuple({x}.shape)}}")


LANGUAGE = TorchLanguage()
