"""Cells of a tensor's axes: some of them, all of them turned round or rolled, and pads around them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from porter.filegraph.dataflow import OperatorNode
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layouts.axes import OF_UNKNOWN_SHAPE, Source, View
from porter.filegraph.layouts.dims import Dim, Open, Undecided, fixed_sizes, sizes_text
from porter.filegraph.places import position_of
from porter.filegraph.tensors.constants import known_slice
from porter.filegraph.tensors.resampling import match_cells
from porter.filegraph.walk import Walk, Zeros
from porter.graph import MOST_CONSTANTS, ExtendMap
from porter.graph.ops import AXES, Mode

MOST_PARTS = 64
"""More than a model adds. Each part is a node of its own, however short the file is."""
_LARGEST = 2**29
"""So many cells are all, of any axis: the largest numbers of 32 and of 64 bits stand for its end, and
tf2onnx's 10^9.
"""


def cut(walk: Walk, node: OperatorNode, source: Source, parts: Mapping[int, slice | int]) -> View | Zeros:
    """Cut a part out of each axis that `parts` names, as Python's index does: `{1: slice(0, 8)}`; a number
    takes its axis away. Return the part's view, or Zeros of its sizes if it is a part of zeros or has no
    cells.
    """
    zero_sizes = None if isinstance(source, View) else walk.zero_sizes.get(source)
    sizes = zero_sizes or walk.view(source).sizes or ()
    known_parts, open_ends = _by_known_numbers(parts, sizes)
    if open_ends and zero_sizes is not None:
        raise Undecided
    if open_ends:
        # the input's size decides how many cells are cut off: the map gets as many as another one has
        view = match_cells(walk, node, walk.layouts.operand(source), open_ends)
        return cut(walk, node, view, known_parts) if known_parts else view
    part_sizes = _sizes_of_parts(known_parts, sizes)
    if 0 in part_sizes:
        return Zeros(part_sizes, "that leaves nothing")
    if zero_sizes is not None:
        dropped_axes = {
            position_of(axis, len(sizes)) for axis, part in known_parts.items() if isinstance(part, int)
        }
        return Zeros(tuple(size for axis, size in enumerate(part_sizes) if axis not in dropped_axes))
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
    """Split parts into those by known numbers, and those whose ends depend on the input's size. Of the
    latter, return how many cells more they have before and behind than the axis: numbers of 0 or below.

    Args:
        sizes: of all axes; empty if they are unknown, and then all parts are returned as they are.
    """
    known_parts = {**parts}
    open_ends = dict[int, tuple[Dim, Dim]]()
    for axis, part in parts.items():
        if sizes and isinstance(part, slice):
            size = sizes[position_of(axis, len(sizes))]
            try:
                known_parts[axis] = _known_slice(part, size)
            except Undecided:
                open_ends[axis] = _open_ends(part, size)
                del known_parts[axis]
    return known_parts, open_ends


def cut_nonempty(walk: Walk, node: OperatorNode, source: Source, parts: Mapping[int, slice | int]) -> View:
    """Cut a part as `cut` does, and return its view, where the part has to be a value.

    Raises:
        Unsupported: the part has no cells, or is known to be zeros.
    """
    result = cut(walk, node, source, parts)
    if isinstance(result, Zeros):
        raise Unsupported(result.lacks)
    return result


def _take_part(walk: Walk, node: OperatorNode, source: Source, parts: Mapping[int, slice | int]) -> View:
    """Cut a part that has cells, and return its view. Axes that are taken backwards as a whole are flipped
    first.
    """
    sizes = walk.view(source).sizes
    flipped = [position for position, part in parts.items() if sizes and _is_flip(part, sizes[position])]
    rest = {position: part for position, part in parts.items() if position not in flipped}
    view = flip(walk, node, source, flipped) if flipped else walk.layouts.operand(source)
    return _cut_axes(walk, node.name, view, rest) if rest else view


def take(walk: Walk, node: OperatorNode, source: Source, index: Sequence[slice | int | None]) -> View | Zeros:
    """Take a part of the tensor by numpy's index, without ellipses: a number takes an axis away, and None
    adds one of one cell.
    """
    parts = [part for part in index if part is not None]
    result = cut(walk, node, source, dict(enumerate(parts)))
    # the result has an axis for each slice, and for each None
    index_of_result = [part for part in index if not isinstance(part, int)]
    added_axes = [position for position, part in enumerate(index_of_result) if part is None]
    return result.with_axes(added_axes) if isinstance(result, View) and added_axes else result


def _cut_axes(walk: Walk, name: str, view: View, parts: Mapping[int, slice | int]) -> View:
    """Cut a part of a value, axis by axis, and return its view. An axis of which a number takes one cell is
    removed.

    Raises:
        Unsupported: the value's shape is unknown, or no op cuts it so.
    """
    if view.axes is None:
        raise Unsupported(OF_UNKNOWN_SHAPE)
    aligned = walk.layouts.align_axes(f"{name}:array", view)
    dropped_axes = view.positions(position for position, part in parts.items() if isinstance(part, int))
    slices = {
        # the slice of the last cell, -1, ends at None: 0 would be the start
        position: slice(part, part + 1 or None) if isinstance(part, int) else part
        for position, part in parts.items()
    }
    needed_slices = {
        position: part for position, part in slices.items() if not _is_whole(part, view.size(position))
    }
    value = walk.builder.cut(name, aligned.value, aligned.by_axis(needed_slices))
    if value is None:
        raise Unsupported("that depends on the size, or that turns an axis around")
    tensor = aligned.as_tensor(value)
    return tensor.without_axes(dropped_axes) if dropped_axes else tensor


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
    """Return the slice of an axis of `size` cells by known numbers. Ends that depend on an open size are
    counted from the end of the axis: `[0:n - 1]` of n cells becomes `[0:-1]`.

    Raises:
        Undecided: an end depends on the input's size otherwise.
    """
    if isinstance(size, int):
        return _slice_of_known_size(part, size)
    start, stop = (end - size if isinstance(end, Open) else end for end in (part.start, part.stop))
    (first_cell,) = fixed_sizes([start or 0])
    # counted from the end of an open axis, a start has to be below 0
    if first_cell >= 0 and isinstance(part.start, Open):
        raise Undecided
    is_end_of_axis = (stop or 0) >= _LARGEST
    if isinstance(part.stop, Open) or is_end_of_axis:
        (cells_behind,) = fixed_sizes([stop or 0])
        stop = min(cells_behind, 0) or None  # None, not 0, is the end of the axis
    return slice(start, stop, part.step)


def _slice_of_known_size(part: slice, size: int) -> slice:
    """Return the slice of an axis of known size by known numbers. A single cell is stated by its own place,
    whatever the step was.
    """
    known = known_slice(part)
    cells = range(size)[known]
    return slice(cells[0], cells[0] + 1) if len(cells) == 1 < size else known


def _open_ends(part: slice, size: Dim) -> tuple[Dim, Dim]:
    """Return how many cells a part leaves out of an axis before and behind it, as numbers of 0 or below.

    Raises:
        Undecided: the input's size may decide that the part takes cells by a step, or begins before the axis.
    """
    start = 0 if part.start is None else _from_start(part.start, size)
    stop = size if part.stop is None else _from_start(part.stop, size)
    if part.step not in (None, 1) or start < 0:
        raise Undecided
    return -start, min(stop, size) - size


def _from_start(end: Dim, size: Dim) -> Dim:
    """Return the start or the stop of a part of an axis, counted from the axis's first cell, as Python counts
    a negative one from its end. If an open one may be below 0, as far as its terms tell, it is taken not to
    be: the part has as many cells as another map.
    """
    with suppress(Undecided):
        return end + size if end < 0 else end
    return end


def split_sizes(size: Dim, sizes: Sequence[Dim]) -> list[Dim]:
    """Return the sizes of the parts of an axis, of which -1 is what is left.

    Raises:
        Unsupported: they are not the axis together.
    """
    stated_sizes = [part for part in sizes if isinstance(part, Open) or part >= 0]
    rest = size - sum(stated_sizes)
    part_sizes = [part if isinstance(part, Open) or part >= 0 else rest for part in sizes]
    if sum(part_sizes) != size:
        raise Unsupported(f"of {sizes_text([size])} cells into {sizes_text(sizes)}")
    return part_sizes


def pad(
    walk: Walk, node: OperatorNode, source: Source, pairs: Mapping[int, tuple[Dim, Dim]], fill: float = 0.0
) -> View:
    """Pad axes by one number before and after their cells, and return the view. Negative pads crop. Raises
    Undecided for pads by another number than 0 whose size the input's size decides.

    Args:
        pairs: by axis, how many cells before and after.
    """
    view = walk.layouts.operand(source)
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
    return pad_axes(walk, node, view, known_pads, fill)


def pad_axes(
    walk: Walk, node: OperatorNode, view: View, pairs: Mapping[int, tuple[int, int]], fill: float
) -> View:
    """Add cells of `fill` at the ends of axes, or cut cells off where a pair is below 0, and return the view.

    Raises:
        Unsupported: channels cannot be padded by this number.
    """
    aligned = walk.layouts.align_axes(f"{node.name}:array", view)
    pads = aligned.by_axis({position: pair for position, pair in pairs.items() if any(pair)})
    pads_channels = 0 in pads and not aligned.value.is_array
    if not pads_channels or (not fill and min(pads[0]) >= 0):
        return aligned.as_tensor(walk.builder.widen(node.name, aligned.value, pads, fill))
    # ops pad channels by zeros only: another fill is added to these zeros, channel by channel
    before, after = pads[0]
    channels = aligned.value.channels or MOST_CONSTANTS
    pads_only_channels = {*pads} == {0}
    if not pads_only_channels or min(before, after) < 0 or channels + before + after > MOST_CONSTANTS:
        raise Unsupported(f"of channels with {fill:g}")
    padded = walk.builder.widen(f"{node.name}:zeros", aligned.value, pads)
    numbers = [*[fill] * before, *[0.0] * channels, *[fill] * after]
    return aligned.as_tensor(walk.builder.affine(node.name, padded, (1.0,), numbers))


def extend(
    walk: Walk, node: OperatorNode, source: Source, pairs: Mapping[int, tuple[Dim, Dim]], mode: Mode
) -> View:
    """Pad the rows and columns of a map by its own cells, such as reflected ones, and return the view. Raises
    Unsupported for other axes than these, and for values that are no maps.

    Args:
        pairs: by axis, how many cells before and after.
    """
    view = walk.layouts.operand(source)
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
    """Reverse the cells of these axes, one axis after the other, and return the view."""
    view = walk.layouts.operand(source)
    for position in positions:
        view = _flip_axis(walk, node, view, position)
    return view


def _flip_axis(walk: Walk, node: OperatorNode, view: View, position: int) -> View:
    """Reverse the cells of an axis, and return the view. Only the channels of a map can be cut backwards, so
    that another axis is made the channels of a map for it.
    """
    rank = view.rank
    backwards = slice(None, None, -1)
    is_channels = view.value.is_map and walk.views.has_channels(view, position)
    if is_channels or not rank or view.has_batch(position):  # the last two are refused there
        return _cut_axes(walk, node.name, view, {position: backwards})
    reversed_axis = position_of(position, rank)
    order = [*(axis for axis in range(rank) if axis != reversed_axis), reversed_axis]
    array = walk.layouts.as_array(f"{node.name}:last", view.transposed(order))
    if array.value.is_array:
        array = walk.layouts.as_cells(f"{node.name}:cells", array)
    value = walk.builder.cut(node.name, array.value, {0: backwards})
    if value is None:
        raise Unsupported("that depends on the size, or that turns an axis around")
    return walk.views.with_axes_of(array, value).untransposed(order)


def roll(walk: Walk, node: OperatorNode, source: Source, shifts: Mapping[int, int]) -> View:
    """Move the cells of axes on by shifts, those at the end to the start, and return the view: 1, 2, 3 by 1
    become 3, 1, 2. Raises Unsupported for the batch, and for axes of open size.
    """
    view = walk.layouts.array(source)
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
        split = size - shift % size  # cells from here on come to the start
        if split == size:
            continue
        last_cells = walk.builder.cut(f"{node.name}:last", value, {axis: slice(split, size)})
        first_cells = walk.builder.cut(f"{node.name}:first", value, {axis: slice(0, split)})
        if last_cells is None or first_cells is None:
            raise Unsupported("of an axis of open size")
        value = walk.builder.join(node.name, axis, last_cells, first_cells)
    return walk.views.as_rank_of(view, value)


def diagonal(walk: Walk, node: OperatorNode, source: Source, positions: tuple[int, int], offset: int) -> View:
    """Return the tensor with the diagonal of two axes as its last axis: the cells whose second coordinate is
    their first one plus `offset`.

    Raises:
        Unsupported: one of the two axes is of open size, or the diagonal has no cells.
    """
    view = walk.view(source)
    rank = len(view.known_axes)
    matrix_axes = [position_of(position, rank) for position in positions]
    other_axes = [axis for axis in range(rank) if axis not in matrix_axes]
    matrices = view.transposed([*other_axes, *matrix_axes])
    *other_sizes, rows, columns = matrices.known_sizes
    if isinstance(rows, Open) or isinstance(columns, Open):
        raise Unsupported("of axes of open size")
    count = min(rows + min(offset, 0), columns - max(offset, 0))
    if count < 1:
        raise Unsupported("without cells")
    # with the two axes joined to one, the next cell of a diagonal is a row and a cell further
    joined = matrices.reshaped([*other_sizes, rows * columns])
    step = columns + 1
    first = offset if offset >= 0 else -offset * columns
    last = first + (count - 1) * step
    return cut_nonempty(walk, node, joined, {rank - 2: slice(first, last + 1, step)})
