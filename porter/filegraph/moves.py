"""What an op graph does with the axes of its tensors: reshapes, transposes, parts, joins and pads, for every
format.

A reshape or a transpose adds no node: the views follow it, until an op needs the value. Functions take the
values that a node reads as references; axes are places in the tensor as the file has it, from either end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from porter.filegraph.arithmetic import with_stored
from porter.filegraph.axes import OF_UNKNOWN_SHAPE, View
from porter.filegraph.builder import Value
from porter.filegraph.dataflow import Node
from porter.filegraph.dims import Dim, Numbers, Open, Undecided, known, product, text
from porter.filegraph.file_graph import Stored, Unsupported, first_of, tried
from porter.filegraph.places import Items, place_of
from porter.filegraph.resampling import as_large
from porter.filegraph.walk import Repeated, Source, Walk, Zeros, within
from porter.graph import MOST_CONSTANTS, ExtendMap, Rearrange, Tokens, Upsample
from porter.graph.ops import AXES, Mode

MOST_PARTS = 64
"""More than a model adds. Each part is a node of its own, however short the file is."""
_LARGEST = 2**29
"""So many cells are all, of any axis: the largest numbers of 32 and of 64 bits stand for its end, and
tf2onnx's 10^9.
"""


def reshape(walk: Walk, node: Node, source: Source, sizes: Sequence[Dim]) -> View:
    """The tensor in another shape; -1 is what is left."""
    view = walk.view(source)
    ways: list[Callable[[], View]] = [lambda: view.reshaped(sizes)]
    if walk.views.op(view) is not None:
        ways.append(lambda: walk.plain(source).reshaped(sizes))
    ways += [
        lambda: walk.array(source).reshaped(sizes),
        lambda: _flat(walk, node, walk.array(source)).reshaped(sizes),
    ]
    return first_of(*ways)


def _flat(walk: Walk, node: Node, view: View) -> View:
    """The numbers of an array as features, of which axes can be made that do not divide the array's."""
    return walk.as_array(f"{node.name}:flat", view.reshaped([view.known_sizes[0], -1]))


def flatten(walk: Walk, node: Node, source: Source, first: int, last: int = -1) -> View:
    """The axes from the first to the last as one."""
    sizes = walk.known_sizes(source)
    start, end = (place_of(place, len(sizes)) for place in (first, last))
    return reshape(walk, node, source, [*sizes[:start], product(sizes[start : end + 1]), *sizes[end + 1 :]])


def squeeze(walk: Walk, node: Node, source: Source, places: Collection[int] | None = None) -> View:
    """The tensor without axes of one cell; without all of them if no places are given.

    A file that names rows or columns of unknown size states that they have one cell.
    """
    view = walk.view(source)
    sizes = view.known_sizes
    chosen = view.places(places) if places else {place for place, size in enumerate(sizes) if size == 1}
    names, shape = walk.views.names(view), view.value.shape
    if names and shape and None in shape:
        stated = {names[place] for place in chosen}
        whole = tuple(
            1 if size is None and axis in stated else size for axis, size in zip(AXES, shape, strict=False)
        )
        view = walk.views.laid(replace(view.value, shape=whole), names)
    return view.without(chosen)


def unsqueeze(walk: Walk, node: Node, source: Source, places: Collection[int]) -> View:
    """The tensor with axes of one cell, which have these places in it."""
    return walk.view(source).with_axes(places)


def transpose(walk: Walk, node: Node, source: Source, order: Sequence[int]) -> View | Repeated:
    constant = None if walk.is_value(source) else _turned_constant(walk, node, source, order)
    return constant or walk.view(source).transposed(order)


def _turned_constant(walk: Walk, node: Node, source: Source, order: Sequence[int]) -> Repeated | None:
    """A constant that is repeated, with its axes in another order."""
    filled = walk.repeated.get(source)
    numbers = walk.constant(filled.before) if filled is not None else None
    if filled is None or numbers is None:
        return None
    wide = numbers.reshape([1] * (len(filled.sizes) - numbers.ndim) + [*numbers.shape])
    sizes = Items(filled.sizes)
    turned = walk.flow.stated(f"{node.name}:turned", wide.transpose(order))
    return Repeated(turned, tuple(sizes[axis] for axis in order))


