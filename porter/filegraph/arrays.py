"""What an op graph does with values that are neither maps nor features: tokens, heads, boxes. See porter.graph.ops.arrays.

It is where the readers of moves and arithmetic go when no op of maps and features says what a file does. Each tensor becomes an
array of its own axes first. Where an axis begins with the batch, what follows in it, such as windows, is an axis of its own before
the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from porter.filegraph.builder import Value
from porter.filegraph.dataflow import N, Reference, Tensor
from porter.filegraph.dims import Dim, Open
from porter.filegraph.file_graph import Stored
from porter.filegraph.layouts import View, unrepeated
from porter.filegraph.places import Items, place_of
from porter.filegraph.walk import Lacks, Read, Source, Walk
from porter.graph import (
    AddArray,
    CropAxis,
    Join,
    Merge,
    MultiplyArray,
    Op,
    PadAxis,
    PadChannels,
    Rearrange,
    Tokens,
    Upsample,
)
from porter.graph.ops import AXES


def place_in(view: View, place: int) -> int:
    """The axis of the array at a place of its tensor, which is none of the batch."""
    axes = view.axes or ()
    return place_of(place, len(axes)) - 1 + (len(view.value.shape or ()) - len(axes) + 1)


def has_batch(view: View, place: int) -> bool:
    return any(piece.axis == "N" for piece in Items(view.axes or ())[place])


def concat(walk: Walk[N], node: N, sources: Sequence[Reference], place: int) -> Read:
    """Arrays one after the other along an axis; a stored one before an array of tokens gives it further tokens."""
    values = [source for source in sources if walk.is_value(source)]
    views = [walk.array(source) for source in values]
    if any(view is None for view in views) or not views:
        return Lacks(f"{node.op} of values whose batch is moved")
    found = [view for view in views if view is not None]
    axis = place_in(found[0], place)
    if has_batch(found[0], place):
        return Lacks(f"{node.op} along the batch")
    if len(values) < len(sources):
        tokens = None if len(found) > 1 or axis or sources[-1] not in values else _with_tokens(walk, node, found[0], sources[:-1])
        return tokens or _with_stored(walk, node, found, sources, place) or Lacks(f"{node.op} with a constant")
    return joined(walk, node, found, axis)


def _with_stored(walk: Walk[N], node: N, views: Sequence[View], sources: Sequence[Reference], place: int) -> View | None:
    """Stored arrays before and after values, as the zeros of a pad to which they are added."""
    live = [at for at, source in enumerate(sources) if walk.is_value(source)]
    stored = [None if at in live else walk.flow.value(source) for at, source in enumerate(sources)]
    held = [each for each in stored if each is not None]
    view = joined(walk, node, views, place_in(views[0], place))
    sizes, shape = [*held[0].shape] if held else [], [*(view.value.shape or ())]
    fits = len(held) + len(live) == len(sources) and live == [*range(live[0], live[-1] + 1)] and len(sizes) == len(view.axes or ())
    if not fits or None in shape or sizes[: 1 - walk.views.whole] not in ([], [1]):
        return None
    sizes[place] = view.size(place)
    parts = [*stored[: live[0]], np.zeros(sizes), *stored[live[-1] + 1 :]]
    numbers = np.concatenate([each for each in parts if each is not None], place)
    before = sum(each.shape[place] for each in held[: live[0]])
    after = numbers.shape[place] - before - sizes[place]
    op = PadAxis(place_in(view, place), before, after) if view.value.is_array else PadChannels(before, after)
    wide = walk.builder.add(f"{node.name}:pad", op, view.value)
    tensor = walk.flow.hold(f"{node.name}:stored", numbers)
    value = with_stored(walk, node.name, "Add", wide, replace(tensor, shape=numbers.shape[1 - walk.views.whole :]))
    return like(walk, view, value) if value is not None else None


def stack(walk: Walk[N], node: N, sources: Sequence[Reference], place: int) -> Read:
    """Arrays one after the other along a new axis, which has this place."""
    wide = [view for source in sources if (view := walk.view(source).with_axes([place])) is not None and view.axes]
    order = batch_first(wide[0]) if wide else []
    turned = [view.transposed(order) for view in wide]
    found = [array for view in turned if view and (array := walk.as_array(f"{node.name}:array", view)) is not None]
    if len(found) < len(sources):
        return Lacks(f"{node.op} along the batch, or of values whose batch is moved")
    whole = joined(walk, node, found, place_in(found[0], order.index(place_of(place, len(order)))))
    return whole.transposed([order.index(axis) for axis in range(len(order))]) or Lacks()


def batch_first(view: View) -> list[int]:
    """The places of the axes, that of the batch first."""
    rank = len(view.axes or ())
    batch = next((place for place in range(rank) if has_batch(view, place)), 0)
    return [batch, *(place for place in range(rank) if place != batch)]


def joined(walk: Walk[N], node: N, views: Sequence[View], axis: int) -> View:
    if len(views) == 1:
        return views[0]
    return like(walk, views[0], walk.builder.add(node.name, Join(axis), *(view.value for view in views)))


def _with_tokens(walk: Walk[N], node: N, view: View, stored: Sequence[Reference]) -> Read:
    value = view.value
    for place, source in enumerate(reversed(stored), 1):
        tensor = walk.flow.weights(walk.unrepeated(source))
        sizes = tensor.shape if tensor is not None else ()
        fits = len(value.shape or ()) == 2 and sizes[:-2] in ((), (1,)) and sizes[-1:] == (value.channels,)
        if tensor is None or len(sizes) < 2 or not fits:
            return Lacks(f"{node.op} with a constant")
        name = node.name if place == len(stored) else f"{node.name}:{place}"
        value = walk.builder.add(name, Tokens(sizes[-2]), value, tensors={"value": Stored(tensor.name)})
    return like(walk, view, value)


def cut(walk: Walk[N], node: N, name: str, whole: View, parts: Mapping[int, slice | int]) -> Read:
    """As porter.filegraph.moves.cut, of an array; the batch may be another axis than the first."""
    order = batch_first(whole)
    parts = {place_of(place, len(order)): part for place, part in parts.items()}
    if order and order[0]:
        turned = whole.transposed(order)
        found = cut(walk, node, name, turned, {order.index(place): part for place, part in parts.items()}) if turned else Lacks()
        left = [place for place in order if not isinstance(parts.get(place), int)]
        return found.transposed([left.index(place) for place in sorted(left)]) or Lacks() if isinstance(found, View) else found
    view = walk.as_array(f"{name}:array", whole)
    *others, part = (parts.get(place, slice(None)) for place in range(len(order)))
    if view is not None and not view.value.is_array and all(map(is_whole, others, whole.sizes or ())) and isinstance(part, slice):
        return walk.builder.cut(name, view.value, {AXES[0]: part})  # of features
    return _cut(walk, node, name, view, parts) if view is not None else Lacks()


def _cut(walk: Walk[N], node: N, name: str, view: View, parts: Mapping[int, slice | int]) -> Read:
    found, links, gone = view, list[Op](), []
    for place, part in sorted(parts.items()):
        size = view.size(place)
        cells = slice(part, part + 1 or None) if isinstance(part, int) else part
        if isinstance(part, int):
            gone.append(place)
        if is_whole(cells, size):
            continue
        if has_batch(view, place):
            return Lacks(f"{node.op} of the batch")
        ends = _ends(cells, size)
        if ends is None:
            return Lacks(f"{node.op} that depends on the size, or that turns an axis around")
        links.append(CropAxis(place_in(view, place), *ends))
    if links:
        found = like(walk, view, walk.builder.chain(name, view.value, links))
    return found.without(gone) or Lacks() if gone else found


def is_whole(part: slice | int, size: Dim) -> bool:
    """Whether a part of an axis is all of it."""
    if isinstance(part, int) or (part.start or 0, part.stop, part.step or 1) == (0, None, 1):
        return not isinstance(part, int)
    return not isinstance(size, Open) and range(size)[part] == range(size)


def _ends(cells: slice, size: Dim) -> tuple[int, int, int] | None:
    """Cells that are left out before and after, and the step; None where they depend on a size that is open."""
    if not isinstance(size, Open):
        start, stop, step = cells.indices(size)
        return None if step < 1 else (start, max(size - stop, 0), step)
    start, stop, step = cells.start or 0, cells.stop, cells.step or 1
    return None if start < 0 or step < 1 or (stop is not None and stop >= 0) else (start, -(stop or 0), step)


def roll(walk: Walk[N], node: N, source: Reference, shifts: Mapping[int, int]) -> Read:
    """The cells of axes moved on, those at the end to the start."""
    view = walk.array(source)
    if view is None or view.axes is None or view.sizes is None:
        return Lacks()
    value = view.value
    for place, shift in sorted((place_of(place, len(view.axes)), shift) for place, shift in shifts.items()):
        axis, size = place_in(view, place), view.sizes[place]
        if has_batch(view, place):
            return Lacks(f"{node.op} of the batch")
        if isinstance(size, Open):
            return Lacks(f"{node.op} of an axis of open size")
        if not shift % size:
            continue
        last = walk.builder.add(f"{node.name}:last", CropAxis(axis, size - shift % size, 0), value)
        first = walk.builder.add(f"{node.name}:first", CropAxis(axis, 0, shift % size), value)
        value = walk.builder.add(node.name, Join(axis), last, first)
    return like(walk, view, value)


def row(walk: Walk[N], node: N, source: Reference) -> Value | None:
    """A tensor N×C×L as a map of one row, for windows over one axis."""
    wide = walk.view(source).with_axes([2]) if len(walk.view(source).axes or ()) == 3 else None
    value = walk.views.settled(f"{node.name}:row", wide) if wide is not None else None
    return value if value is not None and value.is_map else None


def of_row(walk: Walk[N], value: Value) -> View | None:
    """The tensor N×C×L that such a map is."""
    return walk.views.of(value).without([2])


def each_image(walk: Walk[N], node: N, source: Reference, times: int) -> Read:
    """Each image so many times, one copy after the other: a map of one cell has so many rows."""
    array = walk.array(source)
    sizes, shape = (array.sizes, array.value.shape) if array is not None else (None, None)
    if sizes is None or shape is None or None in shape or array is None or not array.value.is_array or len(shape) != len(sizes) - 1:
        return Lacks(f"{node.op} of images that are no arrays of known size")
    stated = {letter: f"({letter}={size})" for letter, size in zip("abcdefgh", shape, strict=False)}
    pattern = f"{' '.join(stated.values())} -> ({' '.join(stated)}) () ()"
    cell = walk.builder.add(f"{node.name}:cell", Rearrange(pattern, True), array.value)
    rows = walk.views.of(walk.builder.add(node.name, Upsample(times, 1), cell))
    turned = rows.transposed((0, 2, 3, 1) if walk.views.builder.order == "CHW" else (0, 1, 2, 3))
    return (turned and turned.reshaped([sizes[0] * times, *sizes[1:]])) or Lacks()


def as_cells(walk: Walk[N], name: str, view: View) -> View | None:
    """An array as a map that has its channels, and its other axes as rows."""
    sizes = view.sizes
    if sizes is None or view.axes is None or not walk.views.has_channels(view, -1) or not view.value.is_array:
        return None
    letters = "abcdefgh"[: len(view.value.shape or ())]
    stated = [*(view.value.shape or ())]
    if None in stated[1:-1]:
        return None
    before = " ".join([letters[0], *letters[1:]])
    pattern = f"{before} -> {letters[-1]} ({' '.join(letters[:-1])}) ()"
    cells = walk.builder.add(name, Rearrange(pattern, True), view.value)
    order = (0, 2, 3, 1) if walk.views.builder.order == "CHW" else (0, 1, 2, 3)
    whole = walk.views.of(cells).transposed([axis - 1 for axis in order[1:]] if walk.views.whole else order)
    return whole and whole.reshaped(sizes)


def pad(walk: Walk[N], node: N, view: View, pairs: Mapping[int, tuple[int, int]], fill: float) -> Read:
    """Cells of a number before and after those of axes; negative amounts cut some off."""
    rank, links = len(view.axes or ()), list[Op]()
    for place, (before, after) in sorted((place_of(place, rank), pair) for place, pair in pairs.items() if any(pair)):
        axis = place_in(view, place)
        if has_batch(view, place):
            return Lacks(f"{node.op} of the batch")
        if min(before, after) < 0:
            links.append(CropAxis(axis, max(-before, 0), max(-after, 0)))
        if max(before, after) > 0:
            links.append(PadAxis(axis, max(before, 0), max(after, 0), fill))
    return like(walk, view, walk.builder.chain(node.name, view.value, links))


def merge(walk: Walk[N], node: N, op: Merge | None, sources: Sequence[Source]) -> Read:
    """A sum or the like of arrays, of which some may have fewer axes or axes of one cell; without an op, a difference."""
    whole = [walk.view(source) for source in sources]
    rank = max(len(view.axes or ()) for view in whole)
    wide = [view.with_axes(range(1, 1 + rank - len(view.axes))) if view.axes else None for view in whole]
    once = unrepeated([view for view in wide if view is not None])
    views = [walk.as_array(f"{node.name}:{place}", view) for place, view in enumerate(once)] if len(once) == len(wide) else []
    found = [view for view in views if view is not None]
    if len(found) < len(sources) or len({len(view.value.shape or ()) for view in found}) > 1:
        return Lacks(f"{node.op} of values of different axes")
    values = [view.value for view in found]
    value = walk.builder.add(node.name, op, *values) if op is not None else walk.builder.subtract(node.name, *values)
    return walk.views.led(value, len(value.shape or ()) - rank + 1)


def with_array(walk: Walk[N], name: str, kind: str, value: Value, other: Reference) -> Value | None:
    """A value, whose axes are its tensor's, and a stored array; None where it does not fit. A map is in the file's own layout."""
    tensor, numbers = walk.flow.weights(other), walk.flow.value(other)
    if tensor is None and numbers is not None:
        tensor = walk.flow.hold(f"{name}:stored", numbers)
    shape = walk.flow.shape(other)
    if tensor is not None and tensor.name in walk.flow.evaluated:
        shape = tensor.shape
    if tensor is None or shape is None or kind not in ("Add", "Sub", "Mul", "Div"):
        return None
    return with_stored(walk, name, kind, value, Tensor(tensor.name, shape))


def with_stored(walk: Walk[N], name: str, kind: str, value: Value, tensor: Tensor) -> Value | None:
    """As `with_array`, of an array by its name, whose axes of one cell may be more or less than its own."""
    rank, shape, stored = len(value.shape or ()), tensor.shape, tensor.name
    sizes = (*[1] * (rank - len(shape)), *shape)
    if len(sizes) > rank and set(sizes[: len(sizes) - rank]) == {1}:
        sizes = sizes[len(sizes) - rank :]
    if len(sizes) != rank:
        return None
    if kind in ("Sub", "Div"):
        array = walk.flow.constants.array(stored) if stored not in walk.flow.evaluated else walk.flow.evaluated[stored]
        wide = np.asarray(array, np.float64)
        with np.errstate(divide="ignore"):
            inverse = -wide if kind == "Sub" else 1 / wide
        if not np.isfinite(inverse).all():
            return None
        stored = walk.flow.hold(f"{name}:array", inverse).name
    axes = ""
    if value.is_map and walk.builder.order == "HWC":
        axes = "".join(axis for axis, size in zip("HWI", sizes, strict=True) if size != 1)
        sizes = (sizes[2], *sizes[:2])
    op = AddArray(sizes) if kind in ("Add", "Sub") else MultiplyArray(sizes)
    return walk.builder.add(name, op, value, tensors={"value": Stored(stored, axes)})


def like(walk: Walk[N], view: View, value: Value) -> View:
    """An array of the same axes as another one, as its tensor holds it."""
    return walk.views.led(value, len(view.value.shape or ()) - len(view.axes or ()) + 1)
