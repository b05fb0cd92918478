"""What an op graph does with the axes of its tensors: reshapes, transposes, repetitions, for every
format.

A reshape or a transpose adds no node: the views follow it, until an op needs the value. Functions take the
values that a node reads as references; axes are places in the tensor as the file has it, from either end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from porter.filegraph.axes import View
from porter.filegraph.builder import Value
from porter.filegraph.dataflow import OperatorNode
from porter.filegraph.dims import Dim, Open, Undecided, fixed_sizes, product, sizes_text
from porter.filegraph.file_graph import Unsupported, first_supported
from porter.filegraph.joins import _join_views
from porter.filegraph.parts import MOST_PARTS, flip
from porter.filegraph.places import Items, position_of
from porter.filegraph.walk import Repeated, Source, Walk
from porter.graph import Rearrange, Upsample
from porter.graph.ops import AXES


def reshape(walk: Walk, node: OperatorNode, source: Source, sizes: Sequence[Dim]) -> View:
    """The tensor in another shape; -1 is what is left."""
    view = walk.view(source)
    ways: list[Callable[[], View]] = [lambda: view.reshaped(sizes)]
    if walk.views.layout_op(view) is not None:
        ways.append(lambda: walk.lay_out(source).reshaped(sizes))
    ways += [
        lambda: walk.array(source).reshaped(sizes),
        lambda: _flatten_array(walk, node, walk.array(source)).reshaped(sizes),
    ]
    return first_supported(*ways)


def _flatten_array(walk: Walk, node: OperatorNode, view: View) -> View:
    """The numbers of an array as features, of which axes can be made that do not divide the array's."""
    return walk.as_array(f"{node.name}:flat", view.reshaped([view.known_sizes[0], -1]))


def flatten(walk: Walk, node: OperatorNode, source: Source, first: int, last: int = -1) -> View:
    """The axes from the first to the last as one."""
    sizes = walk.known_sizes(source)
    start, end = (position_of(position, len(sizes)) for position in (first, last))
    return reshape(walk, node, source, [*sizes[:start], product(sizes[start : end + 1]), *sizes[end + 1 :]])


def squeeze(walk: Walk, node: OperatorNode, source: Source, positions: Collection[int] | None = None) -> View:
    """The tensor without axes of one cell; without all of them if no places are given.

    A file that names rows or columns of unknown size states that they have one cell.
    """
    view = walk.view(source)
    sizes = view.known_sizes
    chosen = (
        view.positions(positions)
        if positions
        else {position for position, size in enumerate(sizes) if size == 1}
    )
    names = walk.views.axis_names(view)
    shape = view.value.shape
    if names and shape and None in shape:
        squeezed = {names[position] for position in chosen}
        whole = tuple(
            1 if size is None and axis in squeezed else size for axis, size in zip(AXES, shape, strict=False)
        )
        view = walk.views.in_axis_order(replace(view.value, shape=whole), names)
    return view.without_axes(chosen)


def unsqueeze(walk: Walk, node: OperatorNode, source: Source, positions: Collection[int]) -> View:
    """The tensor with axes of one cell, which have these places in it."""
    return walk.view(source).with_axes(positions)


def transpose(walk: Walk, node: OperatorNode, source: Source, order: Sequence[int]) -> View | Repeated:
    constant = None if walk.is_value(source) else _transpose_constant(walk, node, source, order)
    return constant or walk.view(source).transposed(order)


def _transpose_constant(
    walk: Walk, node: OperatorNode, source: Source, order: Sequence[int]
) -> Repeated | None:
    """A constant that is repeated, with its axes in another order."""
    filled = walk.repeated.get(source)
    numbers = walk.constant(filled.before) if filled is not None else None
    if filled is None or numbers is None:
        return None
    wide = numbers.reshape([1] * (len(filled.sizes) - numbers.ndim) + [*numbers.shape])
    sizes = Items(filled.sizes)
    turned = walk.flow.add_constant(f"{node.name}:turned", wide.transpose(order))
    return Repeated(turned, tuple(sizes[axis] for axis in order))


def repeat(walk: Walk, node: OperatorNode, source: Source, times: Sequence[Dim]) -> View | Repeated:
    """Each axis so many times, one whole copy after the other; of a constant, such as a class token, those of
    one cell.
    """
    sizes = walk.sizes(source) or ()
    if not walk.is_live(source) or all(1 in pair for pair in zip(sizes, times, strict=True)):
        return expand(walk, node, source, [size * count for size, count in zip(sizes, times, strict=True)])
    counts = fixed_sizes(times)
    if math.prod(counts) > MOST_PARTS or min(counts) < 1:
        raise Unsupported(f"into more than {MOST_PARTS} copies")
    view = walk.try_lay_out(source)
    for index, count in enumerate(counts):
        if count > 1:
            view = _join_views(walk, node, [view] * count, index)
    return view


