"""A TensorFlow graph as porter's FileGraph and the tensors in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.filegraph.builder import Builder
from porter.filegraph.dataflow import Dataflow, Operators, names_depending_on
from porter.filegraph.file_graph import FileGraph, fill_free_size, read_for_sizes
from porter.filegraph.finishing import finish
from porter.filegraph.layer_values import Value
from porter.filegraph.names import with_scope_names
from porter.filegraph.reading import GraphInput, begin, read_nodes
from porter.filegraph.tensorflow import further_image
from porter.filegraph.value_names import NodeOutput, value_name
from porter.formats.tensorflow import FLOAT_TYPE, import_tensorflow
from porter.formats.tf_graph.arithmetic import kind_of
from porter.formats.tf_graph.constants import HALF_TYPES, RESHAPES, GraphConstants, is_cast
from porter.formats.tf_graph.ends import input_sizes
from porter.formats.tf_graph.function_calls import inline_functions
from porter.formats.tf_graph.nodes import GraphNode, Refuse, Walk, in_order_of_inputs
from porter.formats.tf_graph.ops import READERS
from porter.graph import OF_LOGITS
from porter.padding import ANY, Size

_MOST_ROUNDS = 16
"""So often a graph is read again because a condition was known; a branch may have another If."""
_KERNEL_OPS = ("Conv2D", "DepthwiseConv2dNative")
_PASSING_OPS = frozenset(
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
    """Return the graph in porter's terms, and its tensors: every variable, every weight that a node takes,
    every big constant, and what porter computed from them.

    A tap (the name under which an engine gives a value) is the name of a TensorFlow op and means its first
    output, or has the output's place behind it: `split:1`. The definition is a GraphDef of the nodes that
    lead to the outputs, without those that give a constant unchanged, and without control inputs, devices and
    underscored attributes; in it the tensors are constants with their names, types and shapes, without their
    content; numbers that the file rounds and a port does not are exact.

    Raises:
        FileError: there is a loop, a node is missing, or a constant does not hold what it declares.
    """
    nodes = _begin_at(graph.image, _variables_as_constants(graph))
    graph = replace(graph, nodes=_take_floats(nodes, graph.image))
    readings: dict[Size, _DecidedReading] = {}

    def read(size: Size) -> FileGraph:
        """Read the graph at a size, and keep the reading."""
        readings[size] = _read_decided(graph, refuse, size)
        return readings[size].file_graph

    size = fill_free_size(_stated_size(graph.nodes[graph.image]), graph.size)
    file_graph = read_for_sizes(size, read)
    # The reading whose graph is returned: at the stated size, or where none was needed there, at any size.
    decided, constants, walk, _ = readings[size] if size in readings else readings[ANY]
    used_names = [
        tensor.name
        for node in file_graph.nodes
        for tensor in node.tensors.values()
        if tensor.name not in file_graph.evaluated
    ]
    big = [
        node.name for node in decided.nodes.values() if node.name in graph.variables or constants.is_big(node)
    ]
    tensors = {name: constants.array(name) for name in dict.fromkeys(used_names + big)}
    definition = _make_definition(
        _without_unchanged_constants(decided), tensors, walk.exact, file_graph.resizable
    )
    file_graph = replace(
        file_graph, traced=graph.size is not None, definition=definition, language="tensorflow"
    )
    return file_graph, {**tensors, **file_graph.evaluated}


class _DecidedReading(NamedTuple):
    """A graph as it is read at one size: in order with the branches that are decided there, its constants,
    the walk, and what was read.
    """

    graph: PlainGraph
    constants: GraphConstants
    walk: Walk
    file_graph: FileGraph


def _read_decided(graph: PlainGraph, refuse: Refuse, size: Size) -> _DecidedReading:
    """Read a graph at a size, and put a branch in place of each StatelessIf that is decided there: whose
    condition is stored, or computed from known sizes.
    """
    # A branch that is taken at one size only may have nodes of the names of another one's.
    constants = GraphConstants(graph.nodes, graph.variables, graph.budget, refuse)
    for _ in range(_MOST_ROUNDS):
        constants.nodes = {**constants.nodes, **graph.nodes}
        nodes = in_order_of_inputs(graph.nodes, [name for name, _ in graph.ends], refuse)
        graph = replace(graph, nodes=nodes)
        shortened = _shorten(nodes)
        walk, file_graph = _read_nodes(graph, shortened, constants, size)
        branches = {
            name: replace(branch, inputs=nodes[name].inputs[1:])
            for name, node in shortened.nodes.items()
            if (branch := _branch_call(walk, graph, node)) is not None
        }
        if not branches:
            break
        inlined = inline_functions({**nodes, **branches}, graph.functions, refuse)
        ends = list(map(inlined.final, graph.ends))
        graph = replace(graph, nodes=inlined.nodes, ends=ends)
    return _DecidedReading(graph, constants, walk, file_graph)


def _without_unchanged_constants(graph: PlainGraph) -> dict[str, GraphNode]:
    """Return the nodes of a graph without those that give a constant unchanged: one that reads a variable
    cannot be run, because the variable is a constant here. Those that give a value of the image unchanged
    stay, so that the graph is run as the file has it, whatever a reader makes of it.
    """
    images = (node.name for node in graph.nodes.values() if node.op == "Placeholder")
    live = names_depending_on(graph.nodes, [graph.image, *images])
    return _shorten(graph.nodes, live).nodes


def _branch_call(walk: Walk, graph: PlainGraph, node: GraphNode) -> GraphNode | None:
    """Return a call of the branch of a decided StatelessIf, with the If's inputs behind its condition. Return
    None for other nodes, for an undecided one, and for one that takes a variable, which it might change.
    """
    takes_variable = any(source in graph.variables for source, _ in node.inputs)
    if node.op != "StatelessIf" or not node.inputs or takes_variable:
        return None
    condition = walk.flow.truth(node.source)
    branch = "then_branch" if condition else "else_branch"
    if condition is None or branch not in node.attributes:
        return None
    return replace(
        node, op="PartitionedCall", inputs=node.inputs[1:], attributes={"f": node.attributes[branch]}
    )


def _read_nodes(
    graph: PlainGraph, shortened: _ShortenedGraph, constants: GraphConstants, size: Size
) -> tuple[Walk, FileGraph]:
    """Read a graph for images of a size, in its shortened form, whose nodes are in order, and return porter's
    graph, and the walk, which knows what was computed on the way.
    """
    placeholders = [node for node in shortened.nodes.values() if node.op == "Placeholder"]
    # Live nodes depend on an input; all others are constants.
    live = names_depending_on(shortened.nodes, [graph.image, *(node.name for node in placeholders)])
    operators = Operators(kind_of, is_cast, RESHAPES)
    flow = Dataflow(shortened.nodes, live, constants, operators, budget=graph.budget)
    batch, channels = _image_shape(shortened.nodes, graph.image, flow)
    image_size = _stated_size(shortened.nodes[graph.image])
    further: dict[str, GraphInput] = {}
    for node in placeholders:
        if node.name != graph.image and node.type("dtype") == FLOAT_TYPE:
            image = further_image((node.name, 0), input_sizes(node), batch, image_size)
            if image is not None:
                further[node.name] = image
    first = GraphInput((graph.image, 0), channels, size, batch, fixed=True)
    walk = begin(flow, first, graph.variables, tap=value_name, further=further)
    read_nodes(walk, READERS.get)
    names = {value_name(end): shortened.replacements.get(end, end) for end in graph.ends}
    file_graph = finish(walk, names.values(), names, partial(_graph_outputs, walk.builder))
    halves = _half_types(node for node in shortened.nodes.values() if node.name in live)
    return walk, with_scope_names(replace(file_graph, halves=halves))


def _half_types(nodes: Iterable[GraphNode]) -> tuple[Dtype, ...]:
    """Return the types of half precision in which nodes compute, or to which they cast."""
    kinds = {node.type(key) for node in nodes for key in ("DstT", "T")}
    return tuple(half for kind, half in HALF_TYPES.items() if kind in kinds)


def _graph_outputs(builder: Builder, ends: Mapping[NodeOutput, Value]) -> list[NodeOutput]:
    """Return the ends of a graph that are its outputs: not those that are another end's logits (what a
    softmax or a sigmoid reads), nor the input itself.
    """
    # By the name of porter's node that gives it; the input has none.
    end_by_node = {value.node: end for end, value in ends.items() if value.node in builder.nodes}
    end_nodes = [builder.nodes[name] for name in end_by_node]
    logits = {name for node in end_nodes if isinstance(node.op, OF_LOGITS) for name in node.inputs}
    return [end for name, end in end_by_node.items() if name not in logits]


def _variables_as_constants(graph: PlainGraph) -> dict[str, GraphNode]:
    """Return the nodes with variables as constants without inputs."""
    constants = {name: GraphNode(name, "Const", (), {}) for name in graph.nodes if name in graph.variables}
    return {**graph.nodes, **constants}


@dataclass(frozen=True)
class _ShortenedGraph:
    """A graph without nodes that give their input unchanged.

    Attributes:
        replacements: by the value of such a node, the value that it gives unchanged.
    """

    nodes: dict[str, GraphNode]
    replacements: Mapping[NodeOutput, NodeOutput]


def _shorten(nodes: Mapping[str, GraphNode], exempt: Collection[str] = ()) -> _ShortenedGraph:
    """Return `nodes`, which are in order, without those that give their input unchanged; nodes in `exempt`
    stay.
    """
    replacements: dict[NodeOutput, NodeOutput] = {}
    shortened: dict[str, GraphNode] = {}
    for node in nodes.values():
        inputs = tuple(replacements.get(source, source) for source in node.inputs)
        # An IdentityN passes each of its inputs on; others give only the first one.
        is_passing = node.op in _PASSING_OPS and (len(inputs) == 1 or node.op == "IdentityN")
        if is_passing and node.name not in exempt:
            replacements |= {(node.name, index): source for index, source in enumerate(inputs)}
        else:
            shortened[node.name] = replace(node, inputs=inputs)
    return _ShortenedGraph(shortened, replacements)


def _begin_at(image: str, nodes: dict[str, GraphNode]) -> dict[str, GraphNode]:
    """Make the image a placeholder if another node computes it, and return the nodes."""
    node = nodes[image]
    if node.op != "Placeholder":
        dtype = node.attributes.get("dtype") or node.attributes["T"]
        shape_attributes = {
            name: node.attributes[name] for name in ("shape", "_output_shapes") if name in node.attributes
        }
        nodes[image] = GraphNode(image, "Placeholder", (), {"dtype": dtype, **shape_attributes})
    return nodes


def _take_floats(nodes: dict[str, GraphNode], image: str) -> dict[str, GraphNode]:
    """Let a graph that takes bytes, and does nothing with them but cast them to floats, take the floats
    instead, and return the nodes; those of another graph are unchanged.
    """
    readers = [node for node in nodes.values() if (image, 0) in node.inputs]
    are_casts = all(node.op == "Cast" for node in readers)
    types = {node.type("DstT") for node in readers if node.op == "Cast"}
    if nodes[image].type("dtype") == FLOAT_TYPE or types != {FLOAT_TYPE} or not are_casts:
        return nodes
    for node in readers:
        nodes[node.name] = replace(node, op="Identity", attributes={"T": node.attributes["DstT"]})
    nodes[image] = replace(
        nodes[image], attributes={**nodes[image].attributes, "dtype": readers[0].attributes["DstT"]}
    )
    return nodes


def _stated_size(image: GraphNode) -> Size:
    """Return the rows and columns that the graph states for its image; both are open where it states no four
    axes.
    """
    sizes = input_sizes(image)
    return (sizes[1], sizes[2]) if len(sizes) == 4 else ANY


def _image_shape(
    nodes: Mapping[str, GraphNode], image: str, flow: Dataflow[GraphNode]
) -> tuple[int | None, int]:
    """Return the batch, None where it is open, and the channels of the image. If the image does not state its
    channels, the first kernel does, and otherwise they are 3.
    """
    sizes = input_sizes(nodes[image])
    batch, *_, channels = sizes if len(sizes) == 4 else (None, None)
    for node in nodes.values():
        if channels is None and node.op in _KERNEL_OPS and len(node.inputs) == 2:
            kernel = flow.tensor(node.inputs[1])
            channels = kernel.shape[2] if kernel is not None and len(kernel.shape) == 4 else None
    return batch, 3 if channels is None else channels


def _make_definition(
    nodes: Mapping[str, GraphNode], tensors: NamedArrays, exact: Mapping[str, float], at_every_size: bool
) -> bytes:
    """Return a serialised GraphDef of these nodes, without their controls and devices.

    Args:
        nodes: in order.
        tensors: arrays by the names of nodes that become constants, whose content is left out.
        exact: the numbers of nodes whose constants the file rounds and a port does not.
        at_every_size: the image's rows and columns are left open.
    """
    tf = import_tensorflow()
    definition = tf.compat.v1.GraphDef()
    definition.versions.producer = tf.version.GRAPH_DEF_VERSION
    for node in nodes.values():
        proto = definition.node.add(name=node.name, op=node.op)
        proto.input.extend(map(value_name, node.inputs))
        if node.name in tensors:
            _declare_constant(proto, tensors[node.name], tf)
            continue
        if node.name in exact:
            proto.attr["dtype"].type = tf.float64.as_datatype_enum
            proto.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(exact[node.name], tf.float64))
            continue
        for name, value in node.attributes.items():
            if not name.startswith("_"):
                proto.attr[name].CopyFrom(value)
        if node.op == "Placeholder" and (sizes := input_sizes(node)):
            if at_every_size and len(sizes) == 4:
                sizes = (sizes[0], None, None, sizes[3])
            proto.attr["shape"].shape.CopyFrom(tf.TensorShape(sizes).as_proto())
    return bytes(definition.SerializeToString(deterministic=True))


def _declare_constant(proto: Any, array: Array, tf: Any) -> None:
    """Write a constant's type and shape into its node, without its content."""
    dtype = tf.dtypes.as_dtype(np.dtype(array.dtype)).as_datatype_enum
    proto.attr["dtype"].type = dtype
    proto.attr["value"].tensor.dtype = dtype
    proto.attr["value"].tensor.tensor_shape.CopyFrom(tf.TensorShape(array.shape).as_proto())
