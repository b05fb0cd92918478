"""How one of a file's tensors holds a value: the pieces of each of its axes, which reshapes and transposes split, move and join."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, NamedTuple

from porter.filegraph.builder import Value
from porter.filegraph.dims import ONLY, Dim, divides, product
from porter.filegraph.places import Items, place_of
from porter.graph.ops import Axis


class Piece(NamedTuple):
    """A part of an axis: `size` steps of `stride` along the batch N, rows H, columns W, channels C, or along an array.s axis, which
    has a small letter; R is a repetition."""

    axis: str
    size: Dim
    stride: int = 1


Axes = tuple[tuple[Piece, ...], ...]
Names = tuple[Literal["batch"] | Axis, ...]


@dataclass(frozen=True)
class View:
    """A value as one of the file's tensors holds it.

    Attributes:
        axes: of the tensor, batch included, each as its pieces, outermost first; None for a value of unknown shape.
    """

    value: Value
    axes: Axes | None

    @property
    def sizes(self) -> tuple[Dim, ...] | None:
        if self.axes is None:
            return None
        return Items(product(piece.size for piece in axis if piece.size != ONLY) for axis in self.axes)

    def size(self, place: int) -> Dim:
        """Of an axis.

        Raises:
            ValueError: the tensor has no such axis.
        """
        return (self.sizes or Items())[place]

    def places(self, places: Iterable[int]) -> set[int]:
        """Places of axes, counted from the first one.

        Raises:
            ValueError: the tensor has no such axis.
        """
        return {place_of(place, len(self.axes or ())) for place in places}

    def covers(self, other: View) -> bool:
        """Whether the other tensor has the same axes, of which some may have one cell in it."""
        if self.axes is None or other.axes is None or len(self.axes) != len(other.axes):
            return False
        return all(axis in ((), own) for own, axis in zip(self.axes, other.axes, strict=True))

    def transposed(self, order: Sequence[int]) -> View | None:
        """The axes in another order."""
        if self.axes is None:
            return None
        places = [place_of(axis, len(self.axes)) for axis in order]
        fits = sorted(places) == [*range(len(self.axes))]
        return replace(self, axes=tuple(self.axes[place] for place in places)) if fits else None

    def without(self, places: Iterable[int]) -> View | None:
        """The tensor without axes, of one cell, at these places; None where they have more."""
        if self.axes is None:
            return self
        gone = self.places(places)
        if any(self.axes[place] for place in gone):
            return None
        return replace(self, axes=tuple(axis for place, axis in enumerate(self.axes) if place not in gone))

    def with_axes(self, places: Collection[int]) -> View | None:
        """The tensor with axes of one cell, which have these places in it."""
        if self.axes is None:
            return self
        added, left = {place_of(place, len(self.axes) + len(places)) for place in places}, iter(self.axes)
        count = len(self.axes) + len(added)
        return replace(self, axes=tuple(() if place in added else next(left) for place in range(count)))

    def repeated(self, times: Sequence[int]) -> View | None:
        """Each axis so many times, one whole copy after the other."""
        if self.axes is None or len(times) != len(self.axes) or min(times, default=1) < 1:
            return None
        return replace(self, axes=joined((Piece("R", count, 0), *axis) for count, axis in zip(times, self.axes, strict=True)))

    def reshaped(self, sizes: Sequence[Dim]) -> View | None:
        """Other axes over the same numbers; -1 is what is left. None where an axis cannot be split so."""
        if self.axes is None or self.sizes is None:
            return None
        total, wanted = product(self.sizes), list(sizes)
        if wanted.count(-1) == 1 and divides(others := -product(wanted), total):
            wanted[wanted.index(-1)] = total // others
        batch = self.sizes[0]
        if wanted and wanted[0] == 1 and total == batch * product(wanted):
            wanted[0] = batch  # a graph for one image, whose batch is free in the port
        pieces = [piece for axis in self.axes for piece in axis]
        only = next((place for place, piece in enumerate(pieces) if piece.size == ONLY), None)
        if only is not None and wanted:
            wanted[_place_of_only(wanted, product(piece.size for piece in pieces[:only]))] *= ONLY
        axes = _split(pieces, wanted)
        return None if axes is None else replace(self, axes=axes)


def unrepeated(views: Sequence[View]) -> list[View]:
    """Tensors of as many axes; an axis that is only repeated in one of them has one cell, where another has its own numbers."""
    own = [{at for at, axis in enumerate(view.axes or ()) if any(piece.axis != "R" for piece in axis)} for view in views]
    filled = set().union(*own)

    def once(view: View, held: Collection[int]) -> View:
        axes = enumerate(view.axes or ())
        return replace(view, axes=view.axes and tuple(() if at in filled - {*held} else axis for at, axis in axes))

    return [once(view, held) for view, held in zip(views, own, strict=True)]


def _place_of_only(sizes: Sequence[Dim], before: Dim) -> int:
    """The axis that gets an only image, which follows so many cells. It has one cell, so that it may stand in any near them: in one
    of its own, otherwise at the head of the next one, but not of the channels, which are the last.
    """
    counts: list[Dim] = [*accumulate(sizes, operator.mul, initial=1)]
    ends = (place for place, count in enumerate(counts[1:]) if counts[place] == before or not divides(count, before))
    place = next(ends, len(sizes) - 1)
    return place - 1 if 0 < place == len(sizes) - 1 and counts[place] == before and sizes[place] != 1 else place


def _split(pieces: Iterable[Piece], sizes: Iterable[Dim]) -> Axes | None:
    """Axes of these sizes over pieces; None where a piece cannot be split so."""
    left = [*pieces][::-1]
    found = []
    for size in sizes:
        taken, missing = [], size
        while missing != 1 and left:
            piece = left.pop()
            if isinstance(missing, int) and missing < 1:
                return None
            if isinstance(missing, int) and isinstance(piece.size, int) and missing % piece.size and not piece.size % missing:
                inner = piece.size // missing
                left.append(Piece(piece.axis, inner, piece.stride))
                piece = Piece(piece.axis, missing, piece.stride * inner)
            if not divides(piece.size, missing):
                return None
            taken.append(piece)
            missing = missing // piece.size
        if missing != 1:
            return None
        found.append(tuple(taken))
    return None if left else joined(found)


def joined(axes: Iterable[Iterable[Piece]]) -> Axes:
    """Without pieces of one step, and with pieces that follow each other in the value as one."""
    found = []
    for axis in axes:
        pieces: list[Piece] = []
        for piece in axis:
            last = pieces[-1] if pieces else None
            if last and last.axis == piece.axis and last.stride == piece.stride * piece.size:
                pieces[-1] = Piece(piece.axis, last.size * piece.size, piece.stride)
            elif piece.size != 1:
                pieces.append(piece)
        found.append(tuple(pieces))
    return tuple(found)
