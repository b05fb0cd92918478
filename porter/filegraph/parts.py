"""Cells of a tensor's axes: some of them, all of them turned round or rolled, and pads around them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from porter.filegraph.axes import OF_UNKNOWN_SHAPE, View
from porter.filegraph.dataflow import OperatorNode
from porter.filegraph.dims import Dim, Open, Undecided, fixed_sizes, sizes_text
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.places import position_of
from porter.filegraph.resampling import match_cells
from porter.filegraph.walk import Source, Walk, Zeros
from porter.graph import MOST_CONSTANTS, ExtendMap
from porter.graph.ops import AXES, Mode

MOST_PARTS = 64
"""More than a model adds. Each part is a node of its own, however short the file is."""
_LARGEST = 2**29
"""So many cells are all, of any axis: the largest numbers of 32 and of 64 bits stand for its end, and
tf2onnx's 10^9.
"""


def cut(walk: Walk, node: OperatorNode, source: Source, parts: Mapping[int, slice | int]) -> View | Zeros:
    """Cut a part out of each axis that `parts` names, as Python's index does; a number takes its axis away.
    Return its view, or Zeros of its sizes: of a part of zeros, and of a part without cells.
    """
    zeros = None if isinstance(source, View) else walk.zero_sizes.get(source)
    sizes = zeros or walk.view(source).sizes or ()
    known_parts, open_ends = _by_known_numbers(parts, sizes)
    if open_ends and zeros is not None:
        raise Undecided
    if open_ends:
        # the input's size decides how many cells are cut off: the map gets as many as another one has
        view = match_cells(walk, node, walk.try_lay_out(source), open_ends)
        return cut(walk, node, view, known_parts) if known_parts else view
    part_sizes = _sizes_of_parts(known_parts, sizes)
    if 0 in part_sizes:
        return Zeros(part_sizes, "that leaves nothing")
    if zeros is not None:
        dropped = {
            position_of(axis, len(sizes)) for axis, part in known_parts.items() if isinstance(part, int)
        }
        return Zeros(tuple(size for axis, size in enumerate(part_sizes) if axis not in dropped))
    return _take_part(walk, node, source, known_parts)


def _sizes_of_parts(parts: Mapping[int, slice | int], sizes: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the sizes of axes after these parts are cut; those that are open stay."""
    part_sizes = [*sizes]
    for axis, part in parts.items():
        size = sizes[axis] if sizes and isinstance(part, slice) else None
        if isinstance(part, slice) and isinstance(size, int):
            part_sizes[axis] = len(range(size)[part])
    return tuple(part_sizes)


def _by_known_numbers(
    parts: Mapping[int, slice | int], sizes: Sequence[Dim]
) -> tuple[dict[int, slice | int], dict[int, tuple[Dim, Dim]]]:
    """Split parts into those by known numbers, and the ends of those that depend on the input's size: how
    many cells more these have before and behind.

    Args:
        sizes: of all axes; none if they are unknown, and then the parts are as they are.
    """
    slices = {**parts}
    open_ends = dict[int, tuple[Dim, Dim]]()
    for axis, part in parts.items():
        if sizes and isinstance(part, slice):
            size = sizes[position_of(axis, len(sizes))]
            try:
                slices[axis] = _known_slice(part, size)
            except Undecided:
                open_ends[axis] = _open_ends(part, size)
                del slices[axis]
    return slices, open_ends


def cut_nonempty(walk: Walk, node: OperatorNode, source: Source, parts: Mapping[int, slice | int]) -> View:
    """Return what `cut` gives for a value that is not known to be zeros.

    Raises:
        Unsupported: the part has no cells.
    """
    result = cut(walk, node, source, parts)
    if isinstance(result, Zeros):
        raise Unsupported(result.lacks)
    return result


