"""The graph that a whole-model Keras file carries, from its config and the names and shapes of its tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from porter.base.dtypes import Array
from porter.base.errors import FileError
from porter.filegraph.dataflow import Arrays, Dataflow, Reference
from porter.filegraph.file_graph import FileGraph
from porter.filegraph.names import expect_values
from porter.filegraph.walk import Image, NoOp, Read, begin, read_nodes
from porter.formats.keras.flow import SOURCE, Call, Flow, Result, read_flow, results_in, with_version
from porter.formats.keras.layer import Layer, Taken, Walk
from porter.formats.keras.layers import FUSING, SEVERAL, holds_tensors, is_in_training, read_activation, read_layer
from porter.formats.keras.naming import name_layers
from porter.formats.keras.operations import read_operation
from porter.formats.keras.versions import operation_name
from porter.padding import Size

_OPERANDS = ("x", "x1", "inputs", "y", "x2")
"""Keywords of an operation that are operands, in their order."""
_IMAGE: Reference = ("", 0)


@dataclass(frozen=True)
class Named:
    """A call with its node's name, and its layer's tensors: variable to name in the checkpoint."""

    call: Call
    name: str
    tensors: Mapping[str, str]


def read_graph(
    text: str | bytes, tensors: Mapping[str, Array], where: str, version: str | None = None, outputs: Sequence[str] = ()
) -> FileGraph | None:
    """The graph of a Keras model's config; None where the model is not made of a list of layers, or takes no image.

    Args:
        text: the config as JSON, which the graph keeps as its definition.
        tensors: the checkpoint's; nodes name those that they use.
        where: the file, for messages.
        version: of the Keras that wrote the file, as it states it beside the config.
        outputs: names of layers, at which the graph ends.

    Raises:
        UsageError: the model lacks one of `outputs`.
        FileError: it is not JSON, or not a Keras model's config.
    """
    text = with_version(text, version, where)
    flow = read_flow(text, where)
    if flow is None or len(flow.shape) != 4:
        return None
    _, rows, columns, channels = flow.shape
    if not channels:
        return None
    definition = text.encode() if isinstance(text, str) else text
    calls = name_calls(flow, tensors)
    if outputs:
        places = {named.name: place for place, named in enumerate(calls)}
        expect_values(outputs, places)
        flow = replace(flow, outputs=tuple(Result(places[name]) for name in outputs))
    graph, anywhere = (_graph(flow, calls, channels, size, tensors, where) for size in ((rows, columns), (None, None)))
    # A graph that is right only at this size, as with a Flatten of a map, differs where the size is unknown.
    return replace(graph, resizable=graph.nodes == anywhere.nodes, definition=definition, language="keras")


def _graph(flow: Flow, calls: list[Named], channels: int, size: Size, tensors: Mapping[str, Array], where: str) -> FileGraph:
    """The graph for an input of `size`."""
    layers: dict[str, Layer] = {}
    live = {_IMAGE[0], *(named.name for named in calls), *(fused_name(named) for named in calls)}
    walk = begin(Dataflow(layers, live, Arrays({}), lambda layer: ""), Image(_IMAGE, channels, size))
    walk.held = lambda layer: layer.tensors
    given = {SOURCE.call: _IMAGE}
    for place, named in enumerate(calls):
        for layer in _layers(named, walk, given, tensors, flow.keras):
            if layer.name in layers:
                raise FileError(f"two layers have the name '{layer.name}'", where=where, next="save the model again")
            layers[layer.name] = layer
            given[place] = layer.name, 0

    def read(walk: Walk, layer: Layer) -> Read:
        try:
            return layer.read(layer)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
            message = f"the file's description of layer '{layer.name}' cannot be read: {type(error).__name__} {error}"
            raise FileError(message.splitlines()[0][:300], where=where, next="save the model again") from None

    read_nodes(walk, lambda op: read, settled=True)
    return walk.builder.finish([walk.value(given[result.call]) for result in flow.outputs])


def _layers(named: Named, walk: Walk, given: Mapping[int, Reference], tensors: Mapping[str, Array], keras: int) -> Iterator[Layer]:
    """The nodes of one call: the layer, and its `activation` argument if it has one. `given` are the calls before it."""
    call, operation = named.call, operation_name(named.call.kind, named.call.arguments)
    inputs = tuple(given[result.call] for result in results_in(call.given))
    arguments = {**call.arguments, **call.given.keywords} if operation else call.arguments
    arrays = {variable: tensors[name] for variable, name in named.tensors.items()}
    operands = tuple(_taken(operand, given) for operand in operands_of(call)) if operation else ()
    read = read_operation if operation else partial(_read_layer, call=call)
    layer = Layer(walk, named.name, operation or call.kind, arguments, inputs, keras, read, named.tensors, arrays, operands)
    yield layer
    if not operation and call.kind in FUSING:
        yield replace(layer, name=fused_name(named), inputs=((named.name, 0),), tensors={}, read=read_activation)


def _read_layer(layer: Layer, call: Call) -> Read:
    _expect_plain_call(layer, call)
    return read_layer(layer)


def _expect_plain_call(layer: Layer, call: Call) -> None:
    if len(layer.inputs) != 1 and not (layer.inputs and call.kind in SEVERAL):
        raise NoOp(f"{call.kind} of {len(layer.inputs)} values" if layer.inputs else f"a further {call.kind}")
    if is_in_training(call):
        raise NoOp(f"{call.kind} called with training=True")
    if call.call_index and holds_tensors(call.kind):
        raise NoOp(f"{call.kind} called a second time")


def operands_of(call: Call) -> list[Any]:
    """The operands of an operation, in order: results and constants."""
    keywords = call.given.keywords
    return [*call.given.arguments, *(keywords[name] for name in _OPERANDS if name in keywords)]


def _taken(operand: Any, given: Mapping[int, Reference]) -> Any:
    if isinstance(operand, Result):
        return Taken(given[operand.call])
    return tuple(_taken(item, given) for item in operand) if isinstance(operand, tuple) else operand


def name_calls(flow: Flow, tensors: Mapping[str, Array]) -> list[Named]:
    """Every call with the name of its node: its layer's name, `layer:2` at the layer's second call."""
    holders = [call.path for call in flow.calls if not call.call_index and _may_hold(call)]
    names = name_layers(holders, [call.path for call in flow.calls], tensors)
    by_layer: dict[str, dict[str, str]] = {}
    for tensor in tensors:
        layer, _, variable = tensor.rpartition("/")
        by_layer.setdefault(layer, {})[variable] = tensor
    holding = set(holders)
    return [
        Named(
            call,
            names[call.path] + (f":{call.call_index + 1}" if call.call_index else ""),
            by_layer.get(names[call.path], {}) if call.path in holding else {},
        )
        for call in flow.calls
    ]


def _may_hold(call: Call) -> bool:
    return operation_name(call.kind, call.arguments) is None and holds_tensors(call.kind)


def fused_name(named: Named) -> str:
    """The name of the node for a layer's `activation` argument, such as `dense:softmax`."""
    stated = named.call.arguments.get("activation")
    return f"{named.name}:{stated.rpartition('.')[2] if isinstance(stated, str) else 'activation'}"
