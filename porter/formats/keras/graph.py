"""The graph that a whole-model Keras file carries, from its config and the names and shapes of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from porter.dtypes import Array
from porter.errors import FileError, PaddingError
from porter.filegraph.file_graph import FileGraph, FileNode, Foreign, Stored
from porter.formats.keras.flow import SOURCE, Call, Flow, Value, read_flow, values_in
from porter.formats.keras.layer import Layer, Shape, Step
from porter.formats.keras.layers import (
    IDENTITY_AT_INFERENCE,
    activation_step,
    holds_tensors,
    is_in_training,
    layer_roles,
    layer_step,
)
from porter.formats.keras.naming import name_layers
from porter.formats.keras.scaling import keeps_dimensions, operation_of, operation_step
from porter.formats.keras.windows import padding_of, takes_pads
from porter.graph import INPUT, Concat, Conv, Dense, GlobalAvgPool, GlobalMaxPool, Identity, Op, site_of
from porter.padding import Pads, output_size

_NO_PADS: Pads = (0, 0, 0, 0)


@dataclass(frozen=True)
class Named:
    """A call with its node's name, and its layer's tensors: variable to name in the checkpoint."""

    call: Call
    name: str
    tensors: Mapping[str, str]


def read_graph(text: str | bytes, tensors: Mapping[str, Array], where: str) -> FileGraph | None:
    """The graph of a Keras model's config; None where the model is not made of a list of layers, or takes no image.

    Args:
        text: the config as JSON, which the graph keeps as its definition.
        tensors: the checkpoint's; nodes name those that they use.
        where: the file, for messages.

    Raises:
        FileError: it is not JSON, or not a Keras model's config.
    """
    flow = read_flow(text, where)
    if flow is None or len(flow.shape) != 4:
        return None
    _, rows, columns, channels = flow.shape
    if not channels:
        return None
    nodes, outputs = _translate(flow, Shape(channels, (rows, columns)), tensors, where)
    # A graph that is right only at this size, as with a Flatten of a map of one cell, differs where the size is unknown.
    resizable = nodes == _translate(flow, Shape(channels, (None, None)), tensors, where)[0]
    definition = text.encode() if isinstance(text, str) else text
    return FileGraph(nodes, outputs, channels, (rows, columns), resizable, definition)


def _translate(flow: Flow, shape: Shape, tensors: Mapping[str, Array], where: str) -> tuple[tuple[FileNode, ...], tuple[str, ...]]:
    """The nodes that lead to an output, and the names of the outputs, for an input of `shape`."""
    builder = _Builder(shape, tensors)
    try:
        for named in name_calls(flow, tensors):
            builder.add(named)
        outputs = tuple(builder.output(value) for value in flow.outputs)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        message = f"the file's description of layer '{builder.current}' cannot be read: {type(error).__name__} {error}"
        raise FileError(message.splitlines()[0][:300], where=where, next="save the model again") from None
    return _needed(builder.nodes, outputs), outputs


def name_calls(flow: Flow, tensors: Mapping[str, Array]) -> list[Named]:
    """Every call with the name of its node: its layer's name, `layer:2` at the layer's second call."""
    holders = [call.path for call in flow.calls if not call.call_index and holds_tensors(call.kind)]
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


def fused_name(named: Named) -> str:
    """The name of the node for a layer's `activation` argument, such as `dense:softmax`."""
    stated = named.call.arguments.get("activation")
    return f"{named.name}:{stated.rpartition('.')[2] if isinstance(stated, str) else 'activation'}"


@dataclass(frozen=True)
class _Known:
    """A value: the node that gives it, its shape before the pads, and the pads that its readers may include.

    Attributes:
        pads: of ZeroPadding2D layers after the node.
        padded: name of the last of them.
    """

    node: str
    shape: Shape
    pads: Pads = _NO_PADS
    padded: str = ""


