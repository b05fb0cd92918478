"""The graph that a whole-model Keras file carries, from its config and the names and shapes of its
tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.base.errors import FileError, first_line
from porter.filegraph.checkpoint import UNREAD, Checkpoint
from porter.filegraph.dataflow import Arrays, Dataflow, Operators
from porter.filegraph.file_graph import FileGraph, Unsupported, read_for_sizes
from porter.filegraph.finishing import finish
from porter.filegraph.layouts.axes import OF_UNKNOWN_SHAPE
from porter.filegraph.names import expect_values
from porter.filegraph.readers import as_outputs
from porter.filegraph.reading import GraphInput, begin, read_nodes
from porter.filegraph.tensorflow import further_image
from porter.filegraph.tensors.tensor import Scope, Tensor
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import Outputs
from porter.formats.keras.activations import activation_name
from porter.formats.keras.attention import ATTENTIONS
from porter.formats.keras.call_names import NamedCall, before_activation, fused_name, last_name, name_calls
from porter.formats.keras.channels_first import read_calls
from porter.formats.keras.flow import SOURCE, Flow, LayerCall, Result, Stated, results_in, with_stated
from porter.formats.keras.layer_readers import (
    FUSING,
    MERGES,
    is_in_training,
    read_activation,
    read_layer,
)
from porter.formats.keras.operations import read_operation
from porter.formats.keras.products import stored_array
from porter.formats.keras.scaling import numbers_in
from porter.formats.keras.stated_layer import KerasLayer, Taken, Walk
from porter.formats.keras.versions import operation_name
from porter.formats.limits import StatedFields, most_bytes
from porter.graph import MOST_CONSTANTS
from porter.padding import Size
from porter.padding.sizes import MAX_SIDE

_OPERANDS = ("x", "x1", "a", "inputs", "y", "x2", "b", "query", "value", "key", "bias")
"""Keywords of an operation, or of an attention, that are operands, in their order."""
_IMAGE: NodeOutput = ("", 0)
_OPERATORS: Operators[KerasLayer] = Operators(tensors_of=lambda layer: layer.tensors)
_DAMAGED = (ValueError, OverflowError)
"""Raised by what is no description of a layer; a TypeError or a LookupError is a fault of porter's."""


def read_graph(
    text: str | bytes,
    tensors: NamedArrays,
    where: str,
    metadata: Stated | None = None,
    outputs: Sequence[str] = (),
) -> FileGraph | str:
    """Read the graph of a Keras model's config. Return a sentence about what the model takes where that is no
    image, and an empty one where the model is not made of a list of layers.

    Constants of the config that are arrays are tensors of the graph's own, in `evaluated`.

    Args:
        text: the config as JSON, which the graph keeps as its definition.
        tensors: the checkpoint's; nodes name those that they use.
        where: the file, for messages.
        metadata: what the file states beside the config, `keras_version` and `backend`.
        outputs: names of layers, or of layers with an activation (`dense:relu`, or `dense:linear` before it),
            at which the graph ends.

    Raises:
        UsageError: the model lacks one of `outputs`.
        FileError: it is not JSON, or not a Keras model's config.
    """
    text = with_stated(text, metadata or {}, where)
    flow = read_calls(text, where)
    if flow is None:
        return ""
    image = _image_input(flow.shape)
    if image is None:
        return _describe_input(flow)
    definition = text.encode() if isinstance(text, str) else text
    calls = name_calls(flow, tensors)
    ends = (
        _find_outputs(calls, outputs) if outputs else [_node_output(calls, result) for result in flow.outputs]
    )

    model = _Model(flow, calls, tensors, where)

    def read(size: Size) -> FileGraph:
        return model.graph(replace(image, size=size), ends)

    # An array's sizes are known; a map's may be open, and are then found by reading.
    graph = read(image.size) if image.shape else read_for_sizes(image.size, read)
    names = flow.names if not outputs and len(flow.names) == len(graph.outputs) else ()
    return replace(
        graph,
        output_names=names,
        halves=flow.halves,
        definition=definition,
        language="keras",
    )


