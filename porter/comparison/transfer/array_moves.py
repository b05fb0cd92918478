"""How the cells of one array lie in another: as few steps of numpy as do it, which have a text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Places: TypeAlias = NDArray[np.int64]
"""For each cell of an array, the place of its number in another one, whose cells are counted in their
order.
"""
_USUAL = ((2, 3, 1, 0), (2, 3, 0, 1), (3, 2, 0, 1), (2, 3, 4, 1, 0))
"""Orders of axes that people write for kernels: where axes of one cell leave a choice, the first of these."""


@dataclass(frozen=True)
class EqualPart:
    """One of several equal parts of an array along an axis."""

    count: int
    place: int
    axis: int

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        return np.split(array, self.count, self.axis)[self.place]

    def text(self, value: str) -> str:
        return f"np.split({value}, {self.count}{f', {self.axis}' if self.axis else ''})[{self.place}]"


@dataclass(frozen=True)
class Cut:
    """The cells of an array from one place to another along an axis."""

    axis: int
    start: int
    stop: int

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        return array[(slice(None),) * self.axis + (slice(self.start, self.stop),)]

    def text(self, value: str) -> str:
        return f"{value}[{':, ' * self.axis}{self.start or ''}:{self.stop}]"


@dataclass(frozen=True)
class Indexed:
    """An array without some axes of one cell (0), or with new ones (None); `:` is an axis that stays."""

    axes: tuple[str, ...]

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        known: dict[str, Any] = {":": slice(None), "0": 0, "None": None}
        taken: NDArray[Any] = array[tuple(known[axis] for axis in self.axes)]
        return taken

    def text(self, value: str) -> str:
        last = max(place for place, axis in enumerate(self.axes) if axis != ":")
        return f"{value}[{', '.join(self.axes[: last + 1])}]"


@dataclass(frozen=True)
class Turned:
    """An array with its axes in another order."""

    order: tuple[int, ...]

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        return array.transpose(self.order)

    def text(self, value: str) -> str:
        return f"{value}.T" if self.order == (1, 0) else f"{value}.transpose{self.order}"


@dataclass(frozen=True)
class Shaped:
    """An array in another shape."""

    shape: tuple[int, ...]

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        return array.reshape(self.shape)

    def text(self, value: str) -> str:
        return f"{value}.reshape({', '.join(map(str, self.shape))})"


Step: TypeAlias = EqualPart | Cut | Indexed | Turned | Shaped
Move: TypeAlias = tuple[Step, ...]


def moved(move: Move, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array after the steps of a move."""
    for step in move:
        array = step.of(array)
    return array


def move_text(move: Move, value: str) -> str:
    """Return the steps of a move as an expression of numpy on `text`."""
    for step in move:
        value = step.text(value)
    return value


def counted(shape: Sequence[int]) -> Places:
    """Return an array of a shape whose cells are numbered from 0 in their order."""
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def move_of(places: Places, shape: Sequence[int]) -> Move | None:
    """Return the steps that make an array of `shape` the one whose cells have these places in it; None where
    slices, orders of axes and shapes are not all.

    Args:
        places: for each cell of the result, the number of the cell that it comes from.
    """
    if places.size == 0:
        return None
    cuts, inner = _cut(places, tuple(shape))
    for steps in _candidates(inner, places.shape):
        if (moved(steps, inner) == places).all():
            return cuts + steps
    split = _general(places, inner)
    return None if split is None else cuts + split


def _cut(places: Places, shape: tuple[int, ...]) -> tuple[Move, Places]:
    """Return the slices that hold all these places, and what they leave of the array, its cells numbered as
    before.
    """
    steps = list[Step]()
    inner = counted(shape)
    for axis, size in enumerate(shape):
        # the index along this axis of each place
        own = places // math.prod(shape[axis + 1 :]) % size
        start = int(own.min())
        stop = int(own.max()) + 1
        if stop - start == size:
            continue
        # a part of equal ones, such as the second of three
        fits = size % (stop - start) == 0 and start % (stop - start) == 0
        step = (
            EqualPart(size // (stop - start), start // (stop - start), axis)
            if fits
            else Cut(axis, start, stop)
        )
        steps.append(step)
        inner = step.of(inner)
    return tuple(steps), inner


def _candidates(inner: Places, shape: tuple[int, ...]) -> Iterable[Move]:
    """Yield moves of axes that give the shape, likeliest first: none, an order of axes, and one around axes
    of one cell.

    Args:
        inner: the array that is moved.
        shape: that of the result.
    """
    own = inner.shape
    if own == shape:
        yield ()
    if len(own) == len(shape):
        usual = [order for order in _USUAL if len(order) == len(own)]
        for order in (*usual, *permutations(range(len(own)))):
            if tuple(own[axis] for axis in order) == shape:
                yield (Turned(order),)
        return
    squeezed = tuple(size for size in own if size != 1)
    wanted = tuple(size for size in shape if size != 1)
    if sorted(squeezed) != sorted(wanted):
        return
    before = (Indexed(tuple("0" if size == 1 else ":" for size in own)),) if squeezed != own else ()
    after = (Indexed(tuple("None" if size == 1 else ":" for size in shape)),) if wanted != shape else ()
    for order in permutations(range(len(squeezed))):
        if tuple(squeezed[axis] for axis in order) == wanted:
            turned = () if order == tuple(range(len(order))) else (Turned(order),)
            yield (*before, *turned, *after)


def _general(places: Places, inner: Places) -> Move | None:
    """Return the steps that split and join axes, which are found by the strides of the places; None where the
    places have no even strides.
    """
    known = np.searchsorted(flat := np.sort(inner, axis=None), places)
    if flat.size != places.size:
        return None
    axes = list[tuple[int, int]]()
    for axis in range(known.ndim):
        line = np.moveaxis(known, axis, 0).reshape(known.shape[axis], -1)[:, 0]
        own = _strides(line - line[0])
        if own is None:
            return None
        axes += own
    # The axis with the longest step is the slowest in the array.
    order = sorted(range(len(axes)), key=lambda place: -axes[place][1])
    split = tuple(axes[place][0] for place in order)
    # where each of the result's axes is after the split
    turn = tuple(order.index(place) for place in range(len(axes)))
    steps: list[Step] = [Shaped(split)] if split != inner.shape else []
    steps += [Turned(turn)] if turn != tuple(range(len(turn))) else []
    steps += [Shaped(places.shape)]
    if math.prod(split) != places.size or not (moved(tuple(steps), inner) == places).all():
        return None
    return tuple(steps)


def _strides(line: Places) -> list[tuple[int, int]] | None:
    """Return an axis as axes of even steps: their sizes and steps, the slowest first; None where it is not
    made of such. An axis of one cell is none at all.
    """
    if len(line) == 1:
        return []
    step = int(line[1])
    breaks = np.flatnonzero(np.diff(line) != step)
    run = int(breaks[0]) + 1 if len(breaks) else len(line)
    if len(line) % run:
        return None
    outer = _strides(line[::run])
    return None if outer is None else [*outer, (run, step)]
