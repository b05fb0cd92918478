"""Calls of a GraphDef's own functions, replaced by the functions' nodes: SavedModels of TF 2 are made of such
calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from porter.filegraph.dataflow import NodeOutput
from porter.filegraph.names import Names
from porter.formats.limits import MOST_NODES
from porter.formats.tf_graph.nodes import GraphNode, Refuse, controls_of, is_place
from porter.formats.tf_graph.outputs import output_counts

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_MOST_DEPTH = 32


@dataclass(frozen=True)
class Inlined:
    """A graph without calls.

    Attributes:
        nodes: by name. A node of a function has the call among its controls.
        moved: the values that replace the calls' outputs.
        calls: what a call ran after and ran: names of nodes and of other calls, by its own name.
    """

    nodes: dict[str, GraphNode]
    moved: Mapping[NodeOutput, NodeOutput]
    calls: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class _Body:
    """A function called at one place: its nodes under their new names, and its outputs."""

    nodes: dict[str, GraphNode]
    outputs: tuple[NodeOutput, ...]


def inline_functions(nodes: Mapping[str, GraphNode], functions: Iterable[Any], refuse: Refuse) -> Inlined:
    """The graph without calls of `functions` (FunctionDefs).

    The names of a function's nodes begin with the caller's name (`block1/call/Conv2D`) if the call is in a
    scope. Otherwise they stay, as in a function that a signature or a whole model calls. No node has the name
    of a call: `moved` and `calls` are by it.

    Raises:
        FileError: functions call each other without end, or do not name their outputs.
    """
    library = {function.signature.name: function for function in functions}
    nodes = dict(nodes)
    moved: dict[NodeOutput, NodeOutput] = {}
    ran: dict[str, tuple[str, ...]] = {}
    taken = Names(nodes)
    for _ in range(_MOST_DEPTH):
        calls = [node for node in nodes.values() if called_function(node, library) is not None]
        if not calls:
            moved = final_replacements(moved)
            rewired = {name: _rewired(node, moved) for name, node in nodes.items()} if moved else nodes
            return Inlined(rewired, moved, ran)
        for call in calls:
            body = _body(call, library, taken, refuse)
            del nodes[call.name]
            nodes |= body.nodes
            ran[call.name] = (*call.controls, *body.nodes)
            moved |= {(call.name, index): source for index, source in enumerate(body.outputs)}
            if len(nodes) > MOST_NODES:
                raise refuse(f"its functions unfold to more than {MOST_NODES} nodes")
    raise refuse(f"its functions call each other more than {_MOST_DEPTH} deep")


def called_function(node: GraphNode, library: Mapping[str, Any]) -> str | None:
    """The name of the library's function that a node calls, or None."""
    name = str(node.attributes["f"].func.name) if node.op in _CALLS and "f" in node.attributes else node.op
    return name if name in library else None


def _rewired(node: GraphNode, moved: Mapping[NodeOutput, NodeOutput]) -> GraphNode:
    return replace(node, inputs=tuple(moved.get(source, source) for source in node.inputs))


def final_replacements(moved: Mapping[NodeOutput, NodeOutput]) -> dict[NodeOutput, NodeOutput]:
    """What replaces each value in the end; a call's output may be another call's. In a damaged file one may
    replace itself: it stays, and the graph is refused, because no node gives it.
    """
    final: dict[NodeOutput, NodeOutput] = {}
    for source in moved:
        path = []
        while source in moved and source not in final:
            final[source] = source  # until its end is known: a circle stops here
            path.append(source)
            source = moved[source]
        final |= dict.fromkeys(path, final.get(source, source))
    return final


@dataclass(frozen=True)
class _Callee:
    """A function as it is called at one place.

    Attributes:
        arguments: what it is given, by its names.
        names: of its nodes in the graph, by their own names.
        counts: how many values each output of a node has, by the node's own name.
    """

    name: str
    arguments: Mapping[str, NodeOutput]
    names: Mapping[str, str]
    counts: Mapping[str, Mapping[str, int]]
    refuse: Refuse

    def source(self, text: str) -> NodeOutput:
        """A value within a function: `argument`, or `node:output of its op:place in that` (function.proto,
        FunctionDef.node_def).
        """
        name, *output = text.split(":")
        if not output and name in self.arguments:
            return self.arguments[name]
        counts = self.counts.get(name, {})
        if len(output) != 2 or not is_place(output[1]) or int(output[1]) >= counts.get(output[0], 0):
            raise self.refuse(
                f"function '{self.name}' reads '{text}', which it lacks or whose op TensorFlow does not know"
            )
        # An op's outputs are lists, which a node's outputs count one after the other.
        lists_before = list(counts).index(output[0])
        return self.names[name], sum(list(counts.values())[:lists_before]) + int(output[1])

    def node(self, proto: Any, call: str) -> GraphNode:
        """A node of the function, which runs after a call's controls."""
        return GraphNode(
            self.names[proto.name],
            proto.op,
            tuple(self.source(text) for text in proto.input if not text.startswith("^")),
            proto.attr,
            (call, *(self.names.get(name, name) for name in controls_of(proto))),
        )


def _body(call: GraphNode, library: Mapping[str, Any], taken: Names, refuse: Refuse) -> _Body:
    """The nodes that replace a call; their names are added to `taken`."""
    function = library[called_function(call, library) or ""]
    name = function.signature.name
    arguments = [each.name for each in function.signature.input_arg]
    if len(arguments) != len(call.inputs):
        raise refuse(
            f"'{call.name}' gives {len(call.inputs)} values to '{name}', which takes {len(arguments)}"
        )
    prefix = f"{call.name}/" if "/" in call.name else ""
    names = dict[str, str]()
    for proto in function.node_def:
        names[proto.name] = taken.take(prefix + proto.name)
    counts = {proto.name: output_counts(proto.op, proto.attr, library) for proto in function.node_def}
    callee = _Callee(name, dict(zip(arguments, call.inputs, strict=True)), names, counts, refuse)
    nodes = [callee.node(proto, call.name) for proto in function.node_def]
    outputs = [function.ret.get(argument.name) for argument in function.signature.output_arg]
    if None in outputs:
        raise refuse(f"function '{name}' does not name its outputs")
    return _Body({node.name: node for node in nodes}, tuple(map(callee.source, outputs)))