def _image_input(shape: Sequence[int | None]) -> GraphInput | None:
    """Return the graph's input for a model's input of this shape: a map of rows, columns and channels, or an
    array of known axes, whose numbers stand in a map of one channel. Return None where it is neither (a map
    of unknown channels, an open axis, no shape at all), or where the array is too large.

    Args:
        shape: of the input, batch first; empty where the config states none.
    """
    _, *sizes = shape or (None,)
    # A map, whose rows and columns may be open.
    if len(sizes) == 3:
        rows, columns, channels = sizes
        return GraphInput(_IMAGE, channels, (rows, columns)) if channels else None
    known = [size for size in sizes if size]
    if not known or len(known) < len(sizes):
        return None
    # An array of F is one row, and of further axes rows by the product of the others.
    rows, columns = (1, known[0]) if len(known) == 1 else (known[0], math.prod(known[1:]))
    if max(rows, columns) > MAX_SIDE:
        return None
    return GraphInput(_IMAGE, 1, (rows, columns), shape=tuple(known))


def _describe_input(flow: Flow) -> str:
    """Return a sentence about the input of a model that takes neither an image nor an array of known axes."""
    if not flow.shape[1:]:
        return "its config states no shape of its input"
    text = "x".join(str(size or "?") for size in flow.shape[1:])
    return f"its first input is Nx{text}, and a port takes images NxHxWxC, or arrays of known axes"


def with_graph(checkpoint: Checkpoint, graph: FileGraph | str) -> Checkpoint:
    """Return the checkpoint with its graph and the tensors that only the graph has, or with a note of the
    reason why there is none, if that is not empty.
    """
    if isinstance(graph, str):
        return replace(checkpoint, notes=(*checkpoint.notes, f"{UNREAD}: {graph}")) if graph else checkpoint
    return replace(
        checkpoint,
        graph=graph,
        notes=(*checkpoint.notes, *graph.notes),
        tensors={**checkpoint.tensors, **graph.evaluated},
    )


def _node_output(calls: Sequence[NamedCall], result: Result) -> NodeOutput:
    """Return the value of a call's result after the layer's activation; the model's image for `SOURCE`."""
    if result.call < 0:  # SOURCE
        return _IMAGE
    return last_name(calls[result.call]), result.output


def _find_outputs(calls: Sequence[NamedCall], outputs: Sequence[str]) -> list[NodeOutput]:
    """Return the values of the nodes that a user names, in this order; a layer's name means its value after
    its activation.

    Raises:
        UsageError: the model lacks one of them.
    """
    by_name: dict[str, NodeOutput] = {}
    for named in calls:
        by_name |= {before_activation(named): (named.name, 0), last_name(named): (last_name(named), 0)}
    # These come last, so that a layer's own name means what comes after its activation.
    by_name |= {named.name: (last_name(named), 0) for named in calls}
    expect_values(outputs, by_name)
    return [by_name[name] for name in outputs]


