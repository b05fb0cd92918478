"""A TensorFlow graph as porter's FileGraph and the tensors in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.filegraph.builder import Builder, Value
from porter.filegraph.dataflow import Dataflow, NodeOutput, names_depending_on
from porter.filegraph.file_graph import FileGraph, fill_free_size, read_for_sizes
from porter.filegraph.kernels.program import value_name
from porter.filegraph.names import with_scope_names
from porter.filegraph.reading import GraphInput, begin, read_nodes
from porter.filegraph.tensorflow import further_image
from porter.formats.tensorflow import import_tensorflow
from porter.formats.tf_graph.arithmetic import kind_of
from porter.formats.tf_graph.constants import HALF_TYPES, RESHAPES, GraphConstants, is_cast
from porter.formats.tf_graph.ends import input_sizes
from porter.formats.tf_graph.function_calls import inline_functions
from porter.formats.tf_graph.nodes import GraphNode, Refuse, Walk, ordered
from porter.formats.tf_graph.ops import READERS
from porter.graph import OF_LOGITS
from porter.padding import ANY, Size

_FLOAT = 1
_MOST_ROUNDS = 16
"""So often a graph is read again because a condition was known; a branch may have another If."""
_KERNEL_OPS = ("Conv2D", "DepthwiseConv2dNative")
_THROUGH = frozenset(
    {
        "Identity",
        "IdentityN",
        "Snapshot",
        "StopGradient",
        "CheckNumerics",
        "PlaceholderWithDefault",
        "PreventGradient",
        "ReadVariableOp",
    }
)
"""Ops that give their only input unchanged; IdentityN gives each of several."""


@dataclass(frozen=True)
class PlainGraph:
    """A graph without function calls.

    Attributes:
        nodes: by name, in any order; a node with a value in `variables` is a variable, whatever its op.
        variables: values by the names of their nodes.
        image: the node that takes images; its own inputs are ignored.
        ends: the values that the graph gives.
        budget: bytes that its constants may unpack to together.
        size: of the image, where the graph leaves it open.
        functions: that its nodes may call: the branches of an If.
    """

    nodes: Mapping[str, GraphNode]
    variables: NamedArrays
    image: str
    ends: Sequence[NodeOutput]
    budget: int
    size: Size | None = None
    functions: Sequence[Any] = ()


def read_graph(graph: PlainGraph, refuse: Refuse) -> tuple[FileGraph, dict[str, Array]]:
    """The graph in porter's terms, and its tensors: every variable, every weight that a node takes, every big
    constant, and what porter computed from them.

    A tap is the name of a TensorFlow op and means its first output, or has the output's place behind it:
    `split:1`. The definition is a GraphDef of the nodes that lead to the outputs, without those that give a
    constant unchanged, and without control inputs, devices and underscored attributes; in it the tensors are
    constants with their names, types and shapes, without their content; numbers that the file rounds and a
    port does not are exact.

    Raises:
        FileError: there is a loop, a node is missing, or a constant does not hold what it declares.
    """
    graph = replace(
        graph, nodes=_without_integers(_begun_at(graph.image, _with_constants(graph)), graph.image)
    )
    readings: list[tuple[PlainGraph, Walk, GraphConstants]] = []

    def read(size: Size) -> FileGraph:
        # A branch that is taken at one size only may have nodes of the names of another one's.
        constants = GraphConstants(graph.nodes, graph.variables, graph.budget, refuse)
        decided, walk, graph_read = _decided(graph, constants, size)
        readings.append((decided, walk, constants))
        return graph_read

    file_graph = read_for_sizes(fill_free_size(_cells(graph.nodes[graph.image]), graph.size), read)
    decided, walk, constants = readings[-1]
    used = [
        stored.name
        for node in file_graph.nodes
        for stored in node.tensors.values()
        if stored.name not in file_graph.evaluated
    ]
    nodes = decided.nodes.values()
    big = [node.name for node in nodes if node.name in graph.variables or constants.is_big(node)]
    tensors = {name: constants.array(name) for name in dict.fromkeys(used + big)}
    definition = _definition(_carried(decided), tensors, walk.exact, file_graph.resizable)
    file_graph = replace(
        file_graph, traced=graph.size is not None, definition=definition, language="tensorflow"
    )
    return file_graph, {**tensors, **file_graph.evaluated}


def _decided(graph: PlainGraph, constants: GraphConstants, size: Size) -> tuple[PlainGraph, Walk, FileGraph]:
    """A graph in order, and as it is read at a size, with a branch in place of each StatelessIf that is
    decided there: whose condition is stored, or computed from known sizes.
    """
    for _ in range(_MOST_ROUNDS):
        constants.nodes = {**constants.nodes, **graph.nodes}
        nodes = ordered(graph.nodes, [name for name, _ in graph.ends], constants.refuse)
        graph = replace(graph, nodes=nodes)
        short = _shortened(nodes)
        walk, file_graph = _walked(graph, short, constants, size)
        chosen = {
            name: replace(branch, inputs=nodes[name].inputs[1:])
            for name, node in short.nodes.items()
            if (branch := _branch(walk, graph, node)) is not None
        }
        if not chosen:
            break
        inlined = inline_functions({**nodes, **chosen}, graph.functions, constants.refuse)
        ends = [inlined.moved.get(end, end) for end in graph.ends]
        graph = replace(graph, nodes=inlined.nodes, ends=ends)
    return graph, walk, file_graph


def _carried(graph: PlainGraph) -> dict[str, GraphNode]:
    """The nodes of a graph without those that give a constant unchanged: one that reads a variable cannot be
    run, because the variable is a constant here. Those that give a value of the image unchanged stay, so that
    the graph is run as the file has it, whatever a reader makes of it.
    """
    images = (node.name for node in graph.nodes.values() if node.op == "Placeholder")
    live = names_depending_on(graph.nodes, [graph.image, *images])
    return _shortened(graph.nodes, live).nodes


def _branch(walk: Walk, graph: PlainGraph, node: GraphNode) -> GraphNode | None:
    """The call of a decided StatelessIf's branch; None of other nodes, and of one that takes a variable,
    which it might change.
    """
    takes_variable = any(source in graph.variables for source, _ in node.inputs)
    condition = (
        walk.flow.truth(node.source)
        if node.op == "StatelessIf" and node.inputs and not takes_variable
        else None
    )
    which = "then_branch" if condition else "else_branch"
    if condition is None or which not in node.attributes:
        return None
    return replace(
        node, op="PartitionedCall", inputs=node.inputs[1:], attributes={"f": node.attributes[which]}
    )


def _walked(
    graph: PlainGraph, short: _Shortened, constants: GraphConstants, size: Size
) -> tuple[Walk, FileGraph]:
    """A graph that is in order, read as it is shortened for images of a size."""
    placeholders = [node for node in short.nodes.values() if node.op == "Placeholder"]
    live = names_depending_on(short.nodes, [graph.image, *(node.name for node in placeholders)])
    flow = Dataflow(short.nodes, live, constants, kind_of, is_cast, RESHAPES, graph.budget)
    batch, channels = _image_shape(short.nodes, graph.image, flow)
    image_size = _cells(short.nodes[graph.image])
    others = [node for node in placeholders if node.name != graph.image and node.type("dtype") == _FLOAT]
    beside = {
        node.name: further_image((node.name, 0), input_sizes(node), batch, image_size) for node in others
    }
    further = {name: image for name, image in beside.items() if image is not None}
    image = GraphInput((graph.image, 0), channels, size, batch, fixed=True)
    walk = begin(flow, image, graph.variables, value_name, further)
    read_nodes(walk, READERS.get)
    names = {value_name(end): short.moved.get(end, end) for end in graph.ends}
    ends = walk.output_values(names.values())
    file_graph = walk.finish(ends, _given(walk.builder, ends), names)
    halves = _halves(node for node in short.nodes.values() if node.name in live)
    return walk, with_scope_names(replace(file_graph, halves=halves))


def _halves(nodes: Iterable[GraphNode]) -> tuple[Dtype, ...]:
    """The types of half precision in which nodes compute, or to which they cast."""
    kinds = {node.type(key) for node in nodes for key in ("DstT", "T")}
    return tuple(half for kind, half in HALF_TYPES.items() if kind in kinds)


def _given(builder: Builder, ends: Mapping[NodeOutput, Value]) -> list[NodeOutput]:
    """The ends without those that are another end's logits, and without the input."""
    by_end = {end.node: source for source, end in ends.items() if end.node in builder.nodes}
    activations = [node for name in by_end if isinstance((node := builder.nodes[name]).op, OF_LOGITS)]
    inside = {source for node in activations for source in node.inputs}
    return [source for name, source in by_end.items() if name not in inside]


