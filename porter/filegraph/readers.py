"""Readers of nodes as functions: of the node, for what it states, and of the tensors that it reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from typing import Any

from porter.filegraph.dataflow import N
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.tensor import Scope, Tensor
from porter.filegraph.walk import NodeWalk, Outputs, Reader
from porter.graph import Op


def as_outputs(returned: Tensor | Outputs | Sequence[Tensor | None]) -> Outputs:
    """What an operator gives, from what its reader returns."""
    if isinstance(returned, Tensor):
        return returned.outcome()
    if isinstance(returned, Sequence):
        return [each.outcome() if isinstance(each, Tensor) else each for each in returned]
    return returned


Functions = Mapping[str, Callable[..., Any]]
"""What operators compute, by their names: functions of a node and of the tensors that it reads."""


def tensor_reader(function: Callable[..., Tensor]) -> Reader[N]:
    """Reads a node as a function of the tensors that it reads."""

    def read(walk: NodeWalk[N], node: N) -> Outputs:
        return as_outputs(call_with_inputs(function, *map(Scope(walk, node).tensor, node.inputs)))

    return read


def node_reader(function: Callable[..., Any]) -> Reader[N]:
    """Reads a node as a function of the node, for what it states, and of the tensors that it reads."""

    def read(walk: NodeWalk[N], node: N) -> Outputs:
        return as_outputs(call_with_inputs(function, node, *map(Scope(walk, node).tensor, node.inputs)))

    return read


def op_reader(op: Op) -> Reader[N]:
    """Reads a node of one value as this op."""
    return elementwise_reader(lambda node: op)


def elementwise_reader(make: Callable[[N], Op | Sequence[Op]]) -> Reader[N]:
    """Reads a node of one value as ops of each number, one after the other."""

    def read(walk: NodeWalk[N], node: N) -> Outputs:
        made = make(node)
        return (
            Scope(walk, node)
            .tensor(node.source)
            .apply_elementwise(*([made] if isinstance(made, Op) else made))
            .outcome()
        )

    return read


def refuse_unread_settings(
    readers: Mapping[str, Reader[N]], passed_over: Callable[[N], Sequence[str]]
) -> Mapping[str, Reader[N]]:
    """Readers that refuse a node by its settings that count and that they did not look at: it would be
    another function without these.

    Args:
        passed_over: such settings of a node that was read, as words.
    """

    def watched(reader: Reader[N]) -> Reader[N]:
        def read(walk: NodeWalk[N], node: N) -> Outputs:
            given = reader(walk, node)
            if others := passed_over(node):
                raise Unsupported(f"with {' and '.join(others)}")
            return given

        return read

    return {op: watched(reader) for op, reader in readers.items()}


def call_with_inputs(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of values gives. A file may state any number of them, and None for each.

    Raises:
        Unsupported: the function takes another number of them, or needs one that is None.
    """
    least, most, all_needed = _counts(function)
    values = [each for each in arguments if isinstance(each, Tensor)]
    if not least <= len(arguments) <= most or (math.isinf(most) and not values):
        raise Unsupported(f"of {len(values)} value{'s' * (len(values) != 1)}")
    if None in arguments[: None if all_needed else least]:
        raise Unsupported("without a value that it needs")
    return function(*arguments)


@cache
def _counts(function: Callable[..., Any]) -> tuple[int, float, bool]:
    """The least and the most that a function takes, and whether none of them may be None."""
    taken = [each for each in signature(function).parameters.values() if each.kind != Parameter.KEYWORD_ONLY]
    listed = [each for each in taken if each.kind == Parameter.VAR_POSITIONAL]
    needed = [each for each in taken if each not in listed and each.default is Parameter.empty]
    all_needed = any("None" not in str(each.annotation) for each in listed)
    return len(needed), math.inf if listed else len(taken), all_needed
