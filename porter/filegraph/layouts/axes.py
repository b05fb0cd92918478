"""The axes of a file's tensor, in pieces of those of the value that it holds: reshapes and transposes are
followed, axis by axis, until one op says them.

A map as features, channels first in between, channels shuffled or laid out as cells, cells listed for a
matrix product: formats write each of them as several ops that only move numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple, TypeVar

from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layer_values import Value
from porter.filegraph.layouts.dims import (
    ONLY,
    Dim,
    Undecided,
    divides,
    exact_size,
    product,
    quotient,
    ratio,
    sizes_text,
)
from porter.filegraph.places import Items, position_of
from porter.filegraph.value_names import NodeOutput

T = TypeVar("T")


class Piece(NamedTuple):
    """A part of an axis: `size` steps of `stride` along the batch N, rows H, columns W, channels C, or along
    an array's axis, which has a small letter. REPEATED is no axis of the value: the piece repeats numbers.
    """

    axis: str
    size: Dim
    stride: int = 1


REPEATED = "R"
"""The axis of a piece that repeats numbers."""
OF_UNKNOWN_SHAPE = "of a value of unknown shape"
AxisPieces = tuple[tuple[Piece, ...], ...]


@dataclass(frozen=True)
class View:
    """A value as one of the file's tensors holds it.

    Attributes:
        axes: of the tensor, batch included, each as its pieces, outermost first; None for a value of unknown
            shape.
    """

    value: Value
    axes: AxisPieces | None

    @property
    def sizes(self) -> tuple[Dim, ...] | None:
        """The sizes of the tensor's axes; None for a value of unknown shape."""
        return None if self.axes is None else self.known_sizes

    @property
    def known_axes(self) -> AxisPieces:
        """The axes. Raises Unsupported for a value of unknown shape."""
        if self.axes is None:
            raise Unsupported(OF_UNKNOWN_SHAPE)
        return self.axes

    @property
    def known_sizes(self) -> Items[Dim]:
        """The sizes of the axes. Raises Unsupported for a value of unknown shape."""
        return Items(product(piece.size for piece in axis if piece.size != ONLY) for axis in self.known_axes)

    @property
    def rank(self) -> int:
        """The number of axes; 0 for a value of unknown shape."""
        return len(self.axes or ())

    def size(self, position: int) -> Dim:
        """Return the size of an axis.

        Raises:
            ValueError: the tensor has no such axis.
        """
        return (self.sizes or Items())[position]

    def positions(self, positions: Iterable[int]) -> set[int]:
        """Return the positions of axes counted from the first one: -1 of three axes becomes 2.

        Raises:
            ValueError: the tensor has no such axis.
        """
        return {position_of(position, self.rank) for position in positions}

    def axis_at(self, position: int) -> int:
        """Return which axis of the value, an array, stands at a position of the tensor that is not the
        batch's. The axes of the value are counted without the batch.
        """
        axes = self.axes or ()
        # the first axis of the tensor may hold axes of the value beside the batch N
        axes_in_batch = len(self.value.shape or ()) - len(axes) + 1
        return position_of(position, len(axes)) - 1 + axes_in_batch

    def has_batch(self, position: int) -> bool:
        """Return whether an axis of the tensor contains the batch."""
        return any(piece.axis == "N" for piece in Items(self.axes or ())[position])

    @property
    def batch_first(self) -> list[int]:
        """The positions of the axes, that of the batch first."""
        return sorted(range(self.rank), key=lambda position: not self.has_batch(position))

    def covers(self, other: View) -> bool:
        """Return whether the other tensor has the same axes, or one cell in place of some of them, so that
        ops stretch it to this one.
        """
        if self.axes is None or other.axes is None or len(self.axes) != len(other.axes):
            return False
        one_cell = ()
        return all(
            other_axis in (one_cell, axis) for axis, other_axis in zip(self.axes, other.axes, strict=True)
        )

    def transposed(self, order: Sequence[int]) -> View:
        """Return the tensor with its axes in another order.

        Raises:
            Unsupported: the value's shape is unknown, or the order has not each axis once.
        """
        axes = self.known_axes
        positions = [position_of(axis, len(axes)) for axis in order]
        if sorted(positions) != [*range(len(axes))]:
            raise Unsupported(f"of {len(axes)} axes in the order {[*order]}")
        return replace(self, axes=tuple(axes[position] for position in positions))

    def untransposed(self, order: Sequence[int]) -> View:
        """Undo `transposed`: return the tensor with its axes as they were before they were put into this
        order.
        """
        return self.transposed([order.index(position) for position in range(len(order))])

    def without_axes(self, positions: Iterable[int]) -> View:
        """Return the tensor without the axes at these positions, which have one cell.

        Raises:
            Unsupported: they have more.
        """
        if self.axes is None:
            return self
        removed = self.positions(positions)
        if any(map(self.has_batch, removed)):
            raise Unsupported("of the batch of one image: name the axes in the model, or export several")
        if any(self.axes[position] for position in removed):
            raise Unsupported("of axes of more than one cell")
        kept = tuple(axis for position, axis in enumerate(self.axes) if position not in removed)
        return replace(self, axes=kept)

    def with_axes(self, positions: Collection[int]) -> View:
        """Return the tensor with further axes of one cell, which have these positions in the result."""
        if self.axes is None:
            return self
        added = {position_of(position, len(self.axes) + len(positions)) for position in positions}
        kept_axes = iter(self.axes)
        rank = len(self.axes) + len(added)
        axes = tuple(() if position in added else next(kept_axes) for position in range(rank))
        return replace(self, axes=axes)

    def repeated(self, times: Sequence[int]) -> View:
        """Return the tensor with each axis repeated so many times, one whole copy after the other.

        Raises:
            Unsupported: the value's shape is unknown, or an axis is left out.
        """
        axes = self.known_axes
        if len(times) != len(axes) or min(times, default=1) < 1:
            raise Unsupported(f"of {len(axes)} axes {[*times]} times")
        return replace(
            self,
            axes=join_pieces(
                (Piece(REPEATED, count, 0), *axis) for count, axis in zip(times, axes, strict=True)
            ),
        )

    def reshaped(self, sizes: Sequence[Dim]) -> View:
        """Return the tensor with other axes over the same numbers; a size of -1 is what is left.

        Raises:
            Unsupported: the value's shape is unknown, or an axis cannot be split so.
        """
        total = product(self.known_sizes)
        new_sizes = _fill_rest(sizes, total) or _fill_rest(_exact_sizes(sizes), total) or list(sizes)
        batch = self.known_sizes[0]
        if new_sizes and new_sizes[0] == 1 and total == batch * product(new_sizes):
            new_sizes[0] = batch  # a graph for one image, whose batch is free in the port
        pieces = [piece for axis in self.known_axes for piece in axis]
        # an only image counts as one cell, but has to stand in one of the new axes
        index_of_only = next((index for index, piece in enumerate(pieces) if piece.size == ONLY), None)
        if index_of_only is not None and new_sizes:
            cells_before = product(piece.size for piece in pieces[:index_of_only])
            new_sizes[_axis_of_only(new_sizes, cells_before)] *= ONLY
        axes = _split_pieces(pieces, new_sizes)
        if axes is None:
            raise Unsupported(f"from {sizes_text(self.known_sizes[1:])} to {sizes_text(sizes[1:])}")
        return replace(self, axes=axes)


