"""What an op graph does with the axes of its tensors: reshapes, transposes, repetitions, for every
format.

A reshape or a transpose adds no node: the views follow it, until an op needs the value. Functions take the
values that a node reads as references; axes are places in the tensor as the file has it, from either end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from porter.filegraph.dataflow import OperatorNode
from porter.filegraph.file_graph import Unsupported, first_supported
from porter.filegraph.layer_values import Value
from porter.filegraph.layouts.axes import Source, View
from porter.filegraph.layouts.dims import Dim, Open, Undecided, fixed_sizes, product, sizes_text
from porter.filegraph.places import Items, position_of
from porter.filegraph.tensors.joins import join_views
from porter.filegraph.tensors.parts import MOST_PARTS, flip
from porter.filegraph.walk import Repeated, Walk
from porter.graph import Rearrange, Upsample
from porter.graph.ops import AXES, axis_letters


def reshape(walk: Walk, node: OperatorNode, source: Source, sizes: Sequence[Dim]) -> View:
    """Return the tensor in another shape; -1 is what is left. If the axes of its value cannot be split and
    joined to these, ops lay the value out with other axes first. Raises Unsupported if that is of no use
    either.
    """
    view = walk.view(source)
    # the first one needs no op at all, the last one the most
    ways: list[Callable[[], View]] = [lambda: view.reshaped(sizes)]
    if walk.views.layout_op(view) is not None:
        ways.append(lambda: walk.layouts.array_or_laid_out(source).reshaped(sizes))
    ways += [
        lambda: walk.layouts.array(source).reshaped(sizes),
        lambda: _flatten_array(walk, node, walk.layouts.array(source)).reshaped(sizes),
    ]
    return first_supported(*ways)


def _flatten_array(walk: Walk, node: OperatorNode, view: View) -> View:
    """Return the numbers of an array as features, which a reshape can split into axes that the array's cannot
    be split into, such as 4 x 6 into 3 x 8.
    """
    return walk.layouts.as_array(f"{node.name}:flat", view.reshaped([view.known_sizes[0], -1]))


def flatten(walk: Walk, node: OperatorNode, source: Source, first: int, last: int = -1) -> View:
    """Join the axes from the first to the last into one, and return the view."""
    sizes = walk.known_sizes(source)
    start, end = (position_of(position, len(sizes)) for position in (first, last))
    joined_size = product(sizes[start : end + 1])
    return reshape(walk, node, source, [*sizes[:start], joined_size, *sizes[end + 1 :]])


def squeeze(walk: Walk, node: OperatorNode, source: Source, positions: Collection[int] | None = None) -> View:
    """Remove axes of one cell: those at the positions, or all of them if no positions are given.

    A file that names rows or columns of unknown size states that they have one cell.
    """
    view = walk.view(source)
    sizes = view.known_sizes
    axes_of_one_cell = {position for position, size in enumerate(sizes) if size == 1}
    removed = view.positions(positions) if positions else axes_of_one_cell
    names = walk.views.axis_names(view)
    shape = view.value.shape
    if names and shape and None in shape:
        removed_names = {names[position] for position in removed}
        known_shape = tuple(
            1 if size is None and axis in removed_names else size
            for axis, size in zip(AXES, shape, strict=False)
        )
        view = walk.views.in_axis_order(replace(view.value, shape=known_shape), names)
    return view.without_axes(removed)


def unsqueeze(walk: Walk, node: OperatorNode, source: Source, positions: Collection[int]) -> View:
    """Return the tensor with further axes of one cell, which have these places in the result."""
    return walk.view(source).with_axes(positions)


def transpose(walk: Walk, node: OperatorNode, source: Source, order: Sequence[int]) -> View | Repeated:
    """Return the tensor with its axes in another order; of a constant that is repeated, the repeated
    transposed one.
    """
    constant = None if walk.is_value(source) else _transpose_constant(walk, node, source, order)
    return constant or walk.view(source).transposed(order)


def _transpose_constant(
    walk: Walk, node: OperatorNode, source: Source, order: Sequence[int]
) -> Repeated | None:
    """Transpose a constant that is repeated, and return the transposed constant, repeated as it is; None for
    another constant.
    """
    repeated = walk.repeated.get(source)
    numbers = walk.constant(repeated.before) if repeated is not None else None
    if repeated is None or numbers is None:
        return None
    missing_axes = len(repeated.sizes) - numbers.ndim
    numbers_of_all_axes = numbers.reshape([1] * missing_axes + [*numbers.shape])
    sizes = Items(repeated.sizes)  # an axis that the value lacks is then a ValueError
    transposed = walk.flow.add_constant(f"{node.name}:turned", numbers_of_all_axes.transpose(order))
    return Repeated(transposed, tuple(sizes[axis] for axis in order))


def repeat(walk: Walk, node: OperatorNode, source: Source, times: Sequence[Dim]) -> View | Repeated:
    """Repeat each axis so many times, one whole copy after the other. A constant, such as a class token, may
    be repeated along axes of one cell only.
    """
    sizes = walk.sizes(source) or ()
    repeats_single_cells = all(1 in pair for pair in zip(sizes, times, strict=True))  # or nothing
    if not walk.is_live(source) or repeats_single_cells:
        return expand(walk, node, source, [size * count for size, count in zip(sizes, times, strict=True)])
    counts = fixed_sizes(times)
    if math.prod(counts) > MOST_PARTS or min(counts) < 1:
        raise Unsupported(f"into more than {MOST_PARTS} copies")
    view = walk.layouts.operand(source)
    for index, count in enumerate(counts):
        if count > 1:
            view = join_views(walk, node, [view] * count, index)
    return view


def interleave(walk: Walk, node: OperatorNode, source: Source, axis: int, times: int) -> View:
    """Repeat each cell of an axis so many times, one copy after the other."""
    view = walk.layouts.operand(source)
    sizes = view.known_sizes
    rank = len(view.known_sizes)
    if times < 1:
        raise Unsupported(f"{times} times")
    position = position_of(axis, rank)
    # a new axis of one cell behind the axis is repeated, and then joined to it
    times_by_axis = [1] * (rank + 1)
    times_by_axis[position + 1] = times
    repeated = view.with_axes([position + 1]).repeated(times_by_axis)
    return repeated.reshaped([*sizes[:position], sizes[position] * times, *sizes[position + 1 :]])


def expand(walk: Walk, node: OperatorNode, source: Source, sizes: Sequence[Dim]) -> Repeated:
    """Repeat axes of one cell to these sizes, which are those of the tensor's last axes; -1 and 1 keep an
    axis. A constant may get axes before its own.

    Raises:
        Unsupported: the sizes are of more axes than a value has, or an axis of several cells would get other
            ones.
    """
    old_sizes = walk.known_sizes(source)
    is_value = walk.is_live(source)
    if not is_value:
        missing_axes = len(sizes) - len(old_sizes)
        old_sizes = (*[1] * missing_axes, *old_sizes)
    if len(sizes) > len(old_sizes):
        raise Unsupported("to more axes")
    count_kept = len(old_sizes) - len(sizes)  # axes before those that `sizes` are of
    wanted = [*old_sizes[:count_kept], *sizes]
    times = list[Dim]()  # how often each axis is repeated
    for size, old_size in zip(wanted, old_sizes, strict=True):
        times.append(size if old_size == 1 and size != -1 else 1)
    if any(size not in (-1, 1, old) for size, old in zip(wanted, old_sizes, strict=True) if old != 1):
        raise Unsupported(f"of {sizes_text(old_sizes)} to {sizes_text(wanted)}")
    expanded_sizes = tuple(size * count for size, count in zip(old_sizes, times, strict=True))
    repeated = Repeated(walk.before_repeat(source), expanded_sizes)
    if not is_value:
        return repeated
    if any(isinstance(count, Open) for count in times):  # an op of the value may repeat it by itself
        return replace(repeated, lacks=f"with {Undecided().message}")
    return replace(repeated, view=walk.view(source).repeated(fixed_sizes(times)))


def rot90(walk: Walk, node: OperatorNode, source: Source, positions: tuple[int, int], turns: int) -> View:
    """Turn two axes by so many right angles: they are exchanged, and one of them, or both, are flipped. Three
    turns exchange the axes and flip the other one.
    """
    view = walk.layouts.operand(source)
    rank = len(view.known_axes)
    first, second = (position_of(position, rank) for position in positions)
    swapped_order = [*range(rank)]
    swapped_order[first], swapped_order[second] = second, first
    exchanged = view.transposed(swapped_order) if turns % 2 else view
    flipped_axes = {0: [], 1: [first], 2: [first, second], 3: [second]}[turns % 4]
    return flip(walk, node, exchanged, flipped_axes)


def repeat_images(walk: Walk, node: OperatorNode, source: Source, times: int) -> View:
    """Repeat each image of the batch so many times, one copy after the other, and return the view. Each image
    becomes a map of one cell, which an Upsample makes so many rows, and the rows are counted among the
    images.
    """
    array = walk.layouts.array(source)
    sizes = array.known_sizes
    shape = array.value.shape or ()
    if None in shape or not array.value.is_array or len(shape) != len(sizes) - 1:
        raise Unsupported("of images other than arrays of known size")
    # all numbers become channels: (a=3) (b=4) -> (a b) () ()
    letters = axis_letters(len(shape))
    axes = {letter: f"({letter}={size})" for letter, size in zip(letters, shape, strict=False)}
    pattern = f"{' '.join(axes.values())} -> ({' '.join(axes)}) () ()"
    cell = walk.builder.add(f"{node.name}:cell", Rearrange(pattern, True), array.value)
    rows = walk.builder.add(node.name, Upsample(times, 1), cell)
    channels_last = walk.views.in_axis_order(rows, ("batch", "rows", "columns", "channels"))
    return channels_last.reshaped([sizes[0] * times, *sizes[1:]])


def cells_as_channels(
    walk: Walk, node: OperatorNode, source: Source, block: int, outer: bool = False
) -> View:
    """Move the cells of each block of a map into the channels (space to depth), and return the view: blocks
    of 2 make 4C channels, and half as many rows and columns. The cells of a block come before the channels
    that were there or, if these are `outer`, behind them.
    """
    view = walk.view(source)
    sizes = view.known_sizes
    if len(sizes) != 4:
        raise Unsupported(f"of {len(sizes)} axes")
    images, *axes = sizes
    channels_first = walk.builder.order == "CHW"
    channels, rows, columns = axes if channels_first else (axes[2], *axes[:2])
    blocks: list[Dim] = [rows // block, columns // block]
    split_cells: list[Dim] = [blocks[0], block, blocks[1], block]
    all_channels = channels * block**2
    if channels_first:
        # axes: images, channels, blocks down, rows of a block, blocks across, columns of a block
        split = view.reshaped([images, channels, *split_cells])
        order = (0, 1, 3, 5, 2, 4) if outer else (0, 3, 5, 1, 2, 4)
        return split.transposed(order).reshaped([images, all_channels, *blocks])
    # axes: images, blocks down, rows of a block, blocks across, columns of a block, channels
    split = view.reshaped([images, *split_cells, channels])
    order = (0, 1, 3, 5, 2, 4) if outer else (0, 1, 3, 2, 4, 5)
    return split.transposed(order).reshaped([images, *blocks, all_channels])


def as_row_map(walk: Walk, node: OperatorNode, source: Source) -> Value:
    """Return a tensor of one axis beside batch and channels as a map of one row, for windows over that
    axis.

    Raises:
        Unsupported: it has other axes.
    """
    view = walk.view(source)
    if len(view.known_axes) == 3:
        value = walk.views.in_file_layout(f"{node.name}:row", view.with_axes([_rows_axis(walk)]))
        if value.is_map:
            return value
    raise Unsupported("of one axis, of something else than a row of cells")


def without_rows(walk: Walk, node: OperatorNode, source: Source) -> View:
    """Remove the axis of rows, of one cell, that `as_row_map` added."""
    return walk.view(source).without_axes([_rows_axis(walk)])


def _rows_axis(walk: Walk) -> int:
    """Return the position of the rows in the file's own layout."""
    return walk.views.layout().index("rows")
