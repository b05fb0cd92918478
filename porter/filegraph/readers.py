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
    """Return what an operator gives, from what its reader returns."""
    if isinstance(returned, Tensor):
        return returned.outcome()
    if isinstance(returned, Sequence):
        return [each.outcome() if isinstance(each, Tensor) else each for each in returned]
    return returned


Functions = Mapping[str, Callable[..., Any]]
"""What operators compute, by their names: functions of a node and of the tensors that it reads."""


def tensor_reader(function: Callable[..., Tensor]) -> Reader[N]:
    """Make the reader of an operator from a function of the tensors that the node reads."""

    def read(walk: NodeWalk[N], node: N) -> Outputs:
        return as_outputs(call_with_inputs(function, *map(Scope(walk, node).tensor, node.inputs)))

    return read


def node_reader(function: Callable[..., Any]) -> Reader[N]:
    """Make the reader of an operator from a function of the node, for what it states, and of the tensors that
    it reads.
    """

    def read(walk: NodeWalk[N], node: N) -> Outputs:
        return as_outputs(call_with_inputs(function, node, *map(Scope(walk, node).tensor, node.inputs)))

    return read


def op_reader(op: Op) -> Reader[N]:
    """Make the reader of an operator that is this op of each number of one value."""
    return elementwise_reader(lambda node: op)


def elementwise_reader(make: Callable[[N], Op | Sequence[Op]]) -> Reader[N]:
    """Make the reader of an operator that is ops of each number of one value, one after the other; `make`
    gives them for a node.
    """

    def read(walk: NodeWalk[N], node: N) -> Outputs:
        op_or_ops = make(node)
        links = [op_or_ops] if isinstance(op_or_ops, Op) else op_or_ops
        return Scope(walk, node).tensor(node.source).apply_elementwise(*links).outcome()

    return read


def refuse_unread_settings(
    readers: Mapping[str, Reader[N]], passed_over: Callable[[N], Sequence[str]]
) -> Mapping[str, Reader[N]]:
    """Return readers that refuse a node if it has settings that count and that they did not look at: it would
    be another function without these.

    Args:
        passed_over: such settings of a node that was read, as words.
    """

    def watched(reader: Reader[N]) -> Reader[N]:
        def read(walk: NodeWalk[N], node: N) -> Outputs:
            outputs = reader(walk, node)
            if others := passed_over(node):
                raise Unsupported(f"with {' and '.join(others)}")
            return outputs

        return read

    return {op: watched(reader) for op, reader in readers.items()}


def call_with_inputs(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of values with a node's inputs. A file may state any number of them, and None for
    each.

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
    """Return the least and the most arguments that a function takes, and whether none of them may be None."""
    parameters = signature(function).parameters.values()
    positional = [each for each in parameters if each.kind != Parameter.KEYWORD_ONLY]
    variadic = [each for each in positional if each.kind == Parameter.VAR_POSITIONAL]
    required = [each for each in positional if each not in variadic and each.default is Parameter.empty]
    # the annotation of `*values` says whether one of them may be None
    all_needed = any("None" not in str(each.annotation) for each in variadic)
    return len(required), math.inf if variadic else len(positional), all_needed