Source = NodeOutput | View
"""A value that a node reads, by the file's name, or a view that a reader made of one."""


@dataclass(frozen=True)
class Aligned:
    """A value whose axes are those of a tensor: what an op does along one of them, the file does along the
    tensor's.

    Attributes:
        axes: at the position of each axis of the tensor, which axis of the value it is; None for the batch.
        as_tensor: makes a view, with the tensor's axes, of what such ops make of the value.
    """

    value: Value
    axes: Items[int | None]
    as_tensor: Callable[[Value], View]

    def by_axis(self, by_position: Mapping[int, T]) -> dict[int, T]:
        """Return what a file states for positions of its tensor, such as pads or slices, by the axes of the
        value.

        Raises:
            ValueError: the tensor lacks one of them, or one is stated twice.
            Unsupported: the batch is among them.
        """
        axes = [self.axes[position] for position in by_position]
        if len({*axes}) < len(axes):
            raise ValueError("an axis that is stated twice")
        by_axis = {
            axis: statement
            for axis, statement in zip(axes, by_position.values(), strict=True)
            if axis is not None
        }
        if len(by_axis) < len(axes):
            raise Unsupported("of the batch")
        return by_axis


def shrink_repeated_axes(views: Sequence[View]) -> list[View]:
    """Return views of as many axes, before an op combines them. An axis that is only repeated in one of them
    gets one cell there, if another one has numbers of its own along it: the op stretches it.
    """
    # for each view, the positions of the axes along which it has numbers of its own
    filled_positions = [
        {
            position
            for position, axis in enumerate(view.axes or ())
            if any(piece.axis != REPEATED for piece in axis)
        }
        for view in views
    ]
    filled_by_any = set().union(*filled_positions)

    def shrink(view: View, filled: Collection[int]) -> View:
        """Return a view with one cell in the axes that others fill and it only repeats."""
        if not view.axes:
            return view
        shrinking = filled_by_any - {*filled}
        axes = tuple(() if position in shrinking else axis for position, axis in enumerate(view.axes))
        return replace(view, axes=axes)

    return [shrink(view, filled) for view, filled in zip(views, filled_positions, strict=True)]


