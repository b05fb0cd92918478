"""A GraphDef's nodes, without TensorFlow: their inputs, and their attributes with the defaults that files
leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from porter.base.errors import FileError, GraphError
from porter.filegraph import walk
from porter.filegraph.places import Items
from porter.filegraph.tensors.atrous import read_order
from porter.filegraph.value_names import NodeOutput
from porter.formats.limits import MOST_NODES
from porter.formats.protobuf import AttributeReading
from porter.graph.walks import in_order

Refuse = Callable[[str], FileError]
"""Makes the error for a message, with the file in it."""


@dataclass(frozen=True, slots=True)
class GraphNode(AttributeReading):
    """One node.

    Attributes:
        inputs: the values that it reads.
        attributes: name to AttrValue (tensorflow/core/framework/attr_value.proto).
        controls: names of the nodes that run before it and give it nothing: its control inputs.
    """

    name: str
    op: str
    inputs: tuple[NodeOutput, ...]
    attributes: Mapping[str, Any]
    controls: tuple[str, ...] = ()

    def integers(self, name: str) -> tuple[int, ...]:
        return Items(self.attributes[name].list.i) if name in self.attributes else ()

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.attributes[name].b) if name in self.attributes else default

    def type(self, name: str) -> int:
        """Return a DataType's number (tensorflow/core/framework/types.proto); 0 where there is none."""
        return int(self.attributes[name].type) if name in self.attributes else 0


Walk = walk.NodeWalk[GraphNode]


def parse_nodes(protos: Iterable[Any], refuse: Refuse) -> dict[str, GraphNode]:
    """Return the nodes of a GraphDef by name.

    Raises:
        FileError: two nodes have the same name, or there are too many.
    """
    nodes: dict[str, GraphNode] = {}
    for proto in protos:
        if proto.name in nodes:
            raise refuse(f"two nodes have the name '{proto.name}'")
        if len(nodes) == MOST_NODES:
            raise refuse(f"more than {MOST_NODES} nodes")
        inputs = tuple(parse_reference(text) for text in proto.input if not text.startswith("^"))
        nodes[proto.name] = GraphNode(proto.name, proto.op, inputs, proto.attr, controls_of(proto))
    return nodes


def controls_of(proto: Any) -> tuple[str, ...]:
    """Return the names of a NodeDef's control inputs, which are written `^name`."""
    return tuple(text[1:] for text in proto.input if text.startswith("^"))


def parse_reference(text: str) -> NodeOutput:
    """Return the value that a reference names: `conv` and `conv:0` are the first output of a node."""
    name, _, index = text.rpartition(":")
    return (name, int(index)) if name and is_output_index(index) else (text, 0)


def is_output_index(text: str) -> bool:
    """Return whether a text is the index of one of a node's outputs: `int` refuses other digits than ASCII's,
    and very many.
    """
    return text.isascii() and text.isdigit() and len(text) < 10


def in_order_of_inputs(
    nodes: Mapping[str, GraphNode], ends: Collection[str], refuse: Refuse
) -> dict[str, GraphNode]:
    """Return the nodes that `ends` (names of nodes) depend on, each after its inputs.

    Raises:
        FileError: a node reads one that does not exist, or, as in a while loop, itself.
    """

    def inputs(name: str) -> list[str]:
        """Return the nodes that a node reads, in the order in which they are to come before it."""
        if name not in nodes:
            raise refuse(f"a node reads '{name}', which the graph lacks")
        return read_order(nodes[name], lambda node: node.op)

    try:
        return {name: nodes[name] for name in in_order(ends, inputs)}
    except GraphError as error:
        raise refuse(f"the graph runs in a loop through '{error.where}'") from None