@dataclass
class _Builder:
    source: Shape
    tensors: Mapping[str, Array]
    nodes: dict[str, FileNode] = field(default_factory=dict)
    values: list[_Known] = field(default_factory=list)
    current: str = INPUT

    def add(self, named: Named) -> None:
        """Adds one call, as no node, one, or two."""
        self.current, call = named.name, named.call
        inputs = [self._known(value) for value in values_in(call.given)]
        if call.kind == "ZeroPadding2D" and len(inputs) == 1 and (pads := _pads(call)) is not None:
            before = inputs[0]
            top, bottom, left, right = (a + b for a, b in zip(before.pads, pads, strict=True))
            self.values.append(replace(before, pads=(top, bottom, left, right), padded=named.name))
            return
        identity = call.kind in IDENTITY_AT_INFERENCE and call.kind != "RandomCrop"
        keeps_pads = identity or takes_pads(call.kind, call.arguments)
        if not keeps_pads:
            inputs = [self._pads_as_node(known) for known in inputs]
        step = _step(named, inputs, self.tensors)
        if step is None:
            self.values.append(replace(inputs[0], shape=_reshaped(call, inputs[0].shape)))
            return
        if isinstance(step, Foreign) and keeps_pads:
            inputs = [self._pads_as_node(known) for known in inputs]
        self._append(named, step, inputs)

    def output(self, value: Value) -> str:
        """The name of the node that gives an output. It adds a node where the model gives its own input."""
        known = self._pads_as_node(self._known(value))
        if known.node != INPUT:
            return known.node
        name = _unused("output", self.nodes)
        self.nodes[name] = FileNode(name, Identity(), (INPUT,))
        return name

    def _known(self, value: Value) -> _Known:
        return _Known(INPUT, self.source) if value == SOURCE else self.values[value.call]

    def _append(self, named: Named, step: Step, inputs: list[_Known]) -> None:
        name, call = _unused(named.name, self.nodes), named.call
        fused = activation_step(call.arguments.get("activation")) if isinstance(step, Conv | Dense) else None
        roles = {
            role: Stored(named.tensors[variable], _axes(call.kind, variable))
            for role, variable in layer_roles(named.tensors, step).items()
        }
        self.nodes[name] = FileNode(name, step, tuple(known.node for known in inputs), roles, tap=named.name)
        shape = _output_shape(step, call, [known.shape for known in inputs])
        if fused:
            after = _unused(fused_name(named), self.nodes)
            self.nodes[after] = FileNode(after, fused, (name,), tap=fused_name(named))
            name = after
        self.values.append(_Known(name, shape))

    def _pads_as_node(self, known: _Known) -> _Known:
        """A value with its pads as a node that porter has no op for, because its reader cannot include them."""
        if not any(known.pads):
            return known
        if known.padded not in self.nodes:
            kind = Foreign("ZeroPadding2D that no convolution or pool can include")
            self.nodes[known.padded] = FileNode(known.padded, kind, (known.node,), tap=known.padded)
        return _Known(known.padded, _grown(known.shape, known.pads))


def _step(named: Named, inputs: list[_Known], tensors: Mapping[str, Array]) -> Step | None:
    """The step that a call computes; None where it gives its input back."""
    call = named.call
    operation = operation_of(call)
    if operation is not None and inputs:
        return operation_step(operation, call)
    if call.kind == "TFOpLambda":
        return Foreign(f"TFOpLambda {call.arguments.get('function')!r:.60}")
    merges = call.kind in ("Add", "Concatenate")
    if len(inputs) != 1 and not (merges and inputs):
        return Foreign(f"{call.kind} of {len(inputs)} values" if inputs else f"a further {call.kind}")
    if is_in_training(call):
        return Foreign(f"{call.kind} called with training=True")
    if call.call_index and holds_tensors(call.kind):
        return Foreign(f"{call.kind} called a second time")
    variables = {variable: tensors[name] for variable, name in named.tensors.items()}
    if merges and len(inputs) == 1:
        return None
    return layer_step(Layer(call.kind, call.arguments, inputs[0].shape, inputs[0].pads, variables))


def _pads(call: Call) -> Pads | None:
    """The pads of a ZeroPadding2D; None where porter cannot express them."""
    if call.arguments.get("data_format") not in (None, "channels_last"):
        return None
    try:
        return padding_of(call.arguments)
    except PaddingError:
        return None


def _reshaped(call: Call, shape: Shape) -> Shape:
    """The shape after a call that gives its input's values back."""
    if call.kind == "Flatten":
        return replace(shape, flat=True)
    if call.kind == "Reshape":
        return replace(shape, size=(1, 1), flat=len(call.arguments["target_shape"]) == 1)
    return shape


def _output_shape(step: Step, call: Call, inputs: list[Shape]) -> Shape:
    first = inputs[0] if inputs else Shape(None, (None, None))
    if isinstance(step, Foreign):
        return Shape(None, (None, None))
    if isinstance(step, GlobalAvgPool | GlobalMaxPool):
        kept = keeps_dimensions(call)
        return Shape(first.channels, (1, 1), flat=not kept)
    if isinstance(step, Dense):
        return replace(first, channels=step.units)
    if isinstance(step, Concat):
        counts = [shape.channels for shape in inputs]
        return replace(first, channels=None if None in counts else sum(filter(None, counts)))
    site = site_of(step) if isinstance(step, Op) else None
    if site is None:
        return first
    size = output_size(site.convention, site.window, first.size)
    return Shape(step.filters if isinstance(step, Conv) else first.channels, size)


def _axes(kind: str, variable: str) -> str:
    if variable not in ("kernel", "depthwise_kernel"):
        return ""
    return {"Dense": "IO", "DepthwiseConv2D": "HWIM"}.get(kind, "HWIO")


def _grown(shape: Shape, pads: Pads) -> Shape:
    rows, columns = shape.size
    return replace(
        shape, size=(None if rows is None else rows + pads[0] + pads[1], None if columns is None else columns + pads[2] + pads[3])
    )


def _needed(nodes: Mapping[str, FileNode], outputs: tuple[str, ...]) -> tuple[FileNode, ...]:
    """The nodes that lead to an output."""
    found: set[str] = set()
    waiting = list(outputs)
    while waiting:
        name = waiting.pop()
        if name in nodes and name not in found:
            found.add(name)
            waiting += nodes[name].inputs
    return tuple(node for node in nodes.values() if node.name in found)


def _unused(name: str, taken: Mapping[str, FileNode]) -> str:
    candidate, count = name, 1
    while candidate in taken or candidate == INPUT:
        count += 1
        candidate = f"{name}_{count}"
    return candidate