def _with_constants(graph: PlainGraph) -> dict[str, GraphNode]:
    """The nodes with variables as constants without inputs."""
    constants = {name: GraphNode(name, "Const", (), {}) for name in graph.nodes if name in graph.variables}
    return {**graph.nodes, **constants}


@dataclass(frozen=True)
class _Shortened:
    """A graph without nodes that give their input unchanged.

    Attributes:
        moved: by the value of such a node, the value that it gives unchanged.
    """

    nodes: dict[str, GraphNode]
    moved: Mapping[NodeOutput, NodeOutput]


def _shortened(nodes: Mapping[str, GraphNode], exempt: Collection[str] = ()) -> _Shortened:
    """`nodes`, which are in order, without those that give their input unchanged, but with `exempt` ones."""
    moved: dict[NodeOutput, NodeOutput] = {}
    shortened: dict[str, GraphNode] = {}
    for node in nodes.values():
        inputs = tuple(moved.get(source, source) for source in node.inputs)
        if node.op in _THROUGH and node.name not in exempt and (len(inputs) == 1 or node.op == "IdentityN"):
            moved |= {(node.name, index): source for index, source in enumerate(inputs)}
        else:
            shortened[node.name] = replace(node, inputs=inputs)
    return _Shortened(shortened, moved)


