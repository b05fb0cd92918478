"""Sizes in a program: those that it states, and those that it computes from its input's."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from porter.base.errors import GraphError
from porter.filegraph.dataflow import NodeOutput
from porter.filegraph.dims import Dim, Open, fixed_sizes, sizes_array
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.walk import Read
from porter.formats.torch_export.nodes import AtenNode, Walk

ON_SIZES: Mapping[str, Callable[..., Dim]] = {
    f"operator.{function.__name__}": function
    for function in (operator.add, operator.sub, operator.mul, operator.neg, operator.floordiv, operator.mod)
}
_DEEPEST = 50
"""How deep arithmetic with sizes is followed."""
_MOST = 1 << 62
"""Squares of squares would take any memory."""
SIZES = (*ON_SIZES, "sym_size")
"""Ops that give a size."""


def read_size(walk: Walk, node: AtenNode) -> Read:
    """A size of a value, or arithmetic with sizes: it is the size of an axis of which the program says the
    same.
    """
    if isinstance(node.expression, int):
        return np.asarray(node.expression)
    source, axis = (
        (node.arguments["self"], node.arguments["dim"])
        if node.op == "sym_size"
        else node.axis or (("", 0), 0)
    )
    sizes = walk.view_of[source].sizes if source in walk.view_of else None
    if sizes is not None:
        return sizes_array(sizes[axis])
    operands = [number for each in node.inputs for number in walk.flow.dims(each) or []]
    if node.op not in ON_SIZES or len(operands) < len(node.inputs):
        raise Unsupported("of sizes that depend on pixels")
    return sizes_array(_computed(node, operands))


def whole_numbers(walk: Walk, node: AtenNode, name: str, source: NodeOutput | None = None) -> list[int]:
    """What `sizes_of` gives, where none of the sizes is open."""
    return fixed_sizes(sizes_of(walk, node, name, source))


def sizes_of(walk: Walk, node: AtenNode, name: str, source: NodeOutput | None = None) -> list[Dim]:
    """An argument's whole numbers, or its only one.

    Args:
        source: a value that the numbers are sizes of. If two axes of a program have the same size, it is this
            value's that counts.

    Raises:
        GraphError: one of them depends on the input's size in a way that porter does not follow.
    """
    argument = node.arguments[name]
    own = dict[int | str | None, Dim]()
    if source is not None and (sizes := walk.view(source).sizes) is not None:
        said = (*walk.flow.nodes[source[0]].sizes, ())[source[1]]
        own = dict(zip(said, sizes, strict=True)) if len(said) == len(sizes) else {}
    numbers = _Numbers(walk, name, own)
    return [numbers.number(each) for each in (argument if isinstance(argument, list) else [argument])]


@dataclass(frozen=True)
class _Numbers:
    """The whole numbers of an argument of this name.

    Attributes:
        own: sizes of a value by their expressions.
        found: sizes so far. Each is read once: in 50 sums of a size with itself it would be 2**50 times.
    """

    walk: Walk
    name: str
    own: Mapping[int | str | None, Dim]
    sizes: dict[NodeOutput, Dim] = field(default_factory=dict)

    def number(self, number: int | NodeOutput, depth: int = 0) -> Dim:
        """A number, or a size by its name: an `own` one, or as `read_size` found it."""
        if isinstance(number, int):
            return number
        if number not in self.sizes:
            self.sizes[number] = self._size(number, depth)
        return self.sizes[number]

    def _size(self, source: NodeOutput, depth: int) -> Dim:
        """The size that a node computes."""
        node = self.walk.flow.nodes[source[0]]
        if node.expression in self.own:
            return self.own[node.expression]
        numbers = self.walk.flow.dims(source)
        if node.op in ON_SIZES and depth < _DEEPEST:
            try:
                return _computed(node, [self.number(each, depth + 1) for each in node.inputs])
            except GraphError:  # of a quotient: an axis may have the whole sum
                if numbers is None:
                    raise
        if numbers is None or len(numbers) != 1:
            raise GraphError(f"a {self.name} that depends on the input's size")
        return numbers[0]


def _computed(node: AtenNode, operands: Sequence[Dim]) -> Dim:
    size = ON_SIZES[node.op](*operands)
    if not isinstance(size, Open) and abs(size) > _MOST:
        raise GraphError("a size of more than 62 bits")
    return size