def interleave(walk: Walk, node: OperatorNode, source: Source, axis: int, times: int) -> View:
    """Each cell of an axis so many times, one after the other."""
    view = walk.try_lay_out(source)
    sizes = view.known_sizes
    rank = len(view.known_sizes)
    if times < 1:
        raise Unsupported(f"{times} times")
    at = position_of(axis, rank)
    wide = view.with_axes([at + 1]).repeated([times if each == at + 1 else 1 for each in range(rank + 1)])
    return wide.reshaped([*sizes[:at], sizes[at] * times, *sizes[at + 1 :]])


def expand(walk: Walk, node: OperatorNode, source: Source, sizes: Sequence[Dim]) -> Repeated:
    """The tensor with its axes of one cell repeated to these sizes, which are those of its last axes; -1 and
    1 keep an axis. A constant may get axes before its own.
    """
    own = walk.known_sizes(source)
    is_value = walk.is_live(source)
    if not is_value:
        own = (*[1] * (len(sizes) - len(own)), *own)
    if len(sizes) > len(own):
        raise Unsupported("to more axes")
    wanted = [*own[: len(own) - len(sizes)], *sizes]
    times: list[Dim] = [size if old == 1 and size != -1 else 1 for size, old in zip(wanted, own, strict=True)]
    if any(size not in (-1, 1, old) for size, old in zip(wanted, own, strict=True) if old != 1):
        raise Unsupported(f"of {sizes_text(own)} to {sizes_text(wanted)}")
    whole = tuple(size * count for size, count in zip(own, times, strict=True))
    repeated = Repeated(walk.before_repeat(source), whole)
    if not is_value:
        return repeated
    if any(isinstance(count, Open) for count in times):  # an op of the value may repeat it by itself
        return replace(repeated, lacks=f"with {Undecided().message}")
    return replace(repeated, view=walk.view(source).repeated(fixed_sizes(times)))


def rot90(walk: Walk, node: OperatorNode, source: Source, positions: tuple[int, int], turns: int) -> View:
    """Two axes turned by so many right angles: exchanged, and one of them turned round."""
    view = walk.try_lay_out(source)
    rank = len(view.known_axes)
    order = [*range(rank)]
    one, other = (position_of(position, rank) for position in positions)
    order[one], order[other] = other, one
    turned = view.transposed(order) if turns % 2 else view
    around = {0: [], 1: [one], 2: [one, other], 3: [other]}[turns % 4]
    return flip(walk, node, turned, around)


def repeat_images(walk: Walk, node: OperatorNode, source: Source, times: int) -> View:
    """Each image so many times, one copy after the other: a map of one cell has so many rows."""
    array = walk.array(source)
    sizes = array.known_sizes
    shape = array.value.shape or ()
    if None in shape or not array.value.is_array or len(shape) != len(sizes) - 1:
        raise Unsupported("of images other than arrays of known size")
    axes = {letter: f"({letter}={size})" for letter, size in zip("abcdefgh", shape, strict=False)}
    pattern = f"{' '.join(axes.values())} -> ({' '.join(axes)}) () ()"
    cell = walk.builder.add(f"{node.name}:cell", Rearrange(pattern, True), array.value)
    rows = walk.builder.add(node.name, Upsample(times, 1), cell)
    laid = walk.views.in_axis_order(rows, ("batch", "rows", "columns", "channels"))
    return laid.reshaped([sizes[0] * times, *sizes[1:]])


def cells_as_channels(
    walk: Walk, node: OperatorNode, source: Source, block: int, outer: bool = False
) -> View:
    """The cells of each block of a map as channels, block rows first, before the channels that were there or,
    if these are `outer`, behind.
    """
    view = walk.view(source)
    sizes = view.known_sizes
    if len(sizes) != 4:
        raise Unsupported(f"of {len(sizes)} axes")
    images, *axes = sizes
    channels_first = walk.builder.order == "CHW"
    channels, rows, columns = axes if channels_first else (axes[2], *axes[:2])
    parts: list[Dim] = [rows // block, block, columns // block, block]
    apart = view.reshaped([images, channels, *parts] if channels_first else [images, *parts, channels])
    if channels_first:
        order = (0, 1, 3, 5, 2, 4) if outer else (0, 3, 5, 1, 2, 4)
    else:
        order = (0, 1, 3, 5, 2, 4) if outer else (0, 1, 3, 2, 4, 5)
    ends: list[Dim] = [rows // block, columns // block]
    whole = channels * block**2
    return apart.transposed(order).reshaped(
        [images, whole, *ends] if channels_first else [images, *ends, whole]
    )


def as_row_map(walk: Walk, node: OperatorNode, source: Source) -> Value:
    """A tensor of one axis beside batch and channels as a map of one row, for windows over that axis.

    Raises:
        Unsupported: it has other axes.
    """
    view = walk.view(source)
    if len(view.known_axes) == 3:
        value = walk.views.in_file_layout(f"{node.name}:row", view.with_axes([_rows_axis(walk)]))
        if value.is_map:
            return value
    raise Unsupported("of one axis, of something else than a row of cells")


def _rows_axis(walk: Walk) -> int:
    return walk.views.layout().index("rows")
