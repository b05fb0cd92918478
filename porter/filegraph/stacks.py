"""Products with stored matrices of which each has a place of its own, such as one of each head."""

from __future__ import annotations

import math

import numpy as np

from porter.filegraph import arrays
from porter.filegraph.dataflow import MOST_COMPUTED, N, Reference, Tensor
from porter.filegraph.walk import Read, Walk


def with_matrices(walk: Walk[N], node: N, source: Reference, matrices: Tensor) -> Read:
    """A value times stored matrices over its last axis: each of its numbers times a row, and the sum of these."""
    view, shape = walk.view(source), matrices.shape
    missing = len(shape) - len(view.axes or ())
    wide = view.with_axes([*range(missing), -1]) if view.axes else None
    array = walk.as_array(f"{node.name}:array", wide) if wide is not None else None
    if array is None or array.sizes is None:
        return f"{node.op} of values of different axes"
    rows = (*shape[:-2], 1, *shape[-2:])
    if math.prod(np.broadcast_shapes(array.sizes[-len(rows) :], rows)) > MOST_COMPUTED:
        return f"{node.op} with so many matrices, or by an open size"
    held = walk.flow.evaluated.get(matrices.name)
    numbers = walk.flow.constants.array(matrices.name) if held is None else held
    walk.flow.evaluated[f"{node.name}:rows"] = np.asarray(numbers, np.float64).reshape(rows)
    value = arrays.with_stored(walk, f"{node.name}:products", "Mul", array.value, Tensor(f"{node.name}:rows", rows))
    return None if value is None else arrays.total(walk, node, arrays.like(walk, array, value), [-2], False)