@dataclass(frozen=True)
class _Model:
    """A model's calls under their names, and the file's tensors.

    Attributes:
        where: the file, for messages.
    """

    flow: Flow
    calls: Sequence[NamedCall]
    tensors: NamedArrays
    where: str

    def graph(self, image: GraphInput, ends: Sequence[NodeOutput]) -> FileGraph:
        """Build the graph for an image, up to the values `ends`."""
        calls = self.calls
        names_before = {named.name: before_activation(named) for named in calls}
        layers = dict[str, KerasLayer]()
        stored = _StoredArrays({}, set())
        # The names of the nodes that depend on the image; all other values are constants.
        live = {_IMAGE[0], *(named.name for named in calls), *map(fused_name, calls)}
        flow = Dataflow(
            layers,
            live,
            Arrays(stored.arrays),
            _OPERATORS,
            budget=most_bytes(sum(array.nbytes for array in self.tensors.values())),
        )
        inputs = {named.name: _further_image(self.flow, named) for named in calls}
        further = {name: image for name, image in inputs.items() if image is not None}

        # A tap is the name under which the engine gives a value; it gives only a call's first one.
        def tap(source: NodeOutput) -> str | None:
            return None if source[1] else names_before.get(source[0], source[0])

        walk = begin(flow, image, stored.arrays, tap, further)
        # A layer that is nothing but a stored array does not depend on the image.
        live -= self._add_layers(walk, layers, stored)
        read_nodes(walk, lambda op: self._read, moves_are_nodes=True)
        graph = finish(walk, ends)
        used_names = {tensor.name for node in graph.nodes for tensor in node.tensors.values()}
        evaluated = {name: array for name, array in flow.evaluated.items() if name in used_names}
        return replace(graph, evaluated=evaluated)

    def _add_layers(self, walk: Walk, layers: dict[str, KerasLayer], stored: _StoredArrays) -> set[str]:
        """Add the layers of all calls to `layers` and their arrays to `stored`, and return the names of those
        that are stored arrays and nothing else.
        """
        # `values` has the value that each call gives, by the call's place in the flow.
        values, array_layers = {SOURCE.call: _IMAGE}, set[str]()
        for index, named in enumerate(self.calls):
            for layer in _layers_of(named, values, self.tensors, self.flow.keras):
                if layer.name in layers:
                    message = f"two layers have the name '{layer.name}'"
                    raise FileError(message, where=self.where, next="save the model again")
                layers[layer.name] = layer
                values[index] = layer.name, 0
                try:
                    constants, added = stored.add(layer)
                except _DAMAGED as error:
                    raise _unreadable_layer(layer, error, self.where) from None
                for name, constant in constants.items():
                    walk.flow.store_computed(name, constant)
                layers |= {name: replace(layer, name=name, inputs=()) for name in added if name not in layers}
                if (array := stored.array_name(layer)) is not None:
                    # What reads the layer reads the array.
                    values[index] = array, 0
                    array_layers.add(layer.name)
                    break
        return array_layers

    def _read(self, walk: Walk, layer: KerasLayer) -> Outputs:
        """Return what a layer gives. Damage in its config becomes a FileError, and Unsupported where a value
        that it reads has an unknown shape.
        """
        try:
            return as_outputs(layer.read(layer, *map(Scope(walk, layer).tensor, layer.inputs)))
        except _DAMAGED as error:
            if any(walk.flow.is_live(source) and walk.sizes(source) is None for source in layer.inputs):
                raise Unsupported(OF_UNKNOWN_SHAPE) from None
            raise _unreadable_layer(layer, error, self.where) from None


def _further_image(flow: Flow, named: NamedCall) -> GraphInput | None:
    """Return the graph's input for a call that is a further input of the model; None for any other call."""
    *models, name = named.call.path
    if named.call.kind != "InputLayer" or models or name not in flow.further:
        return None
    rows, columns = (*flow.shape[1:3], None, None)[:2]
    return further_image((named.name, 0), flow.further[name], flow.shape[0], (rows, columns))


def _unreadable_layer(layer: KerasLayer, error: Exception, where: str) -> FileError:
    """Return the error of a layer whose config porter cannot read."""
    reason = f"{type(error).__name__} {first_line(error)}"
    message = f"the file's description of layer '{layer.name}' cannot be read: {reason}"
    return FileError(message, where=where, next="save the model again")


@dataclass
class _StoredArrays:
    """The stored arrays that layers take as values, by name, and the values that are ones: Keras can say a
    trained array only as an EinsumDense of ones.
    """

    arrays: dict[str, Array]
    ones: set[NodeOutput]

    def add(self, layer: KerasLayer) -> tuple[NamedArrays, list[str]]:
        """Add the arrays that a layer holds (constants of the config) or is (a trained array). Return those
        that the file's tensors lack, by name, and the names of all that were added.
        """
        # Ones stay ones when they are repeated.
        if layer.op == "ones_like" or (layer.op == "repeat" and layer.source in self.ones):
            self.ones.add((layer.name, 0))
        constants = layer.constants
        if layer.op == "negative" and (operand := layer.source[0]) in self.arrays:
            constants = {layer.name: np.negative(self.arrays[operand])}
        added = {**constants}
        if (array := stored_array(layer)) is not None:
            name, content = array
            added[name] = content
        self.arrays |= added
        return constants, list(added)

    def array_name(self, layer: KerasLayer) -> str | None:
        """Return the name of the array that a layer is, if it is nothing else; None otherwise."""
        array = stored_array(layer)
        if (
            array is not None
            and layer.source in self.ones
            and activation_name(layer.arguments.get("activation")) == "linear"
        ):
            return array[0]
        return layer.name if layer.op == "negative" and layer.name in self.arrays else None