def _exact_sizes(sizes: Sequence[Dim]) -> list[Dim]:
    """Return the sizes with no part rounded, since a file's reshape keeps all numbers; as they are where that
    is undecided.
    """
    try:
        return [exact_size(size) for size in sizes]
    except Undecided:
        return [*sizes]


def _fill_rest(sizes: Sequence[Dim], total: Dim) -> list[Dim] | None:
    """Return the sizes with the quotient of the total and the others in place of -1: (2, -1) of 12 becomes
    [2, 6]. None if they do not make that total.
    """
    if -1 not in sizes:
        return [*sizes] if product(sizes) == total else None
    left = quotient(total, -product(sizes)) if sizes.count(-1) == 1 else None
    return None if left is None else [left if size == -1 else size for size in sizes]


def _axis_of_only(sizes: Sequence[Dim], before: Dim) -> int:
    """Return the position of the axis that gets an only image (ONLY), which follows `before` cells. The image
    has one cell, so that it may stand in any axis near them: in one of its own, otherwise at the head of the
    next one, but not at that of the channels, which are the last.

    Args:
        sizes: of the axes; all together have as many cells as the tensor.
    """
    # at the position of an axis, how many cells all axes before it have
    cells_before: list[Dim] = [*accumulate(sizes, operator.mul, initial=1)]
    last = len(sizes) - 1
    # the first axis that the image stands before, or within
    position = next(
        (
            position
            for position, cells_with_axis in enumerate(cells_before[1:])
            if cells_before[position] == before or not divides(cells_with_axis, before)
        ),
        last,
    )
    is_head_of_channels = position == last and cells_before[position] == before and sizes[position] != 1
    return position - 1 if position > 0 and is_head_of_channels else position


def _split_pieces(pieces: Iterable[Piece], sizes: Iterable[Dim]) -> AxisPieces | None:
    """Return axes of these sizes over the pieces, which are given outermost first; None if a piece cannot be
    split so.
    """
    stack = [*pieces][::-1]  # the outermost piece that is left is on top
    axes = []
    for size in sizes:
        axis = []
        missing = size
        while missing != 1 and stack:
            if isinstance(missing, int) and missing < 1:
                return None
            outer, *inner = _split_piece(stack.pop(), missing)
            stack += inner
            if not divides(outer.size, missing):
                return None
            axis.append(outer)
            missing = missing // outer.size  # cells that inner pieces have to make up
        if missing != 1:
            return None
        axes.append(tuple(axis))
    return None if stack else join_pieces(axes)


def _split_piece(piece: Piece, size: Dim) -> Sequence[Piece]:
    """Split a piece into one of this size and the steps inside it: 12 steps of stride 1 by 3 become 3 steps
    of stride 4, and 4 of stride 1. A piece that is not several times as large is returned alone.
    """
    inner_size = ratio(piece.size, size) or 1
    if inner_size <= 1:
        return [piece]
    return Piece(piece.axis, size, piece.stride * inner_size), Piece(piece.axis, inner_size, piece.stride)


def join_pieces(axes: Iterable[Iterable[Piece]]) -> AxisPieces:
    """Return the axes in the one form by which views are compared: pieces that follow each other in the value
    are one piece, and pieces of one step are left out.
    """
    merged = []
    for axis in axes:
        pieces: list[Piece] = []
        for piece in axis:
            last = pieces[-1] if pieces else None
            if last and last.axis == piece.axis and last.stride == piece.stride * piece.size:
                # the piece goes on where the last one's steps end
                pieces[-1] = Piece(piece.axis, last.size * piece.size, piece.stride)
            elif piece.size != 1:
                pieces.append(piece)
        merged.append(tuple(pieces))
    return tuple(merged)