def _take_part(walk: Walk, node: OperatorNode, source: Source, parts: Mapping[int, slice | int]) -> View:
    """Cut a part that has cells. Axes that are taken backwards as a whole are flipped first."""
    sizes = walk.view(source).sizes
    flipped = [position for position, part in parts.items() if sizes and _is_flip(part, sizes[position])]
    rest = {position: part for position, part in parts.items() if position not in flipped}
    view = flip(walk, node, source, flipped) if flipped else walk.try_lay_out(source)
    return _cut_axes(walk, node.name, view, rest) if rest else view


def take(walk: Walk, node: OperatorNode, source: Source, index: Sequence[slice | int | None]) -> View | Zeros:
    """Take a part of the tensor by numpy's index, without ellipses: a number takes an axis away, and None
    adds one of one cell.
    """
    parts = [part for part in index if part is not None]
    result = cut(walk, node, source, dict(enumerate(parts)))
    kept_or_new = [part for part in index if not isinstance(part, int)]
    added = [position for position, part in enumerate(kept_or_new) if part is None]
    return result.with_axes(added) if isinstance(result, View) and added else result


def _cut_axes(walk: Walk, name: str, view: View, parts: Mapping[int, slice | int]) -> View:
    """Cut a part of a value, axis by axis, and return its view. An axis of which a number takes one cell is
    removed.

    Raises:
        Unsupported: the value's shape is unknown, or no op cuts it so.
    """
    if view.axes is None:
        raise Unsupported(OF_UNKNOWN_SHAPE)
    aligned = walk.align_axes(f"{name}:array", view)
    dropped = view.positions(position for position, part in parts.items() if isinstance(part, int))
    cells = {
        # the slice of the last cell, -1, ends at None: 0 would be the start
        position: slice(part, part + 1 or None) if isinstance(part, int) else part
        for position, part in parts.items()
    }
    slices = aligned.by_axis(
        {position: part for position, part in cells.items() if not _is_whole(part, view.size(position))}
    )
    value = walk.builder.cut(name, aligned.value, slices)
    if value is None:
        raise Unsupported("that depends on the size, or that turns an axis around")
    tensor = aligned.as_tensor(value)
    return tensor.without_axes(dropped) if dropped else tensor


def _is_whole(part: slice, size: Dim) -> bool:
    """Return whether a part of an axis is all of it."""
    is_stated_whole = (part.start or 0, part.stop, part.step or 1) == (0, None, 1)
    return is_stated_whole or (not isinstance(size, Open) and range(size)[part] == range(size))


def _is_flip(part: slice | int, size: Dim) -> bool:
    """Return whether a part of an axis is all of it, from the last cell to the first."""
    if isinstance(part, int):
        return False
    is_stated_flip = (part.start, part.stop, part.step) == (None, None, -1)
    return is_stated_flip or (isinstance(size, int) and size > 1 and range(size)[part] == range(size)[::-1])


def _known_slice(part: slice, size: Dim) -> slice:
    """Return the slice of an axis of `size` cells by known numbers: ends that depend on an open size are
    counted from its end.
    """
    if isinstance(size, int):
        return _slice_of_known_size(part, size)
    start, stop = (end - size if isinstance(end, Open) else end for end in (part.start, part.stop))
    (first,) = fixed_sizes([start or 0])
    # counted from the end of an open axis, a start has to be below 0
    if first >= 0 and isinstance(part.start, Open):
        raise Undecided
    if isinstance(part.stop, Open) or (stop or 0) >= _LARGEST:
        (last,) = fixed_sizes([stop or 0])
        stop = min(last, 0) or None  # None, not 0, is the end of the axis
    return slice(start, stop, part.step)


def _slice_of_known_size(part: slice, size: int) -> slice:
    """Return the slice of an axis of known size by known numbers. A single cell is stated by its own place,
    whatever the step was.
    """
    ends = (None if end is None else fixed_sizes([end])[0] for end in (part.start, part.stop, part.step))
    known_slice = slice(*ends)
    cells = range(size)[known_slice]
    return slice(cells[0], cells[0] + 1) if len(cells) == 1 < size else known_slice