def _layers_of(
    named: NamedCall, values: Mapping[int, NodeOutput], tensors: NamedArrays, keras: int
) -> Iterator[KerasLayer]:
    """Yield the nodes of one call: the layer, and its `activation` argument if it has one.

    Args:
        named: the call.
        values: what each call before it gives, by its place in the flow.
        tensors: the checkpoint's.
        keras: the major version of Keras.
    """
    call = named.call
    operation = operation_name(named.call.kind, named.call.arguments)
    inputs = tuple(_reference(result, values) for result in results_in(call.inbound))
    has_operands = operation or call.kind in ATTENTIONS
    arguments = StatedFields({**call.arguments, **(call.inbound.keywords if has_operands else {})})
    arrays = {variable: tensors[name] for variable, name in named.tensors.items()}
    constants: dict[str, Array] = {}

    def hold(array: Array) -> NodeOutput:
        """Keep an array under a name of its own, and return a reference to it."""
        name = f"{named.name}:constant{len(constants) or ''}"
        constants[name] = array
        return name, 0

    operands = (
        tuple(_take_operand(operand, values, hold) for operand in operands_of(call)) if has_operands else ()
    )
    read = read_operation if operation else partial(_read_layer, call)
    layer = KerasLayer(
        named.name,
        op=operation or call.kind,
        arguments=arguments,
        inputs=inputs,
        keras=keras,
        read=read,
        tensors=named.tensors,
        arrays=arrays,
        operands=operands,
    )
    yield replace(layer, constants=constants)
    if not operation and call.kind in FUSING:
        yield replace(
            layer, name=fused_name(named), inputs=((named.name, 0),), tensors={}, read=read_activation
        )


def _read_layer(call: LayerCall, layer: KerasLayer, *values: Tensor) -> Any:
    """Return what a layer gives in inference; raise Unsupported for a call that its layer does not take."""
    _expect_plain_call(layer, call)
    return read_layer(layer, *values)


def _expect_plain_call(layer: KerasLayer, call: LayerCall) -> None:
    """Raise Unsupported for a call of other values than its layer takes, or in training."""
    if len(layer.inputs) != 1 and not (layer.inputs and call.kind in MERGES):
        raise Unsupported(f"of {len(layer.inputs)} values" if layer.inputs else "as a further one")
    if is_in_training(call):
        raise Unsupported("called with training=True")


def operands_of(call: LayerCall) -> list[Any]:
    """Return the operands of an operation, in order, which are results of calls and constants: the arguments
    without names, then those that are operands by their names.
    """
    keywords = call.inbound.keywords
    return [
        *call.inbound.arguments,
        *(keywords[name] for name in _OPERANDS if keywords.get(name) is not None),
    ]


def _reference(result: Result, values: Mapping[int, NodeOutput]) -> NodeOutput:
    """Return the node's output that a result is.

    Args:
        values: the first outputs of all calls before it, by the calls' places in the flow.
    """
    first_output = values[result.call]
    if not result.output:
        return first_output
    node, _ = first_output
    return node, result.output


def _take_operand(operand: Any, values: Mapping[int, NodeOutput], hold: Callable[[Array], NodeOutput]) -> Any:
    """Return an operand with `Taken` for each value in it, and for each array of several axes or of many
    numbers, which `hold` keeps; others stay as they are.

    Args:
        operand: an argument of an operation, or an item of one.
        values: what each call before it gives, by its place in the flow.
    """
    if isinstance(operand, Result):
        return Taken(_reference(operand, values))
    array = numbers_in(operand) if isinstance(operand, list) else None
    # One of several axes has more numbers than its last axis.
    if array is not None and array.size > min(array.shape[-1], MOST_CONSTANTS):
        return Taken(hold(array))
    if isinstance(operand, tuple):
        return tuple(_take_operand(item, values, hold) for item in operand)
    return operand
