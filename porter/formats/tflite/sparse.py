"""Sparse tensors of TensorFlow Lite: their values with the places of these, level by level
(SparsityParameters of its schema).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array
from porter.formats.tflite.flatbuffer import Table

Places = NDArray[np.int64]
_MOST_LEVELS = 16
_INDICES = ("", "i4", "u2", "u1")
"""The numbers of a SparseIndexVector, by its type."""


def dense(values: Array, shape: tuple[int, ...], stated: Table) -> Array:
    """The whole tensor, with zeros where it stores nothing.

    Args:
        values: those that it stores, in their order.

    Raises:
        ValueError: the places are outside the tensor, or there are other numbers of them than of values.
    """
    order, blocks = ([int(axis) for axis in stated.numbers(field, "i4")] for field in (0, 1))
    levels = stated.tables(2, _MOST_LEVELS)
    axes = range(len(shape))
    of_axes = sorted(order) == [*range(len(shape) + len(blocks))] and {*blocks} <= {*axes}
    if not of_axes or len(levels) != len(order):
        raise ValueError("its levels are not those of its axes")
    places = _Levels(math.prod(shape))
    sides = dict[int, int]()
    for axis, level in zip(order, levels, strict=True):
        if level.scalar(0, "b"):
            places.add_stored(axis, _numbers(level, 2), _numbers(level, 4))
        else:
            sides[axis] = level.scalar(1, "i")
            places.add_all(axis, sides[axis])
    for place, axis in enumerate(blocks, len(shape)):  # a block's cells follow those of its axis
        places.by_axis[axis] = places.by_axis[axis] * sides.get(place, 0) + places.by_axis[place]
    index = tuple(places.by_axis[axis] for axis in axes)
    within = all(np.all((own >= 0) & (own < size)) for own, size in zip(index, shape, strict=True))
    if len(places.parents) != values.size or not within:
        raise ValueError("its places are not those of its values")
    found = np.zeros(shape, values.dtype)
    found[index] = values
    return found


@dataclass
class _Levels:
    """The places of the values along the axes of the levels so far.

    Attributes:
        most: how many there may be.
        parents: the index of each in the last level.
    """

    most: int
    by_axis: dict[int, Places] = field(default_factory=dict)
    parents: Places = field(default_factory=lambda: np.zeros(1, np.int64))

    def add_all(self, axis: int, side: int) -> None:
        """A level of so many cells beneath each place."""
        chosen, within = self._chosen(np.full_like(self.parents, side))
        self._add(axis, chosen, within, self.parents[chosen] * side + within)

    def add_stored(self, axis: int, segments: Places, indices: Places) -> None:
        """A level of the cells that `indices` list beneath each place, from its segment on."""
        starts = segments[self.parents]
        chosen, within = self._chosen(segments[self.parents + 1] - starts)
        own = starts[chosen] + within
        self._add(axis, chosen, indices[own], own)

    def _chosen(self, counts: Places) -> tuple[Places, Places]:
        """The place of each cell, where `counts` says how many are beneath each place, and the cell's number
        there.
        """
        total = int(counts.sum())
        if min(counts, default=0) < 0 or total > self.most:
            raise ValueError("it has more places than cells")
        within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(np.arange(len(counts)), counts), within

    def _add(self, axis: int, chosen: Places, places: Places, parents: Places) -> None:
        self.by_axis = {known: own[chosen] for known, own in self.by_axis.items()}
        self.by_axis[axis] = places
        self.parents = parents


def _numbers(level: Table, field: int) -> Places:
    kind = level.scalar(field, "B")
    held = level.table(field + 1)
    if held is None or not 0 < kind < len(_INDICES):
        raise ValueError("a sparse level has no places")
    return held.numbers(0, _INDICES[kind]).astype(np.int64)