def _open_ends(part: slice, size: Dim) -> tuple[Dim, Dim]:
    """Return how many cells less a part of an axis has before and behind it, as numbers of 0 or below.

    Raises:
        Undecided: the input's size may decide that it has others.
    """
    start = 0 if part.start is None else _from_start(part.start, size)
    stop = size if part.stop is None else _from_start(part.stop, size)
    if part.step not in (None, 1) or start < 0:
        raise Undecided
    return -start, min(stop, size) - size


def _from_start(end: Dim, size: Dim) -> Dim:
    """Return an end of a part of an axis, counted from the first cell. An end that may be below 0, as far as
    its terms tell, is taken not to be: the part has as many cells as another map.
    """
    with suppress(Undecided):
        return end + size if end < 0 else end
    return end


def split_sizes(size: Dim, sizes: Sequence[Dim]) -> list[Dim]:
    """Return the sizes of the parts of an axis, of which -1 is what is left.

    Raises:
        Unsupported: they are not the axis together.
    """
    stated = [each for each in sizes if isinstance(each, Open) or each >= 0]
    part_sizes = [each if isinstance(each, Open) or each >= 0 else size - sum(stated) for each in sizes]
    if sum(part_sizes) != size:
        raise Unsupported(f"of {sizes_text([size])} cells into {sizes_text(sizes)}")
    return part_sizes


def pad(
    walk: Walk, node: OperatorNode, source: Source, pairs: Mapping[int, tuple[Dim, Dim]], fill: float = 0.0
) -> View:
    """Pad axes by one number before and after their cells, but the channels of maps and features by zeros.
    Negative pads crop. Raises Undecided for pads by another number than 0 that the input's size decides.
    """
    view = walk.try_lay_out(source)
    known_pads = dict[int, tuple[int, int]]()
    open_pads = dict[int, tuple[Dim, Dim]]()
    for position, (before, after) in pairs.items():
        if isinstance(before, Open) or isinstance(after, Open):
            open_pads[position] = before, after
        else:
            known_pads[position] = before, after
    if open_pads and fill:
        raise Undecided
    if open_pads:
        view = match_cells(walk, node, view, open_pads)
    return _pad_axes(walk, node, view, known_pads, fill)


def _pad_axes(
    walk: Walk, node: OperatorNode, view: View, pairs: Mapping[int, tuple[int, int]], fill: float
) -> View:
    """Add cells of `fill` at the ends of axes, or cut cells off where a pair is below 0, and return the view.

    Raises:
        Unsupported: channels cannot be padded by this number.
    """
    aligned = walk.align_axes(f"{node.name}:array", view)
    ends = aligned.by_axis({position: pair for position, pair in pairs.items() if any(pair)})
    # ops pad channels by zeros only: another fill is added to these zeros, channel by channel
    if 0 in ends and not aligned.value.is_array and (fill or min(ends[0]) < 0):
        before, after = ends[0]
        channels = aligned.value.channels or MOST_CONSTANTS
        if {*ends} != {0} or min(before, after) < 0 or channels + before + after > MOST_CONSTANTS:
            raise Unsupported(f"of channels with {fill:g}")
        wide = walk.builder.widen(f"{node.name}:zeros", aligned.value, ends)
        numbers = [*[fill] * before, *[0.0] * channels, *[fill] * after]
        return aligned.as_tensor(walk.builder.affine(node.name, wide, (1.0,), numbers))
    return aligned.as_tensor(walk.builder.widen(node.name, aligned.value, ends, fill))


def extend(
    walk: Walk, node: OperatorNode, source: Source, pairs: Mapping[int, tuple[Dim, Dim]], mode: Mode
) -> View:
    """Pad the rows and columns of a map by cells of its own, such as reflected ones. Raises Unsupported for
    other axes than these, and for values that are no maps.
    """
    view = walk.try_lay_out(source)
    names = walk.views.axis_names(view)
    if names is None:
        raise Unsupported(f"by {mode} of something else than a map")
    pads = {names[position]: fixed_sizes(pair) for position, pair in pairs.items() if any(pair)}
    if not {*pads} <= {"rows", "columns"}:
        raise Unsupported(f"of {'the batch' if 'batch' in pads else 'channels'} by {mode}")
    if not pads:
        return view
    rows, columns = (pads.get(axis, (0, 0)) for axis in AXES[1:])
    value = walk.builder.add(node.name, ExtendMap((*rows, *columns), mode), view.value)
    return walk.views.in_axis_order(value, names)


