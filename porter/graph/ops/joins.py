"""Ops of two inputs or more."""

from __future__ import annotations

from collections.abc import Sequence

from porter.base.errors import GraphError
from porter.graph.ops.op import KeepsSign, Op, Shape, shape_text


class Merge(Op):
    """An op of two values or more; a size of 1 is stretched to the others'."""

    several = True

    def shape(self, *inputs: Shape) -> Shape:
        common = stretched_sizes(inputs) if len({type(shape) for shape in inputs}) == 1 else None
        if common is None:
            raise GraphError(f"cannot {self.name} shapes {_listed(inputs)}")
        return type(inputs[0])(common)


class Add(Merge, KeepsSign, name="add"):
    """The sum."""

    is_linear = True


class Multiply(Merge, KeepsSign, name="multiply"):
    """The product of the values in each place."""


class Divide(Merge, KeepsSign, name="divide"):
    """The first of two values over the second, in each place."""

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs) != 2:
            raise GraphError(f"expected two values, got {len(inputs)}")
        return super().shape(*inputs)


class Maximum(Merge, name="maximum"):
    """The largest of the values in each place."""

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return any(inputs)


class Minimum(Merge, KeepsSign, name="minimum"):
    """The smallest of the values in each place."""


def stretched_sizes(shapes: Sequence[Sequence[int | None]]) -> list[int | None] | None:
    """Return the common sizes of values, where a size of 1 is stretched to the others': [8, 4, 4] for
    (8, 1, 1) and (1, 4, 4). None if they do not fit.
    """
    if len({len(shape) for shape in shapes}) != 1:
        return None
    # for each axis, the sizes that are not stretched
    sizes_by_axis = [[size for size in sizes if size != 1] for sizes in zip(*shapes, strict=True)]
    if not all(map(may_be_equal, sizes_by_axis)):
        return None
    return [known_size(sizes) if sizes else 1 for sizes in sizes_by_axis]


def may_be_equal(sizes: Sequence[int | None]) -> bool:
    """Return whether sizes can be equal: an unknown one can be any."""
    return len({size for size in sizes if size is not None}) < 2


def known_size(sizes: Sequence[int | None]) -> int | None:
    """Return the size that stands for several that may be equal; None if all are open."""
    return next((size for size in sizes if size is not None), None)


def _listed(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(shape_text, shapes))
