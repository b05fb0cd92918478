"""Windows over several maps of each image, which a file counts among the images, such as parts of it or the
heads of an attention: in the port, their rows stand below each other in one map.

So a layer keeps its own tensors. Rows of zeros between two maps are the pads of both.
"""

from __future__ import annotations

from dataclasses import dataclass

from porter.filegraph.dataflow import OperatorNode
from porter.filegraph.file_graph import Unsupported, none_if_unsupported
from porter.filegraph.layer_values import Value
from porter.filegraph.layouts.axes import Piece, View, join_pieces
from porter.filegraph.layouts.dims import product
from porter.filegraph.tensors.parts import cut_nonempty
from porter.filegraph.walk import Walk
from porter.graph import PadAxis
from porter.graph.ops import AXES
from porter.padding import Pads, Window


@dataclass(frozen=True)
class Stack:
    """Several maps of each image below each other, as one map.

    Attributes:
        value: the one map.
        pads: of the window over it.
        count: of the maps of an image.
        rows_to_next: in the result of the window, the rows from where one map's begin to where the next one's
            do.
        rows: how many of these are the map's own; the others are of windows over two maps.
    """

    value: Value
    pads: Pads
    count: int
    rows_to_next: int
    rows: int


def stack_maps(walk: Walk, node: OperatorNode, view: View, window: Window, pads: Pads) -> Stack | None:
    """Stack the maps of a view whose first axis counts several maps of each image, so that one window runs
    over all of them; return None for other views, and if the maps cannot be stacked.
    """
    maps = _several_maps(walk, view)
    if maps is None:
        return None
    _, *pieces_beside_batch = maps.known_axes[0]
    count = product(piece.size for piece in pieces_beside_batch)
    rows = maps.known_sizes[1]
    if not isinstance(count, int) or not isinstance(rows, int):
        return None
    top, bottom, left, right = pads
    padded_rows = rows + top + bottom
    step = window.stride[0]
    extent = window.extent(0)
    rows_to_step = -padded_rows % step  # further zeros, so that the next map begins at a step of the window
    if top or bottom or rows_to_step:
        array = walk.layouts.as_array(f"{node.name}:maps", maps)
        op = PadAxis(1, top, bottom + rows_to_step)
        maps = walk.views.as_rank_of(array, walk.builder.add(f"{node.name}:between", op, array.value))
    if extent > padded_rows:
        return None
    value = none_if_unsupported(lambda: _stack_below(walk, f"{node.name}:below", maps))
    if value is None:
        return None
    pad_after = max(extent - step, 0)  # so that the last map has as many results as the others
    return Stack(
        value,
        (0, pad_after, left, right),
        count,
        rows_to_next=(padded_rows + rows_to_step) // step,
        rows=(padded_rows - extent) // step + 1,
    )


def _several_maps(walk: Walk, view: View) -> View | None:
    """Return the view with its channels last if its first axis is the batch and counts several maps of each
    image too; otherwise None.
    """
    order = _channels_last(walk)
    if view.axes is None or len(view.axes) != len(order) or walk.views.lacks_batch:
        return None
    maps = view.transposed(order)
    first_axis = maps.known_axes[0]
    has_more_than_batch = len(first_axis) > 1 and first_axis[0].axis == "N"
    return maps if has_more_than_batch else None


def unstack_maps(walk: Walk, node: OperatorNode, stack: Stack, value: Value) -> View:
    """Return the result of a window over stacked maps as the file's tensor: each map apart, without the rows
    of windows over two maps.
    """
    maps = _split_maps(walk, value, stack.count, stack.rows_to_next)
    if stack.rows == stack.rows_to_next:
        return maps.untransposed(_channels_last(walk))
    maps_alone = cut_nonempty(walk, node, maps, {1: slice(0, stack.rows)})
    below = _stack_below(walk, f"{node.name}:own", maps_alone)
    return _split_maps(walk, below, stack.count, stack.rows).untransposed(_channels_last(walk))


def _stack_below(walk: Walk, name: str, view: View) -> Value:
    """Add the op that puts several maps of each image below each other, as one map, and return its value.

    Args:
        view: has the batch and the count of maps as its first axis, then rows, columns and channels.

    Raises:
        Unsupported: the maps cannot be put so.
    """
    (images, *maps), rows, *other_axes = view.known_axes
    below = View(view.value, join_pieces([(images,), (*maps, *rows), *other_axes]))
    value = walk.views.in_file_layout(name, below.untransposed(_channels_last(walk)))
    if not value.is_map:
        raise Unsupported("of several maps of each image that are not rows below each other")
    return value


def _split_maps(walk: Walk, value: Value, count: int, rows: int) -> View:
    """Return the view of one map as `count` maps of each image, each of so many rows. They stand in its first
    axis, beside the batch.
    """
    images, _, *other_axes = walk.views.own_view(value).transposed(_channels_last(walk)).known_axes
    images_and_maps = (*images, Piece("H", count, rows))
    return View(value, join_pieces([images_and_maps, (Piece("H", rows),), *other_axes]))


def _channels_last(walk: Walk) -> list[int]:
    """Return the order of axes in which the file's own layout becomes batch, rows, columns and channels."""
    layout = walk.views.layout()
    channels, rows, columns = AXES
    return [0, layout.index(rows), layout.index(columns), layout.index(channels)]
