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
from porter.filegraph.dataflow import OperatorNode
from porter.filegraph.file_graph import Stored, Unsupported, none_if_unsupported
from porter.filegraph.layouts.axes import Source, View
from porter.filegraph.layouts.dims import Open, fixed_sizes
from porter.filegraph.places import position_of
from porter.filegraph.tensors.arithmetic import apply_stored_array
from porter.filegraph.tensors.parts import MOST_PARTS, cut_nonempty, pad_axes
from porter.filegraph.walk import Repeated, Walk, part_of
from porter.graph import Tokens


def gather(walk: Walk, node: OperatorNode, source: Source, axis: int, places: Sequence[int]) -> View:
    """Take the cells at these places of an axis, and return the view: by one slice if they are evenly spaced,
    by reshapes if their order is a channel shuffle's, otherwise cell by cell, joined again.

    Raises:
        Unsupported: there are none, or too many to be joined.
    """
    view = walk.layouts.operand(source)
    size = view.size(axis)
    cells = [] if isinstance(size, Open) else [position_of(place, size) for place in places]
    steps = {after - before for before, after in pairwise(cells)}
    step = min(steps) if len(steps) == 1 else 0  # 0 for cells that are not evenly spaced
    can_go_backwards = view.value.is_map and walk.views.has_channels(view, axis)
    if step > 0 or (step < 0 and can_go_backwards):
        end = cells[-1] + step
        stop = end if end >= 0 else None  # backwards, the slice that has cell 0 ends at None
        return cut_nonempty(walk, node, source, {axis: slice(cells[0], stop, step)})
    shuffled = _shuffle(view, position_of(axis, len(view.sizes or ())), cells)
    if shuffled is not None:
        return shuffled
    if not 0 < len(cells) <= MOST_PARTS:
        raise Unsupported(f"of {len(places)} places")
    parts = [cut_nonempty(walk, node, source, {axis: slice(cell, cell + 1)}) for cell in cells]
    return join_views(walk, node, parts, axis)


def join_views(walk: Walk, node: OperatorNode, views: Sequence[View], axis: int) -> View:
    """Join values of the same axes along one of them, as channels if these are the axis, otherwise as arrays,
    and return the view.
    """
    joined = _concat_channels(walk, node, views, axis)
    if joined is not None:
        return joined
    return _join_arrays(
        walk, node, [walk.layouts.as_array(f"{node.name}:array", view) for view in views], axis
    )


def gather_cells(
    walk: Walk, node: OperatorNode, source: Source, index: np.ndarray[Any, np.dtype[np.int64]]
) -> View:
    """Take the cells at places of the first axes, as GatherND does, and return a view with the axes of the
    places first. Each coordinate has to vary along axes of its own, as those of rows by columns do: then the
    cells are taken axis by axis.

    Args:
        index: the places; its last axis has the coordinates, one for each of the first axes of the value.
    """
    view = walk.view(source)
    coordinates, place_sizes = index.shape[-1], index.shape[:-1]
    if not 0 < coordinates <= len(view.known_sizes) or not index.size:
        raise Unsupported(f"by places of {coordinates} axes")
    # coordinate c varies along the axes of the places from bounds[c] to bounds[c + 1]
    bounds = [0]
    for coordinate in range(coordinates):
        numbers = index[..., coordinate]
        varying_axes = [
            axis
            for axis, size in enumerate(place_sizes)
            if size > 1 and np.any(numbers != numbers.take([0], axis))
        ]
        if varying_axes and varying_axes[0] < bounds[-1]:
            raise Unsupported("of other places than rows by columns")
        bounds.append(max((axis + 1 for axis in varying_axes), default=bounds[-1]))
    bounds[-1] = len(place_sizes)
    order = view.batch_first
    cells = view.transposed(order)
    for coordinate in range(coordinates):
        # along the axes of the other coordinates, all numbers are the same: the first ones are taken
        own_axes = range(bounds[coordinate], bounds[coordinate + 1])
        own_part = tuple(slice(None) if axis in own_axes else 0 for axis in range(len(place_sizes)))
        places = index[(*own_part, coordinate)].ravel().tolist()
        cells = gather(walk, node, cells, order.index(coordinate), places)
    result = cells.untransposed(order)
    return result.reshaped([*place_sizes, *result.known_sizes[coordinates:]])


