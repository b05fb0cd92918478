"""A layer over any axes of a tensor, which become its channels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from porter.filegraph.dataflow import OperatorNode
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.layouts.axes import Source, View
from porter.filegraph.layouts.dims import (
    Open,
    product,
)
from porter.filegraph.places import position_of
from porter.filegraph.walk import Walk
from porter.graph import Op

Positions = Collection[int]
"""Places of axes in the tensor as the file has it, from either end."""


class TensorLayer(NamedTuple):
    """An op with its tensors; if it is `of_map`, the cells of an array are put on a map for it."""

    op: Op
    tensors: Mapping[str, Stored]
    of_map: bool

    def of_cells(self, walk: Walk, name: str, view: View) -> View:
        """Add the layer over the last axis of a view, and return its view."""
        cells = walk.layouts.cells_or_as_held(f"{name}:cells", view) if self.of_map else view
        return walk.views.with_axes_of(
            cells, walk.builder.add(name, self.op, cells.value, tensors=self.tensors)
        )

    def of_joined(self, axes: int) -> TensorLayer:
        """Return the layer for channels that are several axes of the file's tensor joined, `axes` in number:
        the stored tensors have these axes too, so each letter in `Stored.axes` stands for one.
        """
        tensors = {role: replace(stored, axes="O" * axes) for role, stored in self.tensors.items()}
        return self._replace(tensors=tensors)


def apply_along(walk: Walk, node: OperatorNode, source: Source, axes: Positions, layer: TensorLayer) -> View:
    """Add a layer whose channels are these axes of the tensor, wherever they stand, and return its view. The
    last axis is taken as it is, also the channels of a map; other axes are moved to the end, joined, and
    moved back.

    Raises:
        Unsupported: the batch is among the axes, or one is of open size.
    """
    view = walk.layouts.operand(source)
    sizes = view.sizes or ()
    positions = sorted(position_of(axis, len(sizes)) for axis in axes)
    is_last_axis = positions == [len(sizes) - 1]
    if is_last_axis:
        return layer.of_cells(walk, node.name, walk.layouts.with_channels_at(source))
    if len(positions) == 1 and walk.views.has_channels(view, *positions) and not view.value.is_array:
        return layer._replace(of_map=False).of_cells(walk, node.name, view)
    other_positions = [position for position in range(len(sizes)) if position not in positions]
    order = [*other_positions, *positions]
    channel_sizes = [sizes[position] for position in positions]
    has_batch_first = order[0] == 0
    if not has_batch_first or any(isinstance(size, Open) for size in channel_sizes):
        raise Unsupported(f"over the axes {[*axes]!r:.40}")
    channels_last = view.transposed(order)
    other_sizes = channels_last.known_sizes[: -len(positions)]
    joined = channels_last.reshaped([*other_sizes, product(channel_sizes)])
    flat = walk.layouts.as_array(f"{node.name}:flat", joined)
    result = layer.of_joined(len(positions)).of_cells(walk, node.name, flat)
    split = result.reshaped(channels_last.known_sizes).untransposed(order)
    return walk.views.restore_layout(f"{node.name}:map", split, view)