def repeat(walk: Walk, node: Node, source: Source, times: Sequence[Dim]) -> View | Repeated:
    """Each axis so many times, one whole copy after the other; of a constant, such as a class token, those of
    one cell.
    """
    sizes = walk.sizes(source) or ()
    if not walk.is_live(source) or all(1 in pair for pair in zip(sizes, times, strict=True)):
        return expand(walk, node, source, [size * count for size, count in zip(sizes, times, strict=True)])
    stated = known(times)
    if math.prod(stated) > MOST_PARTS or min(stated) < 1:
        raise Unsupported(f"into more than {MOST_PARTS} copies")
    found = walk.kept(source)
    for place, count in enumerate(stated):
        if count > 1:
            found = _beside(walk, node, [found] * count, place)
    return found


def interleave(walk: Walk, node: Node, source: Source, place: int, times: int) -> View:
    """Each cell of an axis so many times, one after the other."""
    view = walk.kept(source)
    sizes, rank = view.known_sizes, len(view.known_sizes)
    if times < 1:
        raise Unsupported(f"{times} times")
    at = place_of(place, rank)
    wide = view.with_axes([at + 1]).repeated([times if axis == at + 1 else 1 for axis in range(rank + 1)])
    return wide.reshaped([*sizes[:at], sizes[at] * times, *sizes[at + 1 :]])


def expand(walk: Walk, node: Node, source: Source, sizes: Sequence[Dim]) -> Repeated:
    """The tensor with its axes of one cell repeated to these sizes, which are those of its last axes; -1 and
    1 keep an axis. A constant may get axes before its own.
    """
    own, is_value = walk.known_sizes(source), walk.is_live(source)
    if not is_value:
        own = (*[1] * (len(sizes) - len(own)), *own)
    if len(sizes) > len(own):
        raise Unsupported("to more axes")
    wanted = [*own[: len(own) - len(sizes)], *sizes]
    times: list[Dim] = [size if old == 1 and size != -1 else 1 for size, old in zip(wanted, own, strict=True)]
    if any(size not in (-1, 1, old) for size, old in zip(wanted, own, strict=True) if old != 1):
        raise Unsupported(f"of {text(own)} to {text(wanted)}")
    whole = tuple(size * count for size, count in zip(own, times, strict=True))
    repeated = Repeated(walk.before(source), whole)
    if not is_value:
        return repeated
    if any(isinstance(count, Open) for count in times):  # an op of the value may repeat it by itself
        return replace(repeated, lacks=f"with {Undecided().message}")
    return replace(repeated, view=walk.view(source).repeated(known(times)))


def cut(walk: Walk, node: Node, source: Source, parts: Mapping[int, slice | int]) -> View | Zeros:
    """A part of each axis that has one here, as Python takes it; a number takes its axis away. Of a part
    without cells only the sizes are known.
    """
    blank = None if isinstance(source, View) else walk.blank.get(source)
    sizes = [*(blank or walk.view(source).sizes or ())]
    parts, opened = {**parts}, dict[int, tuple[Dim, Dim]]()
    for place, part in parts.items():
        if sizes and isinstance(part, slice):
            size = sizes[place_of(place, len(sizes))]
            try:
                parts[place] = _slice(part, size)
            except Undecided:
                if blank is not None:
                    raise
                opened[place] = _open_ends(part, size)
    if opened:
        view = as_large(walk, node, walk.kept(source), opened)
        rest = {place: part for place, part in parts.items() if place not in opened}
        return cut(walk, node, view, rest) if rest else view
    for place, part in parts.items():
        if sizes and isinstance(part, slice) and isinstance(size := sizes[place], int):
            sizes[place] = len(range(size)[part])
    if 0 in sizes:
        return Zeros(tuple(sizes), "that leaves nothing")
    if blank is not None:
        gone = {place_of(place, len(sizes)) for place, part in parts.items() if isinstance(part, int)}
        return Zeros(tuple(size for place, size in enumerate(sizes) if place not in gone))
    return _part(walk, node, source, parts)


def part(walk: Walk, node: Node, source: Source, parts: Mapping[int, slice | int]) -> View:
    """As `cut`, of a value that is not known to be zeros.

    Raises:
        Unsupported: the part has no cells.
    """
    found = cut(walk, node, source, parts)
    if isinstance(found, Zeros):
        raise Unsupported(found.lacks)
    return found


def _part(walk: Walk, node: Node, source: Source, parts: Mapping[int, slice | int]) -> View:
    """As `cut`, of a part that has cells."""
    sizes = walk.view(source).sizes
    around = [place for place, part in parts.items() if sizes and _is_around(part, sizes[place])]
    rest = {place: part for place, part in parts.items() if place not in around}
    found = turned_round(walk, node, source, around) if around else walk.kept(source)
    return _cut(walk, node.name, found, rest) if rest else found