def _begun_at(image: str, nodes: dict[str, GraphNode]) -> dict[str, GraphNode]:
    """The graph from the image on, without the nodes that compute the image."""
    node = nodes[image]
    if node.op != "Placeholder":
        kind = node.attributes.get("dtype") or node.attributes["T"]
        shape_attributes = {
            name: node.attributes[name] for name in ("shape", "_output_shapes") if name in node.attributes
        }
        nodes[image] = GraphNode(image, "Placeholder", (), {"dtype": kind, **shape_attributes})
    return nodes


def _without_integers(nodes: dict[str, GraphNode], image: str) -> dict[str, GraphNode]:
    """Makes a graph that takes bytes and casts them to floats take the floats."""
    readers = [node for node in nodes.values() if (image, 0) in node.inputs]
    types = {node.type("DstT") for node in readers if node.op == "Cast"}
    if (
        nodes[image].type("dtype") == _FLOAT
        or types != {_FLOAT}
        or any(node.op != "Cast" for node in readers)
    ):
        return nodes
    for node in readers:
        nodes[node.name] = replace(node, op="Identity", attributes={"T": node.attributes["DstT"]})
    nodes[image] = replace(
        nodes[image], attributes={**nodes[image].attributes, "dtype": readers[0].attributes["DstT"]}
    )
    return nodes


def _cells(image: GraphNode) -> Size:
    """Rows and columns, as the graph states them."""
    sizes = input_sizes(image)
    return (sizes[1], sizes[2]) if len(sizes) == 4 else ANY


def _image_shape(
    nodes: Mapping[str, GraphNode], image: str, flow: Dataflow[GraphNode]
) -> tuple[int | None, int]:
    """Batch and channels. If the image does not state its channels, the first kernel does."""
    sizes = input_sizes(nodes[image])
    batch, *_, channels = sizes if len(sizes) == 4 else (None, None)
    for node in nodes.values():
        if channels is None and node.op in _KERNEL_OPS and len(node.inputs) == 2:
            kernel = flow.tensor(node.inputs[1])
            channels = kernel.shape[2] if kernel is not None and len(kernel.shape) == 4 else None
    return batch, 3 if channels is None else channels


def _definition(
    nodes: Mapping[str, GraphNode], tensors: NamedArrays, exact: Mapping[str, float], at_every: bool
) -> bytes:
    """Args: at_every: the image's rows and columns are left open."""
    tf = import_tensorflow()
    definition = tf.compat.v1.GraphDef()
    definition.versions.producer = tf.version.GRAPH_DEF_VERSION
    for node in nodes.values():
        made = definition.node.add(name=node.name, op=node.op)
        made.input.extend(map(value_name, node.inputs))
        if node.name in tensors:
            _declare(made, tensors[node.name], tf)
            continue
        if node.name in exact:
            made.attr["dtype"].type = tf.float64.as_datatype_enum
            made.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(exact[node.name], tf.float64))
            continue
        for name, value in node.attributes.items():
            if not name.startswith("_"):
                made.attr[name].CopyFrom(value)
        if node.op == "Placeholder" and (sizes := input_sizes(node)):
            taken = (*sizes[:1], None, None, *sizes[3:]) if at_every and len(sizes) == 4 else sizes
            made.attr["shape"].shape.CopyFrom(tf.TensorShape(taken).as_proto())
    return bytes(definition.SerializeToString(deterministic=True))


def _declare(made: Any, array: Array, tf: Any) -> None:
    """A constant's type and shape without its content."""
    kind = tf.dtypes.as_dtype(np.dtype(array.dtype)).as_datatype_enum
    made.attr["dtype"].type = kind
    made.attr["value"].tensor.dtype = kind
    made.attr["value"].tensor.tensor_shape.CopyFrom(tf.TensorShape(array.shape).as_proto())
