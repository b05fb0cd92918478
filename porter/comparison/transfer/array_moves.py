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
        axis = f", {self.axis}" if self.axis else ""
        return f"np.split({value}, {self.count}{axis})[{self.place}]"


@dataclass(frozen=True)
class Cut:
    """The cells of an array from one place to another along an axis."""

    axis: int
    start: int
    stop: int

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        return array[(slice(None),) * self.axis + (slice(self.start, self.stop),)]

    def text(self, value: str) -> str:
        # `x[:, :, 2:5]` for axis 2
        whole_axes = ":, " * self.axis
        return f"{value}[{whole_axes}{self.start or ''}:{self.stop}]"


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
    """Return the steps of a move as an expression of numpy on `value`: `w.reshape(8, 3).T` for `w`."""
    for step in move:
        value = step.text(value)
    return value


def counted(shape: Sequence[int]) -> Places:
    """Return an array of a shape whose cells are numbered from 0 in their order: `[[0, 1], [2, 3]]` for (2,
    2).
    """
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def move_of(places: Places, shape: Sequence[int]) -> Move | None:
    """Return the steps of numpy that make an array of `shape` into one with the cells `places`: for
    `[[0, 3], [1, 4], [2, 5]]` of an array (2, 3), a transpose. Return None where slices, orders of axes and
    shapes do not do it.

    Args:
        places: for each cell of the result, the number of the cell that it comes from.
    """
    if places.size == 0:
        return None
    cuts, inner = _cut(places, tuple(shape))
    for steps in _candidates(inner, places.shape):
        if (moved(steps, inner) == places).all():
            return cuts + steps
    reshapes = _general(places, inner)
    return None if reshapes is None else cuts + reshapes


def _cut(places: Places, shape: tuple[int, ...]) -> tuple[Move, Places]:
    """Return the slices that leave only the part of an array in which all these places lie, and that part of
    `counted(shape)`. There are none if the places are in all of the array.
    """
    steps = list[Step]()
    inner = counted(shape)
    for axis, size in enumerate(shape):
        # the index along this axis of each place
        indices = places // math.prod(shape[axis + 1 :]) % size
        start = int(indices.min())
        stop = int(indices.max()) + 1
        length = stop - start
        if length == size:
            continue
        step: Step = Cut(axis, start, stop)
        # a part of equal ones, such as the second of three
        if size % length == 0 and start % length == 0:
            step = EqualPart(size // length, start // length, axis)
        steps.append(step)
        inner = step.of(inner)
    return tuple(steps), inner


def _candidates(inner: Places, shape: tuple[int, ...]) -> Iterable[Move]:
    """Yield moves that give the shape, likeliest first: none, an order of axes, and an order of axes with
    axes of one cell dropped before it or added after it.

    Args:
        inner: the array that is moved.
        shape: that of the result.
    """
    own_shape = inner.shape
    if own_shape == shape:
        yield ()
    if len(own_shape) == len(shape):
        usual_orders = [order for order in _USUAL if len(order) == len(own_shape)]
        for order in (*usual_orders, *permutations(range(len(own_shape)))):
            if tuple(own_shape[axis] for axis in order) == shape:
                yield (Turned(order),)
        return
    sizes = tuple(size for size in own_shape if size != 1)
    wanted_sizes = tuple(size for size in shape if size != 1)
    if sorted(sizes) != sorted(wanted_sizes):
        return
    drop = Indexed(tuple("0" if size == 1 else ":" for size in own_shape))
    add = Indexed(tuple("None" if size == 1 else ":" for size in shape))
    for order in permutations(range(len(sizes))):
        if tuple(sizes[axis] for axis in order) == wanted_sizes:
            steps = list[Step]()
            if sizes != own_shape:
                steps.append(drop)
            if order != tuple(range(len(order))):
                steps.append(Turned(order))
            if wanted_sizes != shape:
                steps.append(add)
            yield tuple(steps)


def _general(places: Places, inner: Places) -> Move | None:
    """Return the steps for a result whose axes are parts of the array's, or several of them in one: a
    reshape, an order of axes and another reshape, which are found by the strides of the places. Return None
    where the places have no even strides, or are not all of `inner`.
    """
    cells = np.sort(inner, axis=None)
    if cells.size != places.size:
        return None
    # the place of each cell among those of `inner`, counted from 0
    ranks = np.searchsorted(cells, places)
    # the size and the step of each axis of the result, or of the axes that are joined in it
    axes = list[tuple[int, int]]()
    for axis in range(ranks.ndim):
        line = np.moveaxis(ranks, axis, 0).reshape(ranks.shape[axis], -1)[:, 0]
        strides = _strides(line - line[0])
        if strides is None:
            return None
        axes += strides
    # The axis with the longest step is the slowest in the array.
    order = sorted(range(len(axes)), key=lambda place: -axes[place][1])
    split = tuple(size for size, _ in (axes[place] for place in order))
    # where each of the result's axes is after the split
    turn = tuple(order.index(place) for place in range(len(axes)))
    steps: list[Step] = [Shaped(split)] if split != inner.shape else []
    steps += [Turned(turn)] if turn != tuple(range(len(turn))) else []
    steps += [Shaped(places.shape)]
    if math.prod(split) != places.size or not (moved(tuple(steps), inner) == places).all():
        return None
    return tuple(steps)


def _strides(line: Places) -> list[tuple[int, int]] | None:
    """Return the axes that are joined in one axis, each as its size and its step, the slowest first: the
    places `[0, 1, 10, 11]` are those of two axes, `[(2, 10), (2, 1)]`. Return None where the steps are not
    even, and an empty list for one cell.
    """
    if len(line) == 1:
        return []
    step = int(line[1])
    breaks = np.flatnonzero(np.diff(line) != step)
    # the length of the fastest axis, which ends at the first other step
    run = int(breaks[0]) + 1 if len(breaks) else len(line)
    if len(line) % run:
        return None
    outer = _strides(line[::run])
    return None if outer is None else [*outer, (run, step)]
