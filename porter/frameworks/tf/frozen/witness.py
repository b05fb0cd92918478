"""Whether a GraphDef ends where porter takes it to end, by TensorFlow's own definitions of operators: what
they say to give real numbers. See porter.verification.witnesses.Witness.

porter knows by name what observes a network and is not part of it, such as an ArgMax. Here a network is what
follows from its inputs by real numbers only, and ends at the operators that nothing else in it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from porter.base.errors import CannotRun, escaped
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.protobuf import parse_message
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.frozen.definition import op_name
from porter.graph.walks import in_order, upstream
from porter.padding import KnownSize

NAME = "TensorFlow's definitions of operators"
_MAX_PARTS = 1 << 23
"""The most parts, which are as many as the reader takes."""
_INPUTS = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
_CHOOSING = frozenset({"Merge"})
"""Ops that give one of their inputs, and say which one in a whole number."""


def disagreement(checkpoint: Checkpoint, size: KnownSize, whole: bool) -> str | None:
    """Say in words where the graph ends otherwise than porter takes it to; None where the two agree. See
    porter.verification.witnesses.Witness. `size` and `whole` are unused: nothing is run here.

    Raises:
        CannotRun: TensorFlow is not installed, or the graph calls functions.
    """
    graph = parse_message(checkpoint.path, import_tensorflow().compat.v1.GraphDef(), most_parts=_MAX_PARTS)
    nodes = {node.name: node for node in graph.node}
    functions = {function.signature.name for function in graph.library.function}
    if any(node.op in functions or _has_functions(node) for node in graph.node):
        raise CannotRun("the graph calls functions", where=checkpoint.path)
    sources = {
        name: [op_name(source) for source in node.input if not source.startswith("^")]
        for name, node in nodes.items()
    }
    # The operators at which porter ends the graph, and all that they are computed from.
    ends = list(dict.fromkeys(op_name(name) for name in checkpoint.carried.given))
    before = upstream(ends, lambda name: sources[name])
    network = _operators_of_network(nodes, sources, before)
    readers = {source: name for name in network for source in sources[name]}
    for end in ends:
        if end not in network:
            return f"porter ends the graph at '{escaped(end)}', which does not give real numbers"
        if end in readers:
            return f"porter ends the graph at '{escaped(end)}', which '{escaped(readers[end])}' reads"
    # An operator of the network that nothing reads, and that is no end of porter's.
    lost_end = next((name for name in network if name not in readers and name not in before), None)
    if lost_end is None:
        return None
    return f"the graph ends at '{escaped(lost_end)}' too, which porter leaves out"


def _operators_of_network(
    nodes: Mapping[str, Any], input_names: Mapping[str, list[str]], before: set[str]
) -> dict[str, None]:
    """Return, in order, the operators of the network: those that are computed from its inputs by real numbers
    only, and from no other input of the graph, such as labels.

    Args:
        nodes: the graph's nodes by name.
        input_names: what each node reads, by name.
        before: all that porter's ends of the graph are computed from; the inputs among it are the network's.
    """
    inputs = {name for name, node in nodes.items() if node.op in _INPUTS}
    foreign = inputs - before  # other inputs, and what is computed from them
    operators = dict.fromkeys(name for name in inputs & before if not _is_flag(nodes[name]))
    for name in in_order(input_names, lambda name: input_names[name]):
        if not foreign.isdisjoint(input_names[name]):
            foreign.add(name)
        elif any(source in operators for source in input_names[name]) and _gives_floats(nodes[name]):
            operators[name] = None
    return operators


def _is_flag(node: Any) -> bool:
    """Say whether an input is a boolean, which states for example if the network is trained."""
    return bool(import_tensorflow().as_dtype(node.attr["dtype"].type).is_bool)


def _has_functions(node: Any) -> bool:
    """Say whether an attribute of a node is a function of the graph."""
    return any(value.WhichOneof("value") == "func" for value in node.attr.values())


def _gives_floats(node: Any) -> bool:
    """Say whether an operator gives only floating-point numbers and has no side effects."""
    if node.op in _CHOOSING:
        return True
    definition = import_module("tensorflow.python.framework.op_def_registry").get(node.op)
    if definition is None or definition.is_stateful or not definition.output_arg:
        return False
    return all(_is_float_output(node, definition, output) for output in definition.output_arg)


def _is_float_output(node: Any, definition: Any, output: Any) -> bool:
    """Say whether an output, or each tensor of an output that is a list, has a floating type."""
    if output.type_list_attr:
        types = node.attr[output.type_list_attr].list.type
    elif output.type_attr:
        # The type that the node states, or the operator's default.
        attribute = next(stated for stated in definition.attr if stated.name == output.type_attr)
        types = [node.attr.get(output.type_attr, attribute.default_value).type]
    else:
        types = [output.type]
    return all(import_tensorflow().as_dtype(kind).is_floating for kind in types)
