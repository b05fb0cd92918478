"""The calls of a Keras model's layers with the names of their nodes and of their tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from porter.base.dtypes import NamedArrays
from porter.formats.keras.activations import activation_name
from porter.formats.keras.attention import PARTS
from porter.formats.keras.flow import Flow, LayerCall
from porter.formats.keras.layer_readers import FUSING, holds_tensors
from porter.formats.keras.tensor_names import name_layers
from porter.formats.keras.versions import operation_name


@dataclass(frozen=True)
class NamedCall:
    """A call with its node's name, and its layer's tensors: the name in the checkpoint of each variable."""

    call: LayerCall
    name: str
    tensors: Mapping[str, str]


def name_calls(flow: Flow, tensors: NamedArrays) -> list[NamedCall]:
    """Return every call with the name of its node: its layer's name, and `layer:2` at the layer's second
    call. Each has the names of its layer's tensors, none for a layer that cannot hold any.
    """
    holders = [call.path for call in flow.calls if _may_hold(call)]
    names = name_layers(holders, [call.path for call in flow.calls], tensors)
    by_layer: dict[str, dict[str, str]] = {}
    for tensor in tensors:
        layer, _, variable = tensor.rpartition("/")
        by_layer.setdefault(layer, {})[variable] = tensor
    holding = set(holders)

    def name_call(call: LayerCall) -> NamedCall:
        """Return a call with its name and its layer's variables, none for a layer that holds none."""
        layer = names[call.path]
        variables: Mapping[str, str] = {}
        if call.path in holding:
            variables = by_layer.get(layer, _attention_tensors(call, by_layer))
        name = f"{layer}:{call.call_index + 1}" if call.call_index else layer
        return NamedCall(call, name, variables)

    return [*map(name_call, flow.calls)]


def _attention_tensors(call: LayerCall, by_layer: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the variables of the layers in a MultiHeadAttention, such as `query/kernel`, with the names of
    their tensors; none for another layer.

    Args:
        by_layer: the file's tensors by layer and variable. The layers in it may have the names of others,
            and then stand under its path or its name.
    """
    tensors: dict[str, str] = {}
    for part, names in PARTS.items() if call.kind == "MultiHeadAttention" else ():
        # The names that a part may have in the file: with the whole path, with the layer's name, or alone.
        spellings = [
            f"{prefix}{name}"
            for prefix in (f"{'/'.join(call.path)}/", f"{call.path[-1]}/", "")
            for name in names
        ]
        variables = next((by_layer[spelling] for spelling in spellings if spelling in by_layer), {})
        tensors |= {f"{part}/{variable}": tensor for variable, tensor in variables.items()}
    return tensors


def _may_hold(call: LayerCall) -> bool:
    """Return whether a call is of a layer whose class has variables."""
    return operation_name(call.kind, call.arguments) is None and holds_tensors(call.kind)


def last_name(named: NamedCall) -> str:
    """Return the name of the node that gives a layer's value after its activation."""
    return fused_name(named) if named.call.kind in FUSING else named.name


def before_activation(named: NamedCall) -> str:
    """Return the name of a layer's value before its `activation` argument, such as `dense:linear`; the
    layer's name, if it has none.
    """
    has_activation = (
        named.call.kind in FUSING and activation_name(named.call.arguments.get("activation")) != "linear"
    )
    return f"{named.name}:linear" if has_activation else named.name


def fused_name(named: NamedCall) -> str:
    """Return the name of the node for a layer's `activation` argument, such as `dense:softmax`."""
    activation = named.call.arguments.get("activation")
    # A user's own is an object, and a name may have a module before it.
    name = activation.rpartition(".")[2] if isinstance(activation, str) else "activation"
    return f"{named.name}:{name}"
