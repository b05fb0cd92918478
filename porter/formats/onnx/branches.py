"""The branches of an ONNX model's Ifs whose conditions are known when it is read: the model is what the
chosen ones make of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from porter.filegraph.dataflow import Dataflow
from porter.filegraph.names import unused_name
from porter.filegraph.value_names import NodeOutput
from porter.formats.onnx.nodes import OnnxNode
from porter.formats.onnx.proto import Initializers, NameScope, OnnxGraph

MOST_ROUNDS = 16
"""So often a model is read again because a condition was known; a branch may have another If."""


def decide_conditions(flow: Dataflow[OnnxNode]) -> dict[str, bool]:
    """Return the condition of each If that is a constant, or is computed from sizes, by the If's name."""
    truths = {
        name: flow.truth(node.source) for name, node in flow.nodes.items() if node.op == "If" and node.inputs
    }
    return {name: truth for name, truth in truths.items() if truth is not None}


def with_chosen_branches(model: OnnxGraph, conditions: Mapping[str, bool]) -> OnnxGraph:
    """Return the model with the nodes of a branch in place of each If that is decided; what read the If reads
    the branch's values.

    Args:
        conditions: the value of each decided If's condition, by the If's name.

    Raises:
        FileError: the branch is damaged, as porter.formats.onnx.proto.read_message.
    """
    nodes = dict[str, OnnxNode]()
    arrays = dict(model.arrays)
    scopes = dict(model.scopes)
    new_sources: dict[NodeOutput, NodeOutput] = {}
    passed = [*model.passed]
    stored = Initializers(model.path)

    def after(sources: Mapping[str, NodeOutput]) -> dict[str, NodeOutput]:
        """Return values by name with what gives them now, after the Ifs that were replaced."""
        return {name: new_sources.get(source, source) for name, source in sources.items()}

    for node in model.nodes.values():
        node = replace(node, inputs=tuple(new_sources.get(source, source) for source in node.inputs))
        if node.name in conditions:
            readable = after(model.scopes.get(node.name, model.sources))
            scope = NameScope(nodes, readable, arrays, stored, scopes=scopes, passed=passed)
            new_sources |= _add_branch(node, conditions[node.name], scope, model)
        else:
            nodes[node.name] = node
    return replace(
        model,
        nodes=nodes,
        sources=after(model.sources),
        arrays=arrays,
        scopes={name: after(sources) for name, sources in scopes.items()},
        passed=[(dropout, new_sources.get(source, source)) for dropout, source in passed],
    )


def _add_branch(
    node: OnnxNode, condition: bool, scope: NameScope, model: OnnxGraph
) -> dict[NodeOutput, NodeOutput]:
    """Add the nodes of an If's branch to `scope`, under names that the model does not have, and return for
    each output of the If the value of the branch that it is: `{("if", 0): ("if/sum", 0)}`. Raise FileError if
    the branch does not give all of them.
    """
    branch = "then_branch" if condition else "else_branch"
    graph = node.attributes[branch].g if branch in node.attributes else None
    ends = [] if graph is None else [output.name for output in graph.output]
    if graph is None or len(ends) != node.outputs:
        raise scope.stored.refuse(
            f"'{node.title or node.name}' has no {branch} that gives its values", "export the model again"
        )
    names: dict[str, str] = {}

    def named(name: str) -> str:
        """Return the name that a value of the branch has in the model, the same at each call."""
        if name not in names:
            names[name] = unused_name(f"{node.name}/{name}", model.nodes.keys() | scope.nodes.keys())
        return names[name]

    inner = replace(scope, named=named)
    for tensor in graph.initializer:
        inner.arrays[named(tensor.name)] = scope.stored.array(tensor, tensor.name)
        inner.nodes[named(tensor.name)] = OnnxNode(named(tensor.name), "Constant", (), scope.nodes[""].opset)
        inner.sources[tensor.name] = named(tensor.name), 0
    inner.add(graph.node)
    missing = next((end for end in ends if end not in inner.sources), None)
    if missing is not None:
        raise scope.stored.refuse(
            f"a branch of '{node.title or node.name}' lacks its value '{missing}'", "export the model again"
        )
    return {(node.name, index): inner.sources[end] for index, end in enumerate(ends)}
