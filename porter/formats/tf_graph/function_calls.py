"""Calls of a GraphDef's own functions, replaced by the functions' nodes: SavedModels of TF 2 are made of such
calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from porter.filegraph.names import Names
from porter.filegraph.value_names import NodeOutput
from porter.formats.limits import MOST_NODES
from porter.formats.tf_graph.nodes import GraphNode, Refuse, controls_of, in_order_of_inputs, is_output_index
from porter.formats.tf_graph.outputs import output_counts

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_MOST_DEPTH = 32


@dataclass(frozen=True)
class Inlined:
    """A graph without calls.

    Attributes:
        outer: the nodes before, by name, in the order of the graph: each call is one of them.
        nodes: by name. A node of a function has the call among its controls.
        replacements: the values that replace the calls' outputs.
        calls: what a call ran after and ran: names of nodes and of other calls, by its own name.
    """

    outer: Mapping[str, GraphNode]
    nodes: dict[str, GraphNode]
    replacements: Mapping[NodeOutput, NodeOutput]
    calls: Mapping[str, tuple[str, ...]]

    def in_order(self, refuse: Refuse) -> Inlined:
        """Return the graph with each node after its inputs. Raises as `in_order_of_inputs`."""
        return replace(self, nodes=in_order_of_inputs(self.nodes, list(self.nodes), refuse))

    def final(self, source: NodeOutput) -> NodeOutput:
        """Return the value that a reference to a value of the file means here."""
        return self.replacements.get(source, source)


@dataclass(frozen=True)
class _UnfoldedCall:
    """A function that is called at one place: its nodes under their new names, and its outputs."""

    nodes: dict[str, GraphNode]
    outputs: tuple[NodeOutput, ...]


def inline_functions(nodes: Mapping[str, GraphNode], functions: Iterable[Any], refuse: Refuse) -> Inlined:
    """Return the graph without calls of `functions` (FunctionDefs).

    The names of a function's nodes begin with the caller's name (`block1/call/Conv2D`) if the call is in a
    scope. Otherwise they stay, as in a function that a signature or a whole model calls. No node has the name
    of a call: `replacements` and `calls` are by it.

    Raises:
        FileError: functions call each other without end, or do not name their outputs.
    """
    library = {function.signature.name: function for function in functions}
    outer = nodes
    nodes = dict(outer)
    replacements: dict[NodeOutput, NodeOutput] = {}
    run_by_call: dict[str, tuple[str, ...]] = {}
    node_names = Names(nodes)
    # Each round unfolds the calls that the one before brought in.
    for _ in range(_MOST_DEPTH):
        calls = [node for node in nodes.values() if called_function(node, library) is not None]
        if not calls:
            replacements = resolve_replacements(replacements)
            if replacements:
                nodes = {name: _with_replacements(node, replacements) for name, node in nodes.items()}
            return Inlined(outer, nodes, replacements, run_by_call)
        for call in calls:
            body = _unfold_call(call, library, node_names, refuse)
            del nodes[call.name]
            nodes |= body.nodes
            run_by_call[call.name] = (*call.controls, *body.nodes)
            replacements |= {(call.name, index): source for index, source in enumerate(body.outputs)}
            if len(nodes) > MOST_NODES:
                raise refuse(f"its functions unfold to more than {MOST_NODES} nodes")
    raise refuse(f"its functions call each other more than {_MOST_DEPTH} deep")


def called_function(node: GraphNode, library: Mapping[str, Any]) -> str | None:
    """Return the name of the library's function that a node calls, as its op or in its attribute `f`; None if
    it calls none.
    """
    name = node.op
    if node.op in _CALLS and "f" in node.attributes:
        name = str(node.attributes["f"].func.name)
    return name if name in library else None


def _with_replacements(node: GraphNode, replacements: Mapping[NodeOutput, NodeOutput]) -> GraphNode:
    """Return a node that reads the values that replace those in `replacements`."""
    return replace(node, inputs=tuple(replacements.get(source, source) for source in node.inputs))


def resolve_replacements(replacements: Mapping[NodeOutput, NodeOutput]) -> dict[NodeOutput, NodeOutput]:
    """Return, for each value in `replacements`, the one that replaces it in the end: what replaces a call's
    output may itself be replaced, as another call's output. {a: b, b: c} gives {a: c, b: c}. In a damaged
    file a value may replace itself: it stays, and the graph is refused, because no node gives it.
    """
    final: dict[NodeOutput, NodeOutput] = {}
    for value in replacements:
        path = []
        while value in replacements and value not in final:
            final[value] = value  # until its end is known: a circle stops here
            path.append(value)
            value = replacements[value]
        final |= dict.fromkeys(path, final.get(value, value))
    return final


@dataclass(frozen=True)
class _CalledFunction:
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

    def resolve(self, text: str) -> NodeOutput:
        """Return the value that a function's node names: `argument`, or `node:output of its op:place in that`
        (function.proto, FunctionDef.node_def). `split:output:1` is the second value of the node `split`.
        """
        name, *output = text.split(":")
        if not output and name in self.arguments:
            return self.arguments[name]
        counts = self.counts.get(name, {})
        if len(output) != 2 or not is_output_index(output[1]) or int(output[1]) >= counts.get(output[0], 0):
            raise self.refuse(
                f"function '{self.name}' reads '{text}', which it lacks or whose op TensorFlow does not know"
            )
        output_name, place = output[0], int(output[1])
        # An op's outputs are lists, which a node's outputs count one after the other.
        lists_before = list(counts).index(output_name)
        values_before = sum(list(counts.values())[:lists_before])
        return self.names[name], values_before + place

    def make_node(self, proto: Any, call: str) -> GraphNode:
        """Return a node of the function under its name in the graph. It reads what the names of its inputs
        stand for here, and runs after the call's controls.
        """
        return GraphNode(
            self.names[proto.name],
            proto.op,
            tuple(self.resolve(text) for text in proto.input if not text.startswith("^")),
            proto.attr,
            (call, *(self.names.get(name, name) for name in controls_of(proto))),
        )


def _unfold_call(
    call: GraphNode, library: Mapping[str, Any], node_names: Names, refuse: Refuse
) -> _UnfoldedCall:
    """Return the nodes that replace a call, and its outputs; the nodes' names are added to `node_names`.
    Raise FileError for another number of inputs, or an output that the function does not name.

    Args:
        library: the graph's functions by name.
    """
    function = library[called_function(call, library) or ""]
    name = function.signature.name
    arguments = [argument.name for argument in function.signature.input_arg]
    if len(arguments) != len(call.inputs):
        raise refuse(
            f"'{call.name}' gives {len(call.inputs)} values to '{name}', which takes {len(arguments)}"
        )
    prefix = f"{call.name}/" if "/" in call.name else ""
    names = dict[str, str]()
    for proto in function.node_def:
        names[proto.name] = node_names.take(prefix + proto.name)
    counts = {proto.name: output_counts(proto.op, proto.attr, library) for proto in function.node_def}
    callee = _CalledFunction(name, dict(zip(arguments, call.inputs, strict=True)), names, counts, refuse)
    nodes = [callee.make_node(proto, call.name) for proto in function.node_def]
    outputs = [function.ret.get(argument.name) for argument in function.signature.output_arg]
    if None in outputs:
        raise refuse(f"function '{name}' does not name its outputs")
    return _UnfoldedCall({node.name: node for node in nodes}, tuple(map(callee.resolve, outputs)))