def take(walk: Walk, node: Node, source: Source, index: Sequence[slice | int | None]) -> View | Zeros:
    """A part of the tensor by numpy's index, without ellipses: a number takes an axis away, and None adds one
    of one cell.
    """
    given = [part for part in index if part is not None]
    found = cut(walk, node, source, dict(enumerate(given)))
    added = [
        place
        for place, part in enumerate(part for part in index if not isinstance(part, int))
        if part is None
    ]
    return found.with_axes(added) if isinstance(found, View) and added else found


def _cut(walk: Walk, name: str, view: View, parts: Mapping[int, slice | int]) -> View:
    if view.axes is None:
        raise Unsupported(OF_UNKNOWN_SHAPE)
    aligned = walk.aligned(f"{name}:array", view)
    gone = view.places(place for place, part in parts.items() if isinstance(part, int))
    cells = {
        place: slice(part, part + 1 or None) if isinstance(part, int) else part
        for place, part in parts.items()
    }
    slices = aligned.by_axis(
        {place: part for place, part in cells.items() if not _is_whole(part, view.size(place))}
    )
    value = walk.builder.cut(name, aligned.value, slices)
    if value is None:
        raise Unsupported("that depends on the size, or that turns an axis around")
    found = aligned.held(value)
    return found.without(gone) if gone else found


def _is_whole(part: slice, size: Dim) -> bool:
    """Whether a part of an axis is all of it."""
    stated = (part.start or 0, part.stop, part.step or 1) == (0, None, 1)
    return stated or (not isinstance(size, Open) and range(size)[part] == range(size))


def _is_around(part: slice | int, size: Dim) -> bool:
    """Whether a part of an axis is all of it, from the last cell to the first."""
    if isinstance(part, int):
        return False
    whole = (part.start, part.stop, part.step) == (None, None, -1)
    return whole or (isinstance(size, int) and size > 1 and range(size)[part] == range(size)[::-1])


def _slice(part: slice, size: Dim) -> slice:
    """Of an axis of `size` cells, by known numbers: ends that depend on an open size are counted from its
    end.
    """
    if isinstance(size, int):
        whole = slice(
            *(None if end is None else known([end])[0] for end in (part.start, part.stop, part.step))
        )
        cells = range(size)[whole]
        return slice(cells[0], cells[0] + 1) if len(cells) == 1 < size else whole
    start, stop = (
        None if end is None else end - size if isinstance(end, Open) else end
        for end in (part.start, part.stop)
    )
    (first,) = known([start or 0])
    if first >= 0 and isinstance(part.start, Open):
        raise Undecided
    if isinstance(part.stop, Open) or (stop or 0) >= _LARGEST:
        stop = min(*known([stop or 0]), 0) or None
    return slice(start, stop, part.step)


def _open_ends(part: slice, size: Dim) -> tuple[Dim, Dim]:
    """How many cells less a part of an axis has before and behind it, as numbers of 0 or below.

    Raises:
        Undecided: the input's size may decide that it has others.
    """
    start = 0 if part.start is None else _from_start(part.start, size)
    stop = size if part.stop is None else _from_start(part.stop, size)
    if part.step not in (None, 1) or start < 0:
        raise Undecided
    return -start, min(stop, size) - size


def _from_start(end: Dim, size: Dim) -> Dim:
    """An end of a part of an axis, counted from the first cell. One that may be below 0 as far as its terms
    tell is not: the part has as many cells as another map.
    """
    with suppress(Undecided):
        return end + size if end < 0 else end
    return end


def split_sizes(size: Dim, sizes: Sequence[Dim]) -> list[Dim]:
    """The sizes of the parts of an axis, of which -1 is what is left.

    Raises:
        Unsupported: they are not the axis together.
    """
    stated = [each for each in sizes if isinstance(each, Open) or each >= 0]
    wanted = [each if isinstance(each, Open) or each >= 0 else size - sum(stated) for each in sizes]
    if sum(wanted) != size:
        raise Unsupported(f"of {text([size])} cells into {text(sizes)}")
    return wanted


