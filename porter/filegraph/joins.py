"""Tensors one after the other along an axis or along a new one, constants among them, and cells of an axis in
another order, which are such parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from porter.base.dtypes import Numbers
from porter.filegraph.arithmetic import combine_stored
from porter.filegraph.axes import View
from porter.filegraph.dataflow import OperatorNode
from porter.filegraph.dims import Open, fixed_sizes
from porter.filegraph.file_graph import Stored, Unsupported, none_if_unsupported
from porter.filegraph.parts import MOST_PARTS, _pad_axes, cut_nonempty
from porter.filegraph.places import position_of
from porter.filegraph.walk import Repeated, Source, Walk, part_of
from porter.graph import Tokens


def gather(walk: Walk, node: OperatorNode, source: Source, axis: int, places: Sequence[int]) -> View:
    """Take the cells at these places of an axis: by one slice, a shuffle, or as parts one after the other."""
    view = walk.try_lay_out(source)
    size = view.size(axis)
    cells = [] if isinstance(size, Open) else [position_of(each, size) for each in places]
    # evenly spaced places are a slice
    steps = {after - before for before, after in pairwise(cells)}
    step = min(steps) if len(steps) == 1 else 0
    # only channels of maps can be cut backwards
    may_go_back = view.value.is_map and walk.views.has_channels(view, axis)
    if step > 0 or (step < 0 and may_go_back):
        end = cells[-1] + step
        return cut_nonempty(walk, node, source, {axis: slice(cells[0], end if end >= 0 else None, step)})
    shuffled = _shuffle(view, position_of(axis, len(view.sizes or ())), cells)
    if shuffled is not None:
        return shuffled
    if not 0 < len(cells) <= MOST_PARTS:
        raise Unsupported(f"of {len(places)} places")
    parts = [cut_nonempty(walk, node, source, {axis: slice(each, each + 1)}) for each in cells]
    return _join_views(walk, node, parts, axis)


def _join_views(walk: Walk, node: OperatorNode, views: Sequence[View], axis: int) -> View:
    """Join values of the same axes along one of them: as channels, or as arrays."""
    joined = _concat_channels(walk, node, views, axis)
    if joined is not None:
        return joined
    return _join_arrays(walk, node, [walk.as_array(f"{node.name}:array", view) for view in views], axis)


def gather_cells(
    walk: Walk, node: OperatorNode, source: Source, index: np.ndarray[Any, np.dtype[np.int64]]
) -> View:
    """Take the cells at places of the first axes, and return a view with the axes of the places first. Each
    coordinate has to vary along axes of its own, as rows and columns do.

    Args:
        index: the places; its last axis has the coordinates, one for each of the first axes.
    """
    view = walk.view(source)
    count, outer = index.shape[-1], index.shape[:-1]
    if not 0 < count <= len(view.known_sizes) or not index.size:
        raise Unsupported(f"by places of {count} axes")
    ends = [0]
    for coordinate in range(count):  # each place varies along the axes that follow those of the last one
        numbers = index[..., coordinate]
        varying = [
            axis for axis, size in enumerate(outer) if size > 1 and np.any(numbers != numbers.take([0], axis))
        ]
        if varying and varying[0] < ends[-1]:
            raise Unsupported("of other places than rows by columns")
        ends.append(max((axis + 1 for axis in varying), default=ends[-1]))
    ends[-1] = len(outer)
    order = view.batch_first
    cells = view.transposed(order)
    for coordinate in range(count):
        first = tuple(
            slice(None) if ends[coordinate] <= axis < ends[coordinate + 1] else 0
            for axis in range(len(outer))
        )
        cells = gather(
            walk, node, cells, order.index(coordinate), index[(*first, coordinate)].ravel().tolist()
        )
    result = cells.untransposed(order)
    return result.reshaped([*outer, *result.known_sizes[count:]])


def _shuffle(view: View, axis: int, cells: Sequence[int]) -> View | None:
    """Take all cells of an axis by reshapes, if their order is that of a channel shuffle, which takes one of
    each group at a time; return None for another order.

    Args:
        cells: all places of the axis, in the wanted order.
    """
    sizes = view.sizes or ()
    count = len(cells)
    group_size = cells[1] if count > 1 else 0
    if not 1 < group_size < count or count % group_size:
        return None
    shuffled = [cell for first in range(group_size) for cell in range(first, count, group_size)]
    if [*cells] != shuffled:
        return None
    split_sizes = [*sizes[:axis], count // group_size, group_size, *sizes[axis + 1 :]]
    order = [*range(axis), axis + 1, axis, *range(axis + 2, len(sizes) + 1)]
    return none_if_unsupported(lambda: view.reshaped(split_sizes).transposed(order).reshaped(sizes))


def concat(walk: Walk, node: OperatorNode, sources: Sequence[Source], axis: int) -> View | Repeated:
    """Concatenate values along an axis. Zeros before and after them are a pad."""
    if not all(map(walk.is_value, sources)):
        return (
            _pad_with_constant(walk, node, sources, axis)
            or _concat_constants(walk, node, sources, axis)
            or _concat_with_constants(walk, node, sources, axis)
        )
    views = [view for source in sources if (view := walk.try_lay_out(source)).axes is not None]
    # Where each has one cell along the axis, they are parts of a stack.
    cells = none_if_unsupported(lambda: [view.without_axes([axis]) for view in views])
    stacked = _stack_as_channels(walk, node, cells, axis) if cells and len(cells) == len(sources) else None
    joined = stacked or _concat_channels(walk, node, walk.lay_out_side_by_side(sources), axis)
    return joined or _join_arrays(walk, node, [*map(walk.array, sources)], axis)


def _concat_channels(walk: Walk, node: OperatorNode, views: Sequence[View], axis: int) -> View | None:
    """Concatenate maps or features along an axis that is their channels; return None if it is another
    axis.
    """
    names = walk.views.common_axis_names(views)
    if names is None or names[axis : axis + 1 or None] != ("channels",):  # an unknown value may have more
        return None
    return walk.views.in_axis_order(walk.builder.concat(node.name, *(view.value for view in views)), names)


def _join_arrays(walk: Walk, node: OperatorNode, views: Sequence[View], axis: int) -> View:
    """Join arrays along an axis. Raises Unsupported for the batch, and for no arrays."""
    if not views:
        raise Unsupported("of no values")
    if views[0].has_batch(axis):
        raise Unsupported("along the batch")
    value = walk.builder.join(node.name, views[0].axis_at(axis), *(view.value for view in views))
    return walk.views.as_rank_of(views[0], value)


def _pad_with_constant(walk: Walk, node: OperatorNode, sources: Sequence[Source], axis: int) -> View | None:
    """Pad values by constants before and after them that are one number everywhere, mostly zero; return None
    if other constants are among them.
    """
    live = [index for index, source in enumerate(sources) if walk.is_value(source)]
    # the values have to follow each other
    if not live or len(live) <= live[-1] - live[0]:
        return None
    before, values, behind = sources[: live[0]], sources[live[0] : live[-1] + 1], sources[live[-1] + 1 :]
    constants = [walk.constant_fill(source, axis) for source in (*before, *behind)]
    sizes_and_fills = [each for each in constants if each is not None]
    fills = {fill for _, fill in sizes_and_fills}
    if len(sizes_and_fills) < len(constants) or len(fills) != 1:
        return None
    inside = concat(walk, node, values, axis) if len(values) > 1 else walk.try_lay_out(values[0])
    sizes = fixed_sizes([size for size, _ in sizes_and_fills])
    ends = sum(sizes[: len(before)]), sum(sizes[len(before) :])
    return _pad_axes(walk, node, walk.as_view(inside), {axis: ends}, fills.pop())


def _concat_constants(
    walk: Walk, node: OperatorNode, sources: Sequence[Source], axis: int
) -> Repeated | None:
    """Concatenate constants, of which some are repeated, and return a repeated constant; None if values are
    among them or none is repeated.
    """
    found = [None if walk.is_value(source) else _whole_constant(walk, source) for source in sources]
    arrays = [each for each in found if each is not None]
    sizes = [walk.repeated[source].sizes for source in sources if source in walk.repeated]
    if len(arrays) < len(sources) or not sizes:
        return None
    numbers = np.concatenate(arrays, axis)
    constant = walk.flow.add_constant(f"{node.name}:constants", numbers)
    index = position_of(axis, numbers.ndim)
    joined = tuple(
        numbers.shape[index] if position == index else size for position, size in enumerate(sizes[0])
    )
    return Repeated(constant, joined, lacks="of constants")


def _concat_with_constants(walk: Walk, node: OperatorNode, sources: Sequence[Source], axis: int) -> View:
    """Concatenate values and stored arrays. Those before an array of tokens become further tokens, others are
    added to the zeros of a pad.
    """
    values = [source for source in sources if walk.is_value(source)]
    view = _join_arrays(walk, node, [*map(walk.array, values)], axis)
    # the axis is the first one of the array, and a value ends it
    of_tokens = walk.is_value(sources[-1]) and view.axis_at(axis) == 0
    tokens = _insert_tokens(walk, node, sources, axis) if of_tokens else None
    if tokens is not None:
        return tokens
    runs = _split_runs(walk, sources)
    nodes = [node if len(runs) == 1 else part_of(node, str(number)) for number in range(len(runs))]
    parts = [_add_to_padded(walk, each, run, axis) for each, run in zip(nodes, runs, strict=True)]
    return _join_arrays(walk, node, parts, axis) if len(parts) > 1 else parts[0]


def _split_runs(walk: Walk, sources: Sequence[Source]) -> list[Sequence[Source]]:
    """Split sources into runs of constants with the values behind them; the last run also has the constants
    at the end.
    """
    live = [walk.is_value(source) for source in sources]
    starts = [
        index for index in range(1, len(live)) if live[index - 1] and not live[index] and any(live[index:])
    ]
    ends = [0, *starts, len(sources)]
    return [sources[start:end] for start, end in pairwise(ends)]


def _add_to_padded(walk: Walk, node: OperatorNode, sources: Sequence[Source], axis: int) -> View:
    """Pad values by zeros, and add stored arrays there, so that these stand before and after the values."""
    live = [index for index, source in enumerate(sources) if walk.is_value(source)]
    view = _join_arrays(walk, node, [walk.array(sources[index]) for index in live], axis)
    before = _whole_constants(walk, sources[: live[0]])
    behind = _whole_constants(walk, sources[live[-1] + 1 :])
    if not before and not behind:
        return view
    sizes = [*(before + behind)[0].shape]
    shape = view.value.shape or ()
    first = 0 if walk.views.lacks_batch else 1  # the first axis behind the batch
    if None in shape or len(sizes) != len(view.known_axes) or set(sizes[:first]) - {1}:
        raise Unsupported("with a constant of other axes")
    sizes[axis] = view.size(axis)
    numbers = np.concatenate([*before, np.zeros(sizes), *behind], axis)
    ends = [sum(each.shape[axis] for each in end) for end in (before, behind)]
    wide = walk.builder.widen(f"{node.name}:pad", view.value, {view.axis_at(axis): (ends[0], ends[1])})
    tensor = walk.flow.store_computed(f"{node.name}:stored", numbers)
    tensor = replace(tensor, shape=numbers.shape[first:])
    return walk.views.as_rank_of(view, combine_stored(walk, node.name, "Add", wide, tensor))


def _whole_constants(walk: Walk, sources: Sequence[Source]) -> list[Numbers]:
    """Return what `_whole_constant` gives for several constants. Raises Unsupported if it gives none for
    one.
    """
    arrays = [each for source in sources if (each := _whole_constant(walk, source)) is not None]
    if len(arrays) < len(sources):
        raise Unsupported("with a constant that is computed, or repeated along axes of open size")
    return arrays


def _whole_constant(walk: Walk, source: Source) -> Numbers | None:
    """Return a constant, also one that is repeated along axes of known size; None if it has other axes, or is
    too large. One that is the same for each image is returned for one image.
    """
    before = walk.drop_repeats(source)
    tensor = walk.weights(before)
    numbers = walk.constant(before) if tensor is None else walk.flow.stored_numbers(tensor.name)
    if numbers is None:
        return None
    if source in walk.repeated:
        first, *rest = walk.repeated[source].sizes
        sizes = [1 if isinstance(first, Open) else first, *(size for size in rest if isinstance(size, int))]
        if len(sizes) <= len(rest) or not walk.flow.reserve_bytes(8 * math.prod(sizes)):
            return None
        numbers = np.broadcast_to(numbers, sizes)
    same_for_each_image = numbers.ndim > 1 and not walk.views.lacks_batch and np.all(numbers == numbers[:1])
    return np.asarray(numbers[:1] if same_for_each_image else numbers, np.float64)


def _insert_tokens(walk: Walk, node: OperatorNode, sources: Sequence[Source], axis: int) -> View | None:
    """Join arrays of tokens and stored ones, each of which stands before the array that follows it; return
    None if a stored one is no tokens.
    """
    parts = list[View]()
    stored = list[Source]()
    is_only = sum(map(walk.is_value, sources)) == 1
    for source in sources:
        if not walk.is_value(source):
            stored.append(source)
            continue
        name = node.name if is_only else f"{node.name}:{len(parts)}"
        tokens = _prepend_tokens(walk, name, walk.array(source), stored)
        if tokens is None:
            return None
        parts.append(tokens)
        stored = []
    return parts[0] if is_only else _join_arrays(walk, node, parts, axis)


def _prepend_tokens(walk: Walk, name: str, view: View, stored: Sequence[Source]) -> View | None:
    """Add trained tokens before those of a value; return None if a stored array is no tokens."""
    value = view.value
    for index, source in enumerate(reversed(stored), 1):
        tokens = walk.weights(walk.drop_repeats(source))
        tensor = tokens and walk.flow.drop_equal_rows(tokens)
        sizes = tensor.shape if tensor is not None else ()
        fits = len(value.shape or ()) == 2 and sizes[:-2] in ((), (1,)) and sizes[-1:] == (value.channels,)
        if tensor is None or len(sizes) < 2 or not fits:
            return None
        own_name = name if index == len(stored) else f"{name}:{index}"
        value = walk.builder.add(own_name, Tokens(sizes[-2]), value, tensors={"value": Stored(tensor.name)})
    return walk.views.as_rank_of(view, value)


def stack(walk: Walk, node: OperatorNode, sources: Sequence[Source], axis: int) -> View:
    """Stack values along a new axis, in the first way that fits, and return the view.

    - Maps are concatenated along their channels. Two maps N x 8 x H x W on axis 1 are a map of 16 channels,
      which the view shows as N x 2 x 8 x H x W.
    - Maps of one channel whose tensors have no axis for it (N x H x W) are concatenated as channels, if the
      new axis is where channels are.
    - Other values become arrays with an axis of length 1, along which they are concatenated.
    """
    views = [walk.try_lay_out(source) for source in sources]
    stacked = _stack_as_channels(walk, node, views, axis)
    if stacked is not None:
        return stacked
    wide = [view.with_axes([axis]) for view in views]
    if all(view.value.is_map for view in wide):
        of_one_channel = _concat_channels(walk, node, wide, axis)
        if of_one_channel is not None:
            return of_one_channel
    own = [walk.view(source).with_axes([axis]) for source in sources]
    order = own[0].batch_first
    arrays = [walk.as_array(f"{node.name}:array", view.transposed(order)) for view in own]
    return _join_arrays(walk, node, arrays, order.index(position_of(axis, len(order)))).untransposed(order)


def _stack_as_channels(walk: Walk, node: OperatorNode, views: Sequence[View], axis: int) -> View | None:
    """Stack values of one shape along a new axis, by concatenating their channels; return None if they are no
    maps or features with axes in one order, or have other channels.
    """
    names = walk.views.common_axis_names(views)
    if names is None or len({view.value.channels for view in views}) > 1:
        return None
    joined = walk.views.in_axis_order(walk.builder.concat(node.name, *(view.value for view in views)), names)
    if joined.sizes is None:
        return None
    sizes = [*joined.sizes]
    stack_axis = names.index("channels")
    sizes[stack_axis : stack_axis + 1] = [len(views), sizes[stack_axis] // len(views)]
    order = [position for position in range(len(sizes)) if position != stack_axis]
    order.insert(position_of(axis, len(sizes)), stack_axis)
    return joined.reshaped(sizes).transposed(order)


def windows(walk: Walk, node: OperatorNode, source: Source, axis: int, window: Sequence[int]) -> View:
    """Cut an axis into parts of the window's size, each its step behind the one before. The axis then counts
    the parts, and the last axis has the cells of each.
    """
    view = walk.view(source)
    size, step = window
    cells = view.size(axis)
    position = position_of(axis, view.rank)
    if isinstance(cells, Open) or not 0 < size <= cells or step < 1:
        raise Unsupported("along an axis of open size, or of fewer cells")
    count = (cells - size) // step + 1
    if size == step:
        covered = (
            cut_nonempty(walk, node, source, {position: slice(0, count * size)})
            if cells > count * size
            else view
        )
        sizes = covered.known_sizes
        split = covered.reshaped([*sizes[:position], count, size, *sizes[position + 1 :]])
        order = [other for other in range(len(sizes) + 1) if other != position + 1]
        return split.transposed([*order, position + 1])
    if size > MOST_PARTS:
        raise Unsupported(f"by parts of more than {MOST_PARTS} cells that overlap")
    parts = [
        cut_nonempty(
            walk,
            part_of(node, str(first)),
            source,
            {position: slice(first, first + (count - 1) * step + 1, step)},
        )
        for first in range(size)
    ]
    return _join_views(walk, node, [each.with_axes([-1]) for each in parts], -1)
