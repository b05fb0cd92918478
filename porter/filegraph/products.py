"""Products of a value and a stored kernel, as dense layers. See porter.filegraph.arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from porter.filegraph import arrays
from porter.filegraph.arithmetic import is_vector
from porter.filegraph.dataflow import N, Reference
from porter.filegraph.file_graph import Stored
from porter.filegraph.walk import Lacks, Read, Walk


def along_channels(walk: Walk[N], node: N, source: Reference, kernel: Reference, pads: Sequence[int]) -> Read:
    """A 1-D convolution along the channels by one kernel, as of ECA: a dense layer that has the kernel along its diagonals.

    Args:
        kernel: 1×1×numbers; the value is N×1×channels.
        pads: how many zeros stand before the first channel, and after the last one.
    """
    view, numbers = walk.view(source), walk.flow.value(kernel)
    along = view.sizes is not None and view.sizes[1:-1] == (1,) and walk.views.has_channels(view, -1)
    if numbers is None or numbers.shape[:2] != (1, 1) or not along:
        return Lacks(f"{node.op} over other axes than the channels")
    channels, (first, last) = view.value.channels or 0, pads
    units = channels + first + last - numbers.size + 1
    if min(first, last, units - 1) < 0:
        return Lacks()
    if not walk.flow.affords(8 * units * (channels + first + last)):
        return Lacks(f"{node.op} over {channels} channels")
    padded = np.zeros((units, channels + first + last))
    for place, row in enumerate(padded):
        row[place : place + numbers.size] = numbers.ravel()
    held = walk.flow.hold(node.name, padded[:, first : first + channels])
    return walk.views.like(view, walk.builder.dense(node.name, view.value, units, {"kernel": Stored(held.name, "OI")}))


@dataclass(frozen=True)
class Product:
    """factors[0] * value @ kernel + factors[1] * bias.

    Attributes:
        axes: of the kernel, as in Stored.
        bias: a constant of one number, or one for each unit.
        place: of the features in the value; if it is not the last, the value is transposed before its product.
    """

    kernel: Reference
    axes: str
    bias: Reference | None = None
    factors: tuple[float, float] = (1.0, 1.0)
    place: int = -1


def dense(walk: Walk[N], node: N, source: Reference, product: Product) -> Read:
    """A product as a dense layer, or over the cells of a map as a 1x1 convolution."""
    axes, bias, factors, place = product.axes, product.bias, product.factors, product.place
    tensor = walk.flow.weights(product.kernel)
    if tensor is None or len(tensor.shape) != 2 or not axes:
        return Lacks()
    taken, units = (tensor.shape[axes.index(axis)] for axis in "IO")
    view = walk.by_cell(source, place)
    view = view if place == -1 else view.transposed((1, 0)) or view
    if view.axes is not None and not walk.views.has_channels(view, -1):
        view = walk.as_array(f"{node.name}:rows", view) or view
    if (view.axes is not None and not walk.views.has_channels(view, -1)) or view.value.channels not in (None, taken):
        return Lacks(f"{node.op} over other axes than the channels")
    tensors = {"kernel": Stored(tensor.name, axes)}
    vector = None if bias is None or factors[1] != 1 else walk.flow.weights(bias)
    if vector is not None and is_vector(vector, units):
        tensors["bias"], bias = Stored(vector.name), None
    value = walk.builder.affine(f"{node.name}:factor", view.value, factors[:1], (0.0,))
    value = walk.builder.dense(node.name, value, units, tensors)
    if bias is not None:
        numbers = walk.flow.value(bias)
        each_row = numbers is not None and numbers.size not in (1, (*numbers.shape, 1)[numbers.ndim - 1])
        if numbers is None or (each_row and not walk.views.whole):
            return Lacks(f"{node.op} with a bias for each image")
        if each_row or (value.is_array and numbers.size > 1):
            held = walk.flow.hold(f"{node.name}:bias", numbers * factors[1])
            added = arrays.with_stored(walk, node.name, "Add", value, held)
            return walk.views.like(view, added) if added is not None else Lacks()
        value = walk.builder.affine(f"{node.name}:bias", value, (1.0,), (numbers.ravel() * factors[1]).tolist())
    return walk.views.like(view, value)
