"""Windows over several maps of each image, which a file counts among the images, such as parts of it or the
heads of an attention: in the port, their rows stand below each other in one map.

So a layer keeps its own tensors. Rows of zeros between two maps are the pads of both.
"""

from __future__ import annotations

from dataclasses import dataclass

from porter.filegraph.axes import Piece, View, join_pieces
from porter.filegraph.builder import Value
from porter.filegraph.dataflow import OperatorNode
from porter.filegraph.dims import product
from porter.filegraph.file_graph import Unsupported, none_if_unsupported
from porter.filegraph.parts import cut_nonempty
from porter.filegraph.walk import Walk
from porter.graph import PadAxis
from porter.graph.ops import AXES
from porter.padding import Pads, Window


@dataclass(frozen=True)
class Stack:
    """Maps below each other.

    Attributes:
        value: the map that they are together.
        pads: of the window over it.
        count: of the maps of an image.
        rows_to_next: the rows from one map's results to the next one's.
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
    count = product(piece.size for piece in maps.known_axes[0][1:])
    rows = maps.known_sizes[1]
    if not isinstance(count, int) or not isinstance(rows, int):
        return None
    top, bottom, left, right = pads
    padded_rows = rows + top + bottom
    step = window.stride[0]
    extent = window.extent(0)
    extra = -padded_rows % step  # so that each map begins at a step of the window
    if top or bottom or extra:
        array = walk.as_array(f"{node.name}:maps", maps)
        padded = walk.builder.add(f"{node.name}:between", PadAxis(1, top, bottom + extra), array.value)
        maps = walk.views.as_rank_of(array, padded)
    if extent > padded_rows:
        return None
    value = none_if_unsupported(lambda: _stack_below(walk, f"{node.name}:below", maps))
    if value is None:
        return None
    after = max(extent - step, 0)  # so that the last map has as many results as the others
    return Stack(
        value,
        (0, after, left, right),
        count,
        rows_to_next=(padded_rows + extra) // step,
        rows=(padded_rows - extent) // step + 1,
    )


def _several_maps(walk: Walk, view: View) -> View | None:
    """Return the view with its channels last if it holds several maps of each image, otherwise None."""
    order = _channels_last(walk)
    if view.axes is None or len(view.axes) != len(order) or walk.views.lacks_batch:
        return None
    maps = view.transposed(order)
    first = maps.known_axes[0]
    return maps if first[1:] and first[0].axis == "N" else None


def unstack_maps(walk: Walk, node: OperatorNode, stack: Stack, value: Value) -> View:
    """Return the result of a window over stacked maps as the file's tensor: each map apart, without the rows
    of windows over two maps.
    """
    maps = _split_maps(walk, value, stack.count, stack.rows_to_next)
    if stack.rows == stack.rows_to_next:
        return maps.untransposed(_channels_last(walk))
    own = cut_nonempty(walk, node, maps, {1: slice(0, stack.rows)})
    below = _stack_below(walk, f"{node.name}:own", own)
    return _split_maps(walk, below, stack.count, stack.rows).untransposed(_channels_last(walk))


def _stack_below(walk: Walk, name: str, view: View) -> Value:
    """Return maps, whose channels are the last axis and which the first axis has beside the images, as one
    map.

    Raises:
        Unsupported: they are no such maps.
    """
    (images, *several), *axes = view.known_axes
    below = View(view.value, join_pieces([(images,), (*several, *axes[0]), *axes[1:]]))
    value = walk.views.in_file_layout(name, below.untransposed(_channels_last(walk)))
    if not value.is_map:
        raise Unsupported("of several maps of each image that are not rows below each other")
    return value


def _split_maps(walk: Walk, value: Value, count: int, rows: int) -> View:
    """Return such a map as the tensor of its maps, each of so many rows."""
    images, _, *others = walk.views.own_view(value).transposed(_channels_last(walk)).known_axes
    return View(value, join_pieces([(*images, Piece("H", count, rows)), (Piece("H", rows),), *others]))


def _channels_last(walk: Walk) -> list[int]:
    """Return the order of axes in which the file's own layout is batch, rows, columns and channels."""
    layout = walk.views.layout()
    return [0, *(layout.index(axis) for axis in (*AXES[1:3], AXES[0]))]
