"""Sizes in a program: those that it states, and those that it computes from its input's."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from porter.base.errors import GraphError
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layouts.dims import Dim, Open, fixed_sizes
from porter.filegraph.layouts.size_arrays import sizes_array
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import Read
from porter.formats.torch_export.nodes import AtenNode, Walk

SIZE_ARITHMETIC: Mapping[str, Callable[..., Dim]] = {
    f"operator.{function.__name__}": function
    for function in (operator.add, operator.sub, operator.mul, operator.neg, operator.floordiv, operator.mod)
}
_MOST_DEPTH = 50
"""How deep arithmetic with sizes is followed."""
_LARGEST_SIZE = 1 << 62
"""Squares of squares would take any memory."""
SIZES = (*SIZE_ARITHMETIC, "sym_size")
"""Ops that give a size."""


def read_size(walk: Walk, node: AtenNode) -> Read:
    """Return a size of a value, or the value of arithmetic with sizes, as the walk knows it: as the size of
    an axis for which the program states the same expression, or else computed.

    Raises:
        Unsupported: it depends on pixels.
    """
    if isinstance(node.expression, int):
        return np.asarray(node.expression)
    source, axis = ("", 0), 0
    # The axis that has this size: the op's own, or one for which the program has the same expression.
    if node.op == "sym_size":
        source, axis = node.arguments["self"], node.arguments["dim"]
    elif node.axis:
        source, axis = node.axis
    sizes = walk.view_of[source].sizes if source in walk.view_of else None
    if sizes is not None:
        return sizes_array(sizes[axis])
    operands = [size for source in node.inputs for size in walk.flow.dims(source) or []]
    if node.op not in SIZE_ARITHMETIC or len(operands) < len(node.inputs):
        raise Unsupported("of sizes that depend on pixels")
    return sizes_array(_compute_size(node, operands))


def whole_numbers(walk: Walk, node: AtenNode, name: str, source: NodeOutput | None = None) -> list[int]:
    """Return what `sizes_of` gives, and raise an error if one of the sizes is open."""
    return fixed_sizes(sizes_of(walk, node, name, source))


def sizes_of(walk: Walk, node: AtenNode, name: str, source: NodeOutput | None = None) -> list[Dim]:
    """Return an argument's whole numbers, or its only one, as a list.

    Args:
        source: a value that the numbers are sizes of. If two axes of a program have the same size, it is this
            value's that counts.

    Raises:
        GraphError: one of them depends on the input's size in a way that porter does not follow.
    """
    argument = node.arguments[name]
    known = dict[int | str | None, Dim]()
    if source is not None and (sizes := walk.view(source).sizes) is not None:
        node_name, output = source
        expressions = (*walk.flow.nodes[node_name].sizes, ())[output]  # none of an output that is no tensor
        known = dict(zip(expressions, sizes, strict=True)) if len(expressions) == len(sizes) else {}
    resolver = _SizeResolver(walk, name, known)
    return [resolver.resolve(number) for number in (argument if isinstance(argument, list) else [argument])]


@dataclass(frozen=True)
class _SizeResolver:
    """Finds the sizes that the program computes for an argument of this name.

    Attributes:
        known: sizes of a value by their expressions.
        sizes: those found so far. Each is read once: in 50 sums of a size with itself it would be 2**50
            times.
    """

    walk: Walk
    name: str
    known: Mapping[int | str | None, Dim]
    sizes: dict[NodeOutput, Dim] = field(default_factory=dict)

    def resolve(self, number: int | NodeOutput, depth: int = 0) -> Dim:
        """Return a number, or the size that a value is: a `known` one, or as `read_size` found it."""
        if isinstance(number, int):
            return number
        if number not in self.sizes:
            self.sizes[number] = self._resolve_node(number, depth)
        return self.sizes[number]

    def _resolve_node(self, source: NodeOutput, depth: int) -> Dim:
        """Return the size that a node computes: as the value's known axis with the same expression, by its
        arithmetic, or as the walk knows it. Raise GraphError if none of these has it.
        """
        node = self.walk.flow.nodes[source[0]]
        if node.expression in self.known:
            return self.known[node.expression]
        numbers = self.walk.flow.dims(source)
        if node.op in SIZE_ARITHMETIC and depth < _MOST_DEPTH:
            try:
                return _compute_size(node, [self.resolve(source, depth + 1) for source in node.inputs])
            except GraphError:  # of a quotient: an axis may have the whole sum
                if numbers is None:
                    raise
        if numbers is None or len(numbers) != 1:
            raise GraphError(f"a {self.name} that depends on the input's size")
        return numbers[0]


def _compute_size(node: AtenNode, operands: Sequence[Dim]) -> Dim:
    """Return the result of a node's arithmetic with sizes.

    Raises:
        GraphError: it has more than 62 bits.
    """
    size = SIZE_ARITHMETIC[node.op](*operands)
    if not isinstance(size, Open) and abs(size) > _LARGEST_SIZE:
        raise GraphError("a size of more than 62 bits")
    return size