def gather(walk: Walk, node: Node, source: Source, place: int, places: Sequence[int]) -> View:
    """The cells at these places of an axis: by one slice, or as parts one after the other."""
    view = walk.kept(source)
    size = view.size(place)
    cells = [] if isinstance(size, Open) else [place_of(each, size) for each in places]
    steps = {after - before for before, after in pairwise(cells)}
    if (
        len(steps) == 1
        and (step := min(steps))
        and (step > 0 or (view.value.is_map and walk.views.has_channels(view, place)))
    ):
        end = cells[-1] + step
        return part(walk, node, source, {place: slice(cells[0], end if end >= 0 else None, step)})
    if (shuffled := _shuffled(view, place_of(place, len(view.sizes or ())), cells)) is not None:
        return shuffled
    if not 0 < len(cells) <= MOST_PARTS:
        raise Unsupported(f"of {len(places)} places")
    parts = [part(walk, node, source, {place: slice(each, each + 1)}) for each in cells]
    return _beside(walk, node, parts, place)


def _beside(walk: Walk, node: Node, views: Sequence[View], place: int) -> View:
    """Values of the same axes one after the other along one of them."""
    whole = _by_channels(walk, node, views, place)
    return whole or _joined(walk, node, [walk.as_array(f"{node.name}:array", part) for part in views], place)


def gather_cells(walk: Walk, node: Node, source: Source, index: np.ndarray[Any, np.dtype[np.int64]]) -> View:
    """The cells at places of the first axes, which the last axis of `index` has: rows and columns each by
    axes of their own.
    """
    view = walk.view(source)
    count, outer = index.shape[-1], index.shape[:-1]
    if not 0 < count <= len(view.known_sizes) or not index.size:
        raise Unsupported(f"by places of {count} axes")
    ends = [0]
    for place in range(count):  # each place varies along the axes that follow those of the last one
        numbers = index[..., place]
        varying = [
            axis for axis, size in enumerate(outer) if size > 1 and np.any(numbers != numbers.take([0], axis))
        ]
        if varying and varying[0] < ends[-1]:
            raise Unsupported("of other places than rows by columns")
        ends.append(max((axis + 1 for axis in varying), default=ends[-1]))
    ends[-1] = len(outer)
    order = view.batch_first
    found = view.transposed(order)
    for place in range(count):
        first = tuple(
            slice(None) if ends[place] <= axis < ends[place + 1] else 0 for axis in range(len(outer))
        )
        found = gather(walk, node, found, order.index(place), index[(*first, place)].ravel().tolist())
    turned = found.restored(order)
    return turned.reshaped([*outer, *turned.known_sizes[count:]])


