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
from porter.formats.protobuf import parse
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.frozen.definition import op_name
from porter.graph.walks import in_order, upstream
from porter.padding import KnownSize

NAME = "TensorFlow's definitions of operators"
_MOST_PARTS = 1 << 23
"""The most parts, which are as many as the reader takes."""
_INPUTS = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
_CHOOSING = frozenset({"Merge"})
"""Ops that give one of their inputs, and say which one in a whole number."""


def disagreement(checkpoint: Checkpoint, size: KnownSize, whole: bool) -> str | None:
    """See porter.verification.witnesses.Witness.

    Raises:
        CannotRun: TensorFlow is not installed, or the graph calls functions.
    """
    graph = parse(checkpoint.path, import_tensorflow().compat.v1.GraphDef(), most_parts=_MOST_PARTS)
    nodes = {node.name: node for node in graph.node}
    functions = {function.signature.name for function in graph.library.function}
    if any(node.op in functions or _has_functions(node) for node in graph.node):
        raise CannotRun("the graph calls functions", where=checkpoint.path)
    reads = {
        name: [op_name(source) for source in node.input if not source.startswith("^")]
        for name, node in nodes.items()
    }
    ends = list(dict.fromkeys(op_name(name) for name in checkpoint.carried.given))
    before = upstream(ends, lambda name: reads[name])
    network = _network(nodes, reads, before)
    going_on = {source: name for name in network for source in reads[name]}
    for end in ends:
        if end not in network:
            return f"porter ends the graph at '{escaped(end)}', which does not give real numbers"
        if end in going_on:
            return f"porter ends the graph at '{escaped(end)}', which '{escaped(going_on[end])}' reads"
    lost = next((name for name in network if name not in going_on and name not in before), None)
    return lost and f"the graph ends at '{escaped(lost)}' too, which porter leaves out"


def _network(nodes: Mapping[str, Any], reads: Mapping[str, list[str]], before: set[str]) -> dict[str, None]:
    """Return the operators that follow by real numbers only from an input of those `before` the ends, and
    from no other input, such as labels.
    """
    inputs = {name for name, node in nodes.items() if node.op in _INPUTS}
    foreign = inputs - before
    sources = dict.fromkeys(name for name in inputs & before if not _is_truth(nodes[name]))
    for name in in_order(reads, lambda name: reads[name]):
        if not foreign.isdisjoint(reads[name]):
            foreign.add(name)
        elif any(source in sources for source in reads[name]) and _is_real(nodes[name]):
            sources[name] = None
    return sources


def _is_truth(node: Any) -> bool:
    """Say whether an input says if the network is trained, or the like."""
    return bool(import_tensorflow().as_dtype(node.attr["dtype"].type).is_bool)


def _has_functions(node: Any) -> bool:
    return any(value.WhichOneof("value") == "func" for value in node.attr.values())


def _is_real(node: Any) -> bool:
    """Say whether an operator gives real numbers only, and does nothing else."""
    if node.op in _CHOOSING:
        return True
    definition = import_module("tensorflow.python.framework.op_def_registry").get(node.op)
    if definition is None or definition.is_stateful or not definition.output_arg:
        return False
    return all(_are_real(node, definition, given) for given in definition.output_arg)


def _are_real(node: Any, definition: Any, given: Any) -> bool:
    """Say whether an output has a type of real numbers, or all of a list do."""
    if given.type_list_attr:
        types = node.attr[given.type_list_attr].list.type
    elif given.type_attr:
        default = next(each.default_value for each in definition.attr if each.name == given.type_attr)
        types = [node.attr.get(given.type_attr, default).type]
    else:
        types = [given.type]
    return all(import_tensorflow().as_dtype(kind).is_floating for kind in types)