def flip(walk: Walk, node: OperatorNode, source: Source, positions: Collection[int]) -> View:
    """Reverse the cells of these axes."""
    view = walk.try_lay_out(source)
    for position in positions:
        view = _flip_axis(walk, node, view, position)
    return view


def _flip_axis(walk: Walk, node: OperatorNode, view: View, position: int) -> View:
    """Reverse the cells of an axis. An axis that no op cuts backwards is made the channels of a map for
    it.
    """
    rank = view.rank
    backwards = slice(None, None, -1)
    # the batch is refused by `_cut_axes`, and the channels of a map are cut backwards
    is_channels = view.value.is_map and walk.views.has_channels(view, position)
    if not rank or view.has_batch(position) or is_channels:
        return _cut_axes(walk, node.name, view, {position: backwards})
    last = position_of(position, rank)
    order = [*(axis for axis in range(rank) if axis != last), last]
    array = walk.as_array(f"{node.name}:last", view.transposed(order))
    if array.value.is_array:
        array = walk.as_cells(f"{node.name}:cells", array)
    value = walk.builder.cut(node.name, array.value, {0: backwards})
    if value is None:
        raise Unsupported("that depends on the size, or that turns an axis around")
    return walk.views.with_axes_of(array, value).untransposed(order)


def roll(walk: Walk, node: OperatorNode, source: Source, shifts: Mapping[int, int]) -> View:
    """Move the cells of axes on, and those at the end to the start. Raises Unsupported for the batch, and for
    axes of open size.
    """
    view = walk.array(source)
    rank = len(view.known_axes)
    sizes = view.known_sizes
    value = view.value
    for position, shift in sorted((position_of(position, rank), shift) for position, shift in shifts.items()):
        axis = view.axis_at(position)
        size = sizes[position]
        if view.has_batch(position):
            raise Unsupported("of the batch")
        if isinstance(size, Open):
            raise Unsupported("of an axis of open size")
        if not shift % size:
            continue
        first = slice(0, size - shift % size)
        last = slice(size - shift % size, size)
        parts = [
            walk.builder.cut(f"{node.name}:{name}", value, {axis: part})
            for name, part in (("last", last), ("first", first))
        ]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            raise Unsupported("of an axis of open size")
        value = walk.builder.join(node.name, axis, *found)
    return walk.views.as_rank_of(view, value)


def diagonal(walk: Walk, node: OperatorNode, source: Source, positions: tuple[int, int], offset: int) -> View:
    """Return the tensor with the diagonal of two axes as its last axis: the cells whose second coordinate is
    their first one plus `offset`.

    Raises:
        Unsupported: one of the two axes is of open size, or the diagonal has no cells.
    """
    view = walk.view(source)
    rank = len(view.known_axes)
    last = [position_of(position, rank) for position in positions]
    axes_last = view.transposed([*(axis for axis in range(rank) if axis not in last), *last])
    sizes = axes_last.known_sizes
    rows, columns = sizes[-2:]
    if isinstance(rows, Open) or isinstance(columns, Open):
        raise Unsupported("of axes of open size")
    # with the two axes joined to one, the next cell of a diagonal is a row and a cell, columns + 1, further
    first = offset if offset >= 0 else -offset * columns
    count = min(rows + min(offset, 0), columns - max(offset, 0))
    if count < 1:
        raise Unsupported("without cells")
    flat = axes_last.reshaped([*sizes[:-2], rows * columns])
    cells = slice(first, first + (count - 1) * (columns + 1) + 1, columns + 1)
    return cut_nonempty(walk, node, flat, {rank - 2: cells})