def _shuffled(view: View, place: int, cells: Sequence[int]) -> View | None:
    """All cells of an axis, one of each of so many equal groups at a time; None where they have another
    order.
    """
    sizes, count = view.sizes or (), len(cells)
    each = cells[1] if count > 1 else 0
    if (
        not 1 < each < count
        or count % each
        or [*cells] != [at for first in range(each) for at in range(first, count, each)]
    ):
        return None
    apart = [*sizes[:place], count // each, each, *sizes[place + 1 :]]
    order = [*range(place), place + 1, place, *range(place + 2, len(sizes) + 1)]
    return tried(lambda: view.reshaped(apart).transposed(order).reshaped(sizes))


def concat(walk: Walk, node: Node, sources: Sequence[Source], place: int) -> View | Repeated:
    """Values one after the other along an axis. Zeros before and after them are a pad."""
    if not all(map(walk.is_value, sources)):
        return (
            _with_zeros(walk, node, sources, place)
            or _of_constants(walk, node, sources, place)
            or _with_constants(walk, node, sources, place)
        )
    views = [view for source in sources if (view := walk.kept(source)).axes is not None]
    cells = tried(lambda: [view.without([place]) for view in views])
    stacked = _stacked(walk, node, cells, place) if cells and len(cells) == len(sources) else None
    found = stacked or _by_channels(walk, node, walk.beside(sources), place)
    return found or _joined(walk, node, [*map(walk.array, sources)], place)


def _by_channels(walk: Walk, node: Node, views: Sequence[View], place: int) -> View | None:
    """Maps or features one after the other along an axis that is their channels; None where it is another
    one.
    """
    names = walk.views.alike(views)
    if names is None or names[place : place + 1 or None] != ("channels",):  # an unknown value may have more
        return None
    return walk.views.laid(walk.builder.concat(node.name, *(view.value for view in views)), names)


def _joined(walk: Walk, node: Node, views: Sequence[View], place: int) -> View:
    """Arrays one after the other along an axis."""
    if not views:
        raise Unsupported("of no values")
    if views[0].has_batch(place):
        raise Unsupported("along the batch")
    value = walk.builder.join(node.name, views[0].axis_at(place), *(view.value for view in views))
    return walk.views.led_like(views[0], value)


def _with_zeros(walk: Walk, node: Node, sources: Sequence[Source], place: int) -> View | None:
    """Values with one number everywhere before and after them, mostly zeros; None where other constants are
    among them.
    """
    values = [number for number, source in enumerate(sources) if walk.is_value(source)]
    if not values or any(not walk.is_value(source) for source in sources[values[0] : values[-1] + 1]):
        return None
    ends = sources[: values[0]], sources[values[-1] + 1 :]
    stated = [[each for source in end if (each := walk.filling(source, place)) is not None] for end in ends]
    fills = {number for each in stated for _, number in each}
    if any(len(each) < len(end) for each, end in zip(stated, ends, strict=True)) or len(fills) != 1:
        return None
    inner = sources[values[0] : values[-1] + 1]
    found = concat(walk, node, inner, place) if len(inner) > 1 else walk.kept(inner[0])
    first, last = (sum(known([size for size, _ in each])) for each in stated)
    return _padded(walk, node, walk.given(found), {place: (first, last)}, fills.pop())


def _of_constants(walk: Walk, node: Node, sources: Sequence[Source], place: int) -> Repeated | None:
    """Constants beside each other, of which some are repeated, as one; None where values are among them."""
    found = [None if walk.is_value(source) else _whole(walk, source) for source in sources]
    whole = [each for each in found if each is not None]
    sizes = [walk.repeated[source].sizes for source in sources if source in walk.repeated]
    if len(whole) < len(sources) or not sizes:
        return None
    numbers = np.concatenate(whole, place)
    constant = walk.flow.stated(f"{node.name}:constants", numbers)
    axis = place_of(place, numbers.ndim)
    joined = tuple(numbers.shape[at] if at == axis else size for at, size in enumerate(sizes[0]))
    return Repeated(constant, joined, lacks="of constants")


def _with_constants(walk: Walk, node: Node, sources: Sequence[Source], place: int) -> View:
    """Stored arrays beside values: before an array of tokens they are further ones, others are added to the
    zeros of a pad.
    """
    values = [source for source in sources if walk.is_value(source)]
    view = _joined(walk, node, [*map(walk.array, values)], place)
    of_tokens = walk.is_value(sources[-1]) and view.axis_at(place) == 0
    tokens = _among_tokens(walk, node, sources, place) if of_tokens else None
    if tokens is not None:
        return tokens
    runs = _runs(walk, sources)
    nodes = [node if len(runs) == 1 else within(node, str(number)) for number in range(len(runs))]
    parts = [_with_stored(walk, each, run, place) for each, run in zip(nodes, runs, strict=True)]
    return _joined(walk, node, parts, place) if len(parts) > 1 else parts[0]


def _runs(walk: Walk, sources: Sequence[Source]) -> list[Sequence[Source]]:
    """Sources in runs of constants and the values behind them; the last run has the constants at the end
    too.
    """
    live = [walk.is_value(source) for source in sources]
    starts = [at for at in range(1, len(live)) if live[at - 1] and not live[at] and any(live[at:])]
    ends = [0, *starts, len(sources)]
    return [sources[start:end] for start, end in pairwise(ends)]


def _with_stored(walk: Walk, node: Node, sources: Sequence[Source], place: int) -> View:
    """Stored arrays before and after values, as the zeros of a pad to which they are added."""
    live = [at for at, source in enumerate(sources) if walk.is_value(source)]
    view = _joined(walk, node, [walk.array(sources[at]) for at in live], place)
    stored = [None if at in live else _whole(walk, source) for at, source in enumerate(sources)]
    held = [each for each in stored if each is not None]
    if len(held) + len(live) < len(sources):
        raise Unsupported("with a constant that is computed, or repeated along axes of open size")
    if not held:
        return view
    sizes, shape, rank = [*held[0].shape], view.value.shape or (), len(view.known_axes)
    if None in shape or len(sizes) != rank or sizes[: 1 - walk.views.whole] not in ([], [1]):
        raise Unsupported("with a constant of other axes")
    sizes[place] = view.size(place)
    parts = [*stored[: live[0]], np.zeros(sizes), *stored[live[-1] + 1 :]]
    numbers = np.concatenate([each for each in parts if each is not None], place)
    before = sum(each.shape[place] for each in held[: live[0]])
    after = numbers.shape[place] - before - sizes[place]
    wide = walk.builder.widen(f"{node.name}:pad", view.value, {view.axis_at(place): (before, after)})
    tensor = walk.flow.hold(f"{node.name}:stored", numbers)
    tensor = replace(tensor, shape=numbers.shape[1 - walk.views.whole :])
    return walk.views.led_like(view, with_stored(walk, node.name, "Add", wide, tensor))


def _whole(walk: Walk, source: Source) -> Numbers | None:
    """A constant, also one that is repeated along axes of known size: once, where it is the same for each
    image.
    """
    before = walk.unrepeated(source)
    tensor = walk.weights(before)
    numbers = walk.constant(before) if tensor is None else walk.flow.held(tensor.name)
    if numbers is None:
        return None
    if source in walk.repeated:
        first, *rest = walk.repeated[source].sizes
        sizes = [1 if isinstance(first, Open) else first, *(size for size in rest if isinstance(size, int))]
        if len(sizes) <= len(rest) or not walk.flow.affords(8 * math.prod(sizes)):
            return None
        numbers = np.broadcast_to(numbers, sizes)
    repeats = numbers.ndim > 1 and not walk.views.whole and np.all(numbers == numbers[:1])
    return np.asarray(numbers[:1] if repeats else numbers, np.float64)


def _among_tokens(walk: Walk, node: Node, sources: Sequence[Source], place: int) -> View | None:
    """Arrays of tokens with stored ones, each of which stands before the array that follows it; None where
    one is none.
    """
    parts, stored, only = list[View](), list[Source](), sum(map(walk.is_value, sources)) == 1
    for source in sources:
        if not walk.is_value(source):
            stored.append(source)
            continue
        name = node.name if only else f"{node.name}:{len(parts)}"
        whole = _with_tokens(walk, name, walk.array(source), stored)
        if whole is None:
            return None
        parts.append(whole)
        stored = []
    return parts[0] if only else _joined(walk, node, parts, place)


def _with_tokens(walk: Walk, name: str, view: View, stored: Sequence[Source]) -> View | None:
    value = view.value
    for place, source in enumerate(reversed(stored), 1):
        held = walk.weights(walk.unrepeated(source))
        tensor = held and walk.flow.once(held)
        sizes = tensor.shape if tensor is not None else ()
        fits = len(value.shape or ()) == 2 and sizes[:-2] in ((), (1,)) and sizes[-1:] == (value.channels,)
        if tensor is None or len(sizes) < 2 or not fits:
            return None
        own = name if place == len(stored) else f"{name}:{place}"
        value = walk.builder.add(own, Tokens(sizes[-2]), value, tensors={"value": Stored(tensor.name)})
    return walk.views.led_like(view, value)


def stack(walk: Walk, node: Node, sources: Sequence[Source], place: int) -> View:
    """Values one after the other along a new axis, which has this place; of maps their channels, of which it
    counts the parts.
    """
    views = [walk.kept(source) for source in sources]
    if (stacked := _stacked(walk, node, views, place)) is not None:
        return stacked
    wide = [view.with_axes([place]) for view in views]
    if all(view.value.is_map for view in wide):
        of_one_channel = _by_channels(walk, node, wide, place)
        if of_one_channel is not None:
            return of_one_channel
    whole = [walk.view(source).with_axes([place]) for source in sources]
    order = whole[0].batch_first
    arrays = [walk.as_array(f"{node.name}:array", view.transposed(order)) for view in whole]
    return _joined(walk, node, arrays, order.index(place_of(place, len(order)))).restored(order)


def _stacked(walk: Walk, node: Node, views: Sequence[View], place: int) -> View | None:
    names = walk.views.alike(views)
    if names is None or len({view.value.channels for view in views}) > 1:
        return None
    joined = walk.views.laid(walk.builder.concat(node.name, *(view.value for view in views)), names)
    if joined.sizes is None:
        return None
    sizes, at = [*joined.sizes], names.index("channels")
    sizes[at : at + 1] = [len(views), sizes[at] // len(views)]
    order = [axis for axis in range(len(sizes)) if axis != at]
    order.insert(place_of(place, len(sizes)), at)
    return joined.reshaped(sizes).transposed(order)


def pad(
    walk: Walk, node: Node, source: Source, pairs: Mapping[int, tuple[Dim, Dim]], fill: float = 0.0
) -> View:
    """One number before and after the cells of axes, and of the channels of maps and features zeros. Negative
    pads crop others.
    """
    view, stated, opened = walk.kept(source), dict[int, tuple[int, int]](), dict[int, tuple[Dim, Dim]]()
    for place, (before, after) in pairs.items():
        if isinstance(before, Open) or isinstance(after, Open):
            opened[place] = before, after
        else:
            stated[place] = before, after
    if opened and fill:
        raise Undecided
    return _padded(walk, node, as_large(walk, node, view, opened) if opened else view, stated, fill)


def _padded(walk: Walk, node: Node, view: View, pairs: Mapping[int, tuple[int, int]], fill: float) -> View:
    aligned = walk.aligned(f"{node.name}:array", view)
    ends = aligned.by_axis({place: pair for place, pair in pairs.items() if any(pair)})
    if 0 in ends and not aligned.value.is_array and (fill or min(ends[0]) < 0):
        (before, after), channels = ends[0], aligned.value.channels or MOST_CONSTANTS
        if {*ends} != {0} or min(before, after) < 0 or channels + before + after > MOST_CONSTANTS:
            raise Unsupported(f"of channels with {fill:g}")
        wide = walk.builder.widen(f"{node.name}:zeros", aligned.value, ends)
        numbers = [*[fill] * before, *[0.0] * channels, *[fill] * after]
        return aligned.held(walk.builder.affine(node.name, wide, (1.0,), numbers))
    return aligned.held(walk.builder.widen(node.name, aligned.value, ends, fill))


def extend(walk: Walk, node: Node, source: Source, pairs: Mapping[int, tuple[Dim, Dim]], mode: Mode) -> View:
    """Cells of a map's own before and after its rows and columns."""
    view = walk.kept(source)
    names = walk.views.names(view)
    if names is None:
        raise Unsupported(f"by {mode} of something else than a map")
    pads = {names[place]: known(pair) for place, pair in pairs.items() if any(pair)}
    if not {*pads} <= {"rows", "columns"}:
        raise Unsupported(f"of {'the batch' if 'batch' in pads else 'channels'} by {mode}")
    if not pads:
        return view
    rows, columns = (pads.get(axis, (0, 0)) for axis in AXES[1:])
    value = walk.builder.add(node.name, ExtendMap((*rows, *columns), mode), view.value)
    return walk.views.laid(value, names)


def turned_round(walk: Walk, node: Node, source: Source, places: Collection[int]) -> View:
    """The cells of these axes from the last one to the first."""
    found = walk.kept(source)
    for place in places:
        found = _turned_round(walk, node, found, place)
    return found


def _turned_round(walk: Walk, node: Node, view: View, place: int) -> View:
    """The cells of an axis from the last one to the first: as channels, where it is another one."""
    rank, around = len(view.axes or ()), slice(None, None, -1)
    if not rank or view.has_batch(place) or (view.value.is_map and walk.views.has_channels(view, place)):
        return _cut(walk, node.name, view, {place: around})
    last = place_of(place, rank)
    order = [*(axis for axis in range(rank) if axis != last), last]
    array = walk.as_array(f"{node.name}:last", view.transposed(order))
    if array.value.is_array:
        array = walk.as_cells(f"{node.name}:cells", array)
    value = walk.builder.cut(node.name, array.value, {0: around})
    if value is None:
        raise Unsupported("that depends on the size, or that turns an axis around")
    return walk.views.like(array, value).restored(order)


def quarter_turns(walk: Walk, node: Node, source: Source, places: tuple[int, int], turns: int) -> View:
    """Two axes turned by so many right angles: exchanged, and one of them turned round."""
    view = walk.kept(source)
    rank = len(view.known_axes)
    order, (one, other) = [*range(rank)], (place_of(place, rank) for place in places)
    order[one], order[other] = other, one
    turned = view.transposed(order) if turns % 2 else view
    around = {0: [], 1: [one], 2: [one, other], 3: [other]}[turns % 4]
    return turned_round(walk, node, turned, around)


def roll(walk: Walk, node: Node, source: Source, shifts: Mapping[int, int]) -> View:
    """The cells of axes moved on, those at the end to the start."""
    view = walk.array(source)
    rank, sizes, value = len(view.known_axes), view.known_sizes, view.value
    for place, shift in sorted((place_of(place, rank), shift) for place, shift in shifts.items()):
        axis, size = view.axis_at(place), sizes[place]
        if view.has_batch(place):
            raise Unsupported("of the batch")
        if isinstance(size, Open):
            raise Unsupported("of an axis of open size")
        if not shift % size:
            continue
        first, last = slice(0, size - shift % size), slice(size - shift % size, size)
        parts = [
            walk.builder.cut(f"{node.name}:{name}", value, {axis: part})
            for name, part in (("last", last), ("first", first))
        ]
        whole = [part for part in parts if part is not None]
        if len(whole) < len(parts):
            raise Unsupported("of an axis of open size")
        value = walk.builder.join(node.name, axis, *whole)
    return walk.views.led_like(view, value)


def each_image(walk: Walk, node: Node, source: Source, times: int) -> View:
    """Each image so many times, one copy after the other: a map of one cell has so many rows."""
    array = walk.array(source)
    sizes, shape = array.known_sizes, array.value.shape or ()
    if None in shape or not array.value.is_array or len(shape) != len(sizes) - 1:
        raise Unsupported("of images other than arrays of known size")
    stated = {letter: f"({letter}={size})" for letter, size in zip("abcdefgh", shape, strict=False)}
    pattern = f"{' '.join(stated.values())} -> ({' '.join(stated)}) () ()"
    cell = walk.builder.add(f"{node.name}:cell", Rearrange(pattern, True), array.value)
    rows = walk.builder.add(node.name, Upsample(times, 1), cell)
    laid = walk.views.laid(rows, ("batch", "rows", "columns", "channels"))
    return laid.reshaped([sizes[0] * times, *sizes[1:]])


def windows(walk: Walk, node: Node, source: Source, place: int, size: int, step: int) -> View:
    """Parts of an axis, each so many cells behind the one before it, in the axis's place, and the cells of
    each as the last axis.
    """
    view = walk.view(source)
    cells, at = view.size(place), place_of(place, len(view.axes or ()))
    if isinstance(cells, Open) or not 0 < size <= cells or step < 1:
        raise Unsupported("along an axis of open size, or of fewer cells")
    count = (cells - size) // step + 1
    if size == step:
        whole = part(walk, node, source, {at: slice(0, count * size)}) if cells > count * size else view
        sizes = whole.known_sizes
        apart = whole.reshaped([*sizes[:at], count, size, *sizes[at + 1 :]])
        order = [axis for axis in range(len(sizes) + 1) if axis != at + 1]
        return apart.transposed([*order, at + 1])
    if size > MOST_PARTS:
        raise Unsupported(f"by parts of more than {MOST_PARTS} cells that overlap")
    parts = [
        part(walk, within(node, str(first)), source, {at: slice(first, first + (count - 1) * step + 1, step)})
        for first in range(size)
    ]
    return _beside(walk, node, [each.with_axes([-1]) for each in parts], -1)


def diagonal(walk: Walk, node: Node, source: Source, places: tuple[int, int], offset: int) -> View:
    """The cells of two axes that have the same place in both, or in the second one `offset` cells behind, as
    the last axis: in both axes as one, each lies a row and a cell behind the one before it.
    """
    view = walk.view(source)
    rank = len(view.known_axes)
    last = [place_of(place, rank) for place in places]
    turned = view.transposed([*(axis for axis in range(rank) if axis not in last), *last])
    sizes = turned.known_sizes
    rows, columns = sizes[-2:]
    if isinstance(rows, Open) or isinstance(columns, Open):
        raise Unsupported("of axes of open size")
    first = offset if offset >= 0 else -offset * columns
    count = min(rows + min(offset, 0), columns - max(offset, 0))
    if count < 1:
        raise Unsupported("without cells")
    flat = turned.reshaped([*sizes[:-2], rows * columns])
    cells = slice(first, first + (count - 1) * (columns + 1) + 1, columns + 1)
    return part(walk, node, flat, {rank - 2: cells})


def cells_as_channels(
    walk: Walk, node: Node, source: Source, block: int, channels_first: bool, outer: bool = False
) -> View:
    """The cells of each block of a map as channels, block rows first, before the channels that were there or,
    if these are `outer`, behind.
    """
    view = walk.view(source)
    sizes = view.known_sizes
    if len(sizes) != 4:
        raise Unsupported(f"of {len(sizes)} axes")
    images, *axes = sizes
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


def row(walk: Walk, node: Node, source: Source) -> Value:
    """A tensor of one axis beside batch and channels as a map of one row, for windows over that axis.

    Raises:
        Unsupported: it has other axes.
    """
    view = walk.view(source)
    if len(view.known_axes) == 3:
        value = walk.views.settled(f"{node.name}:row", view.with_axes([_rows(walk)]))
        if value.is_map:
            return value
    raise Unsupported("of one axis, of something else than a row of cells")


def _rows(walk: Walk) -> int:
    return walk.views.layout().index("rows")