def _shuffle(view: View, axis: int, cells: Sequence[int]) -> View | None:
    """Take all cells of an axis by reshapes, if their order is that of a channel shuffle, which takes one of
    each group at a time, such as 0, 3, 1, 4, 2, 5 of two groups; return None for another order.

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
    # split the axis into groups and their cells, swap these two axes, and join them again
    split_sizes = [*sizes[:axis], count // group_size, group_size, *sizes[axis + 1 :]]
    order = [*range(axis), axis + 1, axis, *range(axis + 2, len(sizes) + 1)]
    return none_if_unsupported(lambda: view.reshaped(split_sizes).transposed(order).reshaped(sizes))


def concat(walk: Walk, node: OperatorNode, sources: Sequence[Source], axis: int) -> View | Repeated:
    """Concatenate values and constants along an axis, in the first way that fits, and return the view;
    Repeated for constants alone. Zeros before and after values are a pad; values are joined as channels where
    these are the axis, otherwise as arrays.
    """
    if not all(map(walk.is_value, sources)):
        return (
            _pad_with_constant(walk, node, sources, axis)
            or _concat_constants(walk, node, sources, axis)
            or _concat_with_constants(walk, node, sources, axis)
        )
    views = [view for source in sources if (view := walk.layouts.operand(source)).axes is not None]
    # values that all have one cell along the axis are stacked
    without_axis = none_if_unsupported(lambda: [view.without_axes([axis]) for view in views])
    are_cells = without_axis is not None and len(without_axis) == len(sources)
    stacked = _stack_as_channels(walk, node, without_axis, axis) if without_axis and are_cells else None
    joined = stacked or _concat_channels(walk, node, walk.layouts.side_by_side(sources), axis)
    return joined or _join_arrays(walk, node, [*map(walk.layouts.array, sources)], axis)


def _concat_channels(walk: Walk, node: OperatorNode, views: Sequence[View], axis: int) -> View | None:
    """Concatenate maps or features along an axis that is their channels; return None if it is another
    axis.
    """
    names = walk.views.common_axis_names(views)
    # a slice, because the tensor of a value of unknown shape may have more axes than the four of a map
    if names is None or names[axis : axis + 1 or None] != ("channels",):
        return None
    return walk.views.in_axis_order(walk.builder.concat(node.name, *(view.value for view in views)), names)


def _join_arrays(walk: Walk, node: OperatorNode, views: Sequence[View], axis: int) -> View:
    """Join arrays along an axis, and return the view. Raises Unsupported for the batch, and for no arrays."""
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
    value_indices = [index for index, source in enumerate(sources) if walk.is_value(source)]
    if not value_indices:
        return None
    first, last = value_indices[0], value_indices[-1]
    has_constants_between = len(value_indices) <= last - first
    if has_constants_between:
        return None
    before, values, behind = sources[:first], sources[first : last + 1], sources[last + 1 :]
    constants = [walk.constant_fill(source, axis) for source in (*before, *behind)]
    sizes_and_fills = [constant for constant in constants if constant is not None]
    fills = {fill for _, fill in sizes_and_fills}
    if len(sizes_and_fills) < len(constants) or len(fills) != 1:
        return None
    inside = concat(walk, node, values, axis) if len(values) > 1 else walk.layouts.operand(values[0])
    sizes = fixed_sizes([size for size, _ in sizes_and_fills])
    pads = sum(sizes[: len(before)]), sum(sizes[len(before) :])
    return pad_axes(walk, node, walk.as_view(inside), {axis: pads}, fills.pop())


def _concat_constants(
    walk: Walk, node: OperatorNode, sources: Sequence[Source], axis: int
) -> Repeated | None:
    """Concatenate constants, of which some are repeated, and return a repeated constant; None if values are
    among them or none is repeated.
    """
    constants = [None if walk.is_value(source) else _whole_constant(walk, source) for source in sources]
    arrays = [constant for constant in constants if constant is not None]
    repeated_sizes = [walk.repeated[source].sizes for source in sources if source in walk.repeated]
    if len(arrays) < len(sources) or not repeated_sizes:
        return None
    numbers = np.concatenate(arrays, axis)
    constant = walk.flow.add_constant(f"{node.name}:constants", numbers)
    joined_axis = position_of(axis, numbers.ndim)
    sizes = tuple(
        numbers.shape[joined_axis] if position == joined_axis else size
        for position, size in enumerate(repeated_sizes[0])
    )
    return Repeated(constant, sizes, lacks="of constants")


def _concat_with_constants(walk: Walk, node: OperatorNode, sources: Sequence[Source], axis: int) -> View:
    """Concatenate values and stored arrays, and return the view. A stored array before an array of tokens,
    such as a class token, becomes further tokens. Otherwise the values are padded by zeros, and the stored
    arrays are added there.
    """
    values = [source for source in sources if walk.is_value(source)]
    view = _join_arrays(walk, node, [*map(walk.layouts.array, values)], axis)
    may_be_tokens = walk.is_value(sources[-1]) and view.axis_at(axis) == 0
    tokens = _insert_tokens(walk, node, sources, axis) if may_be_tokens else None
    if tokens is not None:
        return tokens
    runs = _split_runs(walk, sources)
    nodes = [node if len(runs) == 1 else part_of(node, str(number)) for number in range(len(runs))]
    parts = [_add_to_padded(walk, part, run, axis) for part, run in zip(nodes, runs, strict=True)]
    return _join_arrays(walk, node, parts, axis) if len(parts) > 1 else parts[0]


def _split_runs(walk: Walk, sources: Sequence[Source]) -> list[Sequence[Source]]:
    """Split sources into runs of constants with the values behind them; the last run also has the constants
    at the end: constant, value, constant, value, constant are two runs, of two and of three sources.
    """
    are_values = [walk.is_value(source) for source in sources]
    # a run starts at a constant behind a value, if another value follows
    starts = [
        index
        for index in range(1, len(sources))
        if are_values[index - 1] and not are_values[index] and any(are_values[index:])
    ]
    bounds = [0, *starts, len(sources)]
    return [sources[start:end] for start, end in pairwise(bounds)]


def _add_to_padded(walk: Walk, node: OperatorNode, sources: Sequence[Source], axis: int) -> View:
    """Concatenate stored arrays before and after values, and return the view: the values are padded by zeros,
    and an array of the constants' numbers there, with zeros for the values, is added.

    Raises:
        Unsupported: a constant has other axes than the values, or is another one for each image.
    """
    value_indices = [index for index, source in enumerate(sources) if walk.is_value(source)]
    view = _join_arrays(walk, node, [walk.layouts.array(sources[index]) for index in value_indices], axis)
    before = _whole_constants(walk, sources[: value_indices[0]])
    behind = _whole_constants(walk, sources[value_indices[-1] + 1 :])
    if not before and not behind:
        return view
    sizes = [*(before + behind)[0].shape]
    shape = view.value.shape or ()
    first = 0 if walk.views.lacks_batch else 1  # the first axis behind the batch
    if None in shape or len(sizes) != len(view.known_axes) or set(sizes[:first]) - {1}:
        raise Unsupported("with a constant of other axes")
    sizes[axis] = view.size(axis)
    numbers = np.concatenate([*before, np.zeros(sizes), *behind], axis)
    cells_before = sum(array.shape[axis] for array in before)
    cells_behind = sum(array.shape[axis] for array in behind)
    pads = {view.axis_at(axis): (cells_before, cells_behind)}
    padded = walk.builder.widen(f"{node.name}:pad", view.value, pads)
    tensor = walk.flow.store_computed(f"{node.name}:stored", numbers)
    tensor = replace(tensor, shape=numbers.shape[first:])
    return walk.views.as_rank_of(view, apply_stored_array(walk, node.name, "Add", padded, tensor))


def _whole_constants(walk: Walk, sources: Sequence[Source]) -> list[Numbers]:
    """Return the numbers of several constants, each as `_whole_constant` gives them. Raises Unsupported if it
    gives none for one.
    """
    arrays = [array for source in sources if (array := _whole_constant(walk, source)) is not None]
    if len(arrays) < len(sources):
        raise Unsupported("with a constant that is computed, or repeated along axes of open size")
    return arrays


def _whole_constant(walk: Walk, source: Source) -> Numbers | None:
    """Return the numbers of a constant with all their repetitions; if they are the same for each image, those
    of one image. None for another source, and if it is repeated along axes of open size, or too often.
    """
    unrepeated = walk.drop_repeats(source)
    tensor = walk.weights(unrepeated)
    numbers = walk.constant(unrepeated) if tensor is None else walk.flow.stored_numbers(tensor.name)
    if numbers is None:
        return None
    if source in walk.repeated:
        images, *others = walk.repeated[source].sizes
        known_others = [size for size in others if isinstance(size, int)]
        sizes = [1 if isinstance(images, Open) else images, *known_others]
        bytes_of_numbers = 8 * math.prod(sizes)  # in float64
        if len(known_others) < len(others) or not walk.flow.reserve_bytes(bytes_of_numbers):
            return None
        numbers = np.broadcast_to(numbers, sizes)
    has_batch = numbers.ndim > 1 and not walk.views.lacks_batch
    is_same_for_each_image = has_batch and np.all(numbers == numbers[:1])
    return np.asarray(numbers[:1] if is_same_for_each_image else numbers, np.float64)


def _insert_tokens(walk: Walk, node: OperatorNode, sources: Sequence[Source], axis: int) -> View | None:
    """Concatenate arrays of tokens and stored tokens, such as a class token before an array, and return the
    view; None if a stored array has other axes than tokens x channels. A value ends the sources.
    """
    parts = list[View]()
    stored_before = list[Source]()
    has_one_array = sum(map(walk.is_value, sources)) == 1
    for source in sources:
        if not walk.is_value(source):
            stored_before.append(source)
            continue
        name = node.name if has_one_array else f"{node.name}:{len(parts)}"
        tokens = _prepend_tokens(walk, name, walk.layouts.array(source), stored_before)
        if tokens is None:
            return None
        parts.append(tokens)
        stored_before = []
    return parts[0] if has_one_array else _join_arrays(walk, node, parts, axis)


def _prepend_tokens(walk: Walk, name: str, view: View, stored: Sequence[Source]) -> View | None:
    """Add stored tokens before those of a value, and return the view; None if a stored array has other axes
    than tokens x channels.
    """
    value = view.value
    for index, source in enumerate(reversed(stored), 1):
        tokens = walk.weights(walk.drop_repeats(source))
        tensor = tokens and walk.flow.drop_equal_rows(tokens)
        sizes = tensor.shape if tensor is not None else ()
        is_of_one_image = sizes[:-2] in ((), (1,))
        fits = len(value.shape or ()) == 2 and is_of_one_image and sizes[-1:] == (value.channels,)
        if tensor is None or len(sizes) < 2 or not fits:
            return None
        node_name = name if index == len(stored) else f"{name}:{index}"
        op = Tokens(sizes[-2])
        value = walk.builder.add(node_name, op, value, tensors={"value": Stored(tensor.name)})
    return walk.views.as_rank_of(view, value)


def stack(walk: Walk, node: OperatorNode, sources: Sequence[Source], axis: int) -> View:
    """Stack values along a new axis, in the first way that fits, and return the view.

    - Maps are concatenated along their channels. Two maps N x 8 x H x W on axis 1 are a map of 16 channels,
      which the view shows as N x 2 x 8 x H x W.
    - Maps of one channel whose tensors have no axis for it (N x H x W) are concatenated as channels, if the
      new axis is where channels are.
    - Other values become arrays with an axis of length 1, along which they are concatenated.
    """
    views = [walk.layouts.operand(source) for source in sources]
    stacked = _stack_as_channels(walk, node, views, axis)
    if stacked is not None:
        return stacked
    with_axis = [view.with_axes([axis]) for view in views]
    if all(view.value.is_map for view in with_axis):
        maps_of_one_channel = _concat_channels(walk, node, with_axis, axis)
        if maps_of_one_channel is not None:
            return maps_of_one_channel
    # in the axes of the file's tensors, with the batch first
    file_views = [walk.view(source).with_axes([axis]) for source in sources]
    order = file_views[0].batch_first
    arrays = [walk.layouts.as_array(f"{node.name}:array", view.transposed(order)) for view in file_views]
    joined = _join_arrays(walk, node, arrays, order.index(position_of(axis, len(order))))
    return joined.untransposed(order)


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
    # split the channels into the new axis and the channels of one value
    channels_axis = names.index("channels")
    channels_of_value = joined.sizes[channels_axis] // len(views)
    sizes = [*joined.sizes]
    sizes[channels_axis : channels_axis + 1] = [len(views), channels_of_value]
    # and move the new axis to its position
    order = [position for position in range(len(sizes)) if position != channels_axis]
    order.insert(position_of(axis, len(sizes)), channels_axis)
    return joined.reshaped(sizes).transposed(order)


def windows(walk: Walk, node: OperatorNode, source: Source, axis: int, window: Sequence[int]) -> View:
    """Cut an axis into windows, as torch's `unfold` does, and return the view: the axis then counts the
    windows, and a new last axis has the cells of each.

    Args:
        window: how many cells it has, and how far each is behind the one before.
    """
    view = walk.view(source)
    size, step = window
    cells = view.size(axis)
    position = position_of(axis, view.rank)
    if isinstance(cells, Open) or not 0 < size <= cells or step < 1:
        raise Unsupported("along an axis of open size, or of fewer cells")
    count = (cells - size) // step + 1
    if size == step:  # windows side by side: the axis is split
        has_rest = cells > count * size
        covered = cut_nonempty(walk, node, source, {position: slice(0, count * size)}) if has_rest else view
        sizes = covered.known_sizes
        split = covered.reshaped([*sizes[:position], count, size, *sizes[position + 1 :]])
        other_axes = [axis for axis in range(len(sizes) + 1) if axis != position + 1]
        return split.transposed([*other_axes, position + 1])
    if size > MOST_PARTS:
        raise Unsupported(f"by parts of more than {MOST_PARTS} cells that overlap")
    # the first cells of all windows, then the second ones, and so on
    parts = list[View]()
    for first in range(size):
        end = first + (count - 1) * step + 1
        part_node = part_of(node, str(first))
        parts.append(cut_nonempty(walk, part_node, source, {position: slice(first, end, step)}))
    return join_views(walk, node, [part.with_axes([-1]) for part in parts], -1)
