"""Sparse tensors of TensorFlow Lite: their values with the places of these, level by level
(SparsityParameters of its schema).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array
from porter.formats.tflite.flatbuffer import Field, Table

Places = NDArray[np.int64]
_MOST_LEVELS = 16
_INDEX_TYPES = ("", "i4", "u2", "u1")
"""The types of the numbers of a SparseIndexVector, by its number in the schema."""
# Fields of SparsityParameters and of DimensionMetadata, by their places in these.
_ORDER, _BLOCKS = Field(0, "i4"), Field(1, "i4")
_LEVELS, _SEGMENTS, _INDICES = 2, 2, 4
_IS_SPARSE, _DENSE_SIZE = Field(0, "?"), Field(1, "i")


def fill_dense(values: Array, shape: tuple[int, ...], sparsity: Table) -> Array:
    """Return the whole tensor, with zeros where it stores nothing.

    Args:
        values: those that it stores, in their order.

    Raises:
        ValueError: the places are outside the tensor, or there are other numbers of them than of values.
    """
    # The order in which the levels store the axes, a block's axes last, and the axis that each block's axis
    # divides.
    order, blocks = ([int(axis) for axis in sparsity.numbers(field)] for field in (_ORDER, _BLOCKS))
    levels = sparsity.tables(_LEVELS, _MOST_LEVELS)
    stores_each_axis = sorted(order) == [*range(len(shape) + len(blocks))] and len(levels) == len(order)
    if not stores_each_axis or not {*blocks} <= {*range(len(shape))}:
        raise ValueError("its levels are not those of its axes")
    coordinates, sides, count = _read_coordinates(order, levels, math.prod(shape))
    for block_axis, axis in enumerate(blocks, len(shape)):  # a block's cells follow those of its axis
        coordinates[axis] = coordinates[axis] * sides.get(block_axis, 0) + coordinates[block_axis]
    index = tuple(coordinates[axis] for axis in range(len(shape)))
    are_within_shape = all(
        np.all((cells >= 0) & (cells < size)) for cells, size in zip(index, shape, strict=True)
    )
    if count != values.size or not are_within_shape:
        raise ValueError("its places are not those of its values")
    tensor = np.zeros(shape, values.dtype)
    tensor[index] = values
    return tensor


def _read_coordinates(
    order: Sequence[int], levels: Sequence[Table], most: int
) -> tuple[dict[int, Places], dict[int, int], int]:
    """Return the coordinates of all stored cells by axis, the sizes of the axes that are stored densely, and
    the number of cells. Cells (0, 2) and (1, 0) of a matrix are `{0: [0, 1], 1: [2, 0]}`.

    Args:
        order: the axis that each level stores.
        most: how many cells there may be.

    Raises:
        ValueError: there are more.
    """
    # The coordinates of the places so far, by axis, and the numbers by which the next level counts them.
    coordinates = dict[int, Places]()
    parents = np.zeros(1, np.int64)
    sides = dict[int, int]()
    for axis, level in zip(order, levels, strict=True):
        is_sparse = level.scalar(_IS_SPARSE)
        if is_sparse:
            segments, indices = (_level_numbers(level, field) for field in (_SEGMENTS, _INDICES))
            starts = segments[parents]
            counts = segments[parents + 1] - starts
        else:
            sides[axis] = level.scalar(_DENSE_SIZE)
            starts = np.zeros_like(parents)
            counts = np.full_like(parents, sides[axis])
            indices = None
        total = int(counts.sum())
        if min(counts, default=0) < 0 or total > most:
            raise ValueError("it has more places than cells")
        # 0, 1, ... anew for each parent.
        number_in_parent = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        parent_of = np.repeat(np.arange(len(parents)), counts)
        # Each place of the level keeps its parent's coordinates of the axes before.
        coordinates = {axis_before: cells[parent_of] for axis_before, cells in coordinates.items()}
        stored = np.repeat(starts, counts) + number_in_parent
        if indices is None:
            coordinates[axis] = stored
            parents = parents[parent_of] * sides[axis] + number_in_parent
        else:
            coordinates[axis] = indices[stored]
            parents = stored
    return coordinates, sides, len(parents)


def _level_numbers(level: Table, field: int) -> Places:
    """Return the numbers of a level's index vector: `field` has their type, and the field after it their
    table. Raise ValueError if there is none.
    """
    kind = level.scalar(Field(field, "B"))
    table = level.table(field + 1)
    if table is None or not 0 < kind < len(_INDEX_TYPES):
        raise ValueError("a sparse level has no places")
    return table.numbers(Field(0, _INDEX_TYPES[kind])).astype(np.int64)
