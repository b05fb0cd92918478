"""Readers of nodes as functions: of the node, for what it states, and of the tensors that it reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from types import NoneType
from typing import Any, get_args

from porter.filegraph.dataflow import N
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.tensors.tensor import Scope, Tensor
from porter.filegraph.walk import NodeWalk, Outputs, Reader
from porter.graph import Op


def as_outputs(returned: Tensor | Outputs | Sequence[Tensor | None]) -> Outputs:
    """Return what an operator gives, from what its reader returns: a tensor's view or numbers, which are made
    now; views and None stay.
    """
    if isinstance(returned, Tensor):
        return returned.outcome()
    if isinstance(returned, Sequence):
        return [each.outcome() if isinstance(each, Tensor) else each for each in returned]
    return returned


Functions = Mapping[str, Callable[..., Any]]
"""What operators compute, by their names: functions of a node and of the tensors that it reads."""


def tensor_reader(function: Callable[..., Tensor]) -> Reader[N]:
    """Make the reader of an operator that states nothing, from a function of the tensors that the node reads:
    `tensor_reader(lambda x, y: x + y)`.
    """

    def read(walk: NodeWalk[N], node: N) -> Outputs:
        return as_outputs(call_with_inputs(function, *map(Scope(walk, node).tensor, node.inputs)))

    return read


def node_reader(function: Callable[..., Any]) -> Reader[N]:
    """Make the reader of an operator from a function of the node, for what it states, and of the tensors that
    it reads: `node_reader(lambda node, x: node.real("alpha", 1.0) * x)`.
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
        steps = [op_or_ops] if isinstance(op_or_ops, Op) else op_or_ops
        return Scope(walk, node).tensor(node.source).apply_elementwise(*steps).outcome()

    return read


def refuse_unread_settings(
    readers: Mapping[str, Reader[N]], passed_over: Callable[[N], Sequence[str]]
) -> Mapping[str, Reader[N]]:
    """Return readers that refuse a node if it has settings that count and that they did not look at: it would
    be another function without these.

    Args:
        passed_over: gives such settings of a node that has been read, as words: `["dilation 2"]`.
    """

    def watched(reader: Reader[N]) -> Reader[N]:
        def read(walk: NodeWalk[N], node: N) -> Outputs:
            outputs = reader(walk, node)
            if unread_settings := passed_over(node):
                raise Unsupported(f"with {' and '.join(unread_settings)}")
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
    values = [argument for argument in arguments if isinstance(argument, Tensor)]
    takes_as_many = least <= len(arguments) <= most
    takes_any_number = math.isinf(most)
    if not takes_as_many or (takes_any_number and not values):
        raise Unsupported("of 1 value" if len(values) == 1 else f"of {len(values)} values")
    needed = arguments if all_needed else arguments[:least]
    if None in needed:
        raise Unsupported("without a value that it needs")
    return function(*arguments)


@cache
def _counts(function: Callable[..., Any]) -> tuple[int, float, bool]:
    """Return the least and the most arguments that a function takes, and whether none of them may be None."""
    parameters = signature(function, eval_str=True).parameters.values()
    positional = [parameter for parameter in parameters if parameter.kind != Parameter.KEYWORD_ONLY]
    variadic = [parameter for parameter in positional if parameter.kind == Parameter.VAR_POSITIONAL]
    required = [
        parameter
        for parameter in positional
        if parameter not in variadic and parameter.default is Parameter.empty
    ]
    # the type of `*values` says whether one of them may be None
    all_needed = any(NoneType not in get_args(parameter.annotation) for parameter in variadic)
    return len(required), math.inf if variadic else len(positional), all_needed
