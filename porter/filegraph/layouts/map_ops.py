"""Ops from a map to a map, as the axes of a file's tensor suggest them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from porter.filegraph.layouts.axes import REPEATED, AxisPieces, Piece
from porter.filegraph.layouts.dims import Dim, Open, quotient, ratio
from porter.graph import ChannelShuffle, DepthToSpace, Op, SpaceToDepth, Upsample
from porter.graph.ops import Order

OpAndAxes = tuple[Op, Iterable[tuple[Piece, ...]]]
"""An op, and the axes that its value has in a tensor in the file's own order."""
_Parts = tuple[tuple[Piece, ...], tuple[Piece, ...], tuple[Piece, ...]]
"""The pieces of rows, of columns and of channels."""


def map_ops(order: Order, whole: Sequence[Piece], axes: AxisPieces) -> Iterator[OpAndAxes]:
    """Yield ops from a map to a map, each with the axes that it gives: an upsampling, a channel shuffle, and
    moves of blocks of cells from or to the channels, with the factors that the axes suggest. The caller takes
    the op whose axes are the tensor's.

    Args:
        order: of the file.
        whole: the batch, the channels, the rows and the columns of the map as a piece each.
        axes: the tensor's.
    """
    batch, c, h, w = whole
    rows, columns, channels = axes[1:] if order == "HWC" else (*axes[2:], axes[1])
    # the innermost pieces of rows and columns, which an op has put there
    times_down, times_across = (size_or_one(axis[-1].size) if axis else 1 for axis in (rows, columns))
    block = next((size_or_one(piece.size) for piece in channels if piece.axis == h.axis), 1)
    candidates = [
        _upsample(c, h, w, times_down, times_across),
        *(_shuffle(c, h, w, channels[1]) if len(channels) == 2 else ()),
        *_depth_to_space(c, h, w, times_down),
        *(_space_to_depth(c, h, w, block) if block > 1 else ()),
    ]
    for op, parts in candidates:
        yield op, axes_of_map(order, batch, *parts)


def axes_of_map(
    order: Order, n: Piece, h: tuple[Piece, ...], w: tuple[Piece, ...], c: tuple[Piece, ...]
) -> list[tuple[Piece, ...]]:
    """Return the axes of a map in the file's own order."""
    return [(n,), h, w, c] if order == "HWC" else [(n,), c, h, w]


def size_or_one(size: Dim) -> int:
    """Return a size as a number for an op; 1 if it is open."""
    return 1 if isinstance(size, Open) else size


def _upsample(c: Piece, h: Piece, w: Piece, down: int, across: int) -> tuple[Op, _Parts]:
    return Upsample(down, across), ((h, Piece(REPEATED, down, 0)), (w, Piece(REPEATED, across, 0)), (c,))


def _shuffle(c: Piece, h: Piece, w: Piece, inner: Piece) -> Iterator[tuple[Op, _Parts]]:
    """Yield the shuffle of as many groups as the inner piece of the channels has cells."""
    groups = size_or_one(inner.size)
    channels_of_group = c.size // groups
    shuffled = Piece("C", channels_of_group), Piece("C", groups, channels_of_group)
    yield ChannelShuffle(groups), ((h,), (w,), shuffled)


def _depth_to_space(c: Piece, h: Piece, w: Piece, block: int) -> Iterator[tuple[Op, _Parts]]:
    """Yield the ops that take the cells of a block from the channels, where these hold whole blocks."""
    fewer_channels = ratio(c.size, block**2)
    if fewer_channels is None:
        return
    # DCR: the cells of a block come first among the channels; CRD: behind them
    cells_first = (
        (h, Piece("C", block, block * fewer_channels)),
        (w, Piece("C", block, fewer_channels)),
        (Piece("C", fewer_channels),),
    )
    cells_last = (
        (h, Piece("C", block, block)),
        (w, Piece("C", block)),
        (Piece("C", fewer_channels, block**2),),
    )
    yield DepthToSpace(block, "DCR"), cells_first
    yield DepthToSpace(block, "CRD"), cells_last


def _space_to_depth(c: Piece, h: Piece, w: Piece, block: int) -> Iterator[tuple[Op, _Parts]]:
    """Yield the ops that put the cells of a block into the channels, so that a piece of these is of the
    rows.
    """
    fewer_rows, fewer_columns = (quotient(cell.size, block) for cell in (h, w))
    if fewer_rows is None or fewer_columns is None:
        return
    rows, columns = (Piece("H", fewer_rows, block),), (Piece("W", fewer_columns, block),)
    cells = (Piece("H", block), Piece("W", block))
    yield SpaceToDepth(block, "DCR"), (rows, columns, (*cells, c))
    yield SpaceToDepth(block, "CRD"), (rows, columns, (c, *cells))
