"""Sparse tensors of TensorFlow Lite: their values with the places of these, level by level
(SparsityParameters of its schema).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array
from porter.formats.tflite.flatbuffer import Table

Places = NDArray[np.int64]
_MOST_LEVELS = 16
_INDICES = ("", "i4", "u2", "u1")
"""The numbers of a SparseIndexVector, by its type."""


def dense(values: Array, shape: tuple[int, ...], sparsity: Table) -> Array:
    """The whole tensor, with zeros where it stores nothing.

    Args:
        values: those that it stores, in their order.

    Raises:
        ValueError: the places are outside the tensor, or there are other numbers of them than of values.
    """
    order, blocks = ([int(axis) for axis in sparsity.numbers(field, "i4")] for field in (0, 1))
    levels = sparsity.tables(2, _MOST_LEVELS)
    if (
        sorted(order) != [*range(len(shape) + len(blocks))]
        or len(levels) != len(order)
        or not {*blocks} <= {*range(len(shape))}
    ):
        raise ValueError("its levels are not those of its axes")
    places = dict[int, Places]()
    parents = np.zeros(1, np.int64)
    sides = dict[int, int]()
    for axis, level in zip(order, levels, strict=True):
        if level.scalar(0, "b"):
            segments, indices = (_numbers(level, field) for field in (2, 4))
            starts = segments[parents]
            counts = segments[parents + 1] - starts
        else:
            sides[axis] = level.scalar(1, "i")
            starts = np.zeros_like(parents)
            counts = np.full_like(parents, sides[axis])
            indices = None
        total = int(counts.sum())
        if min(counts, default=0) < 0 or total > math.prod(shape):
            raise ValueError("it has more places than cells")
        within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        chosen = np.repeat(np.arange(len(parents)), counts)
        places = {over: cells[chosen] for over, cells in places.items()}
        own = np.repeat(starts, counts) + within
        places[axis] = own if indices is None else indices[own]
        parents = parents[chosen] * sides[axis] + within if indices is None else own
    for block_axis, axis in enumerate(blocks, len(shape)):  # a block's cells follow those of its axis
        places[axis] = places[axis] * sides.get(block_axis, 0) + places[block_axis]
    index = tuple(places[axis] for axis in range(len(shape)))
    within_shape = all(
        np.all((cells >= 0) & (cells < size)) for cells, size in zip(index, shape, strict=True)
    )
    if len(parents) != values.size or not within_shape:
        raise ValueError("its places are not those of its values")
    tensor = np.zeros(shape, values.dtype)
    tensor[index] = values
    return tensor


def _numbers(level: Table, field: int) -> Places:
    kind = level.scalar(field, "B")
    table = level.table(field + 1)
    if table is None or not 0 < kind < len(_INDICES):
        raise ValueError("a sparse level has no places")
    return table.numbers(0, _INDICES[kind]).astype(np.int64)
