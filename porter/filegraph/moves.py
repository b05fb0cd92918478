"""What an op graph does with the axes of its tensors: reshapes, transposes, slices, pads and reductions, for every format.

A reshape or a transpose adds no node: the views follow it, until an op needs the value. Functions take the values that a node reads
as references; axes are places in the tensor as the file has it, from either end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from porter.filegraph import array_products, arrays
from porter.filegraph.builder import Value
from porter.filegraph.dataflow import N, Reference
from porter.filegraph.dims import Dim, Open, Undecided, known, product, ratio, text
from porter.filegraph.layouts import View
from porter.filegraph.places import place_of
from porter.filegraph.walk import Lacks, Read, Repeated, Source, Walk
from porter.graph import Add, ExtendMap, PadChannels, Resize, ResizeLike, Sigmoid, Softmax, Upsample
from porter.graph.ops import AXES, Function, Mode

_MOST_PARTS = 64
"""More than a model adds. Each part is a node of its own, however short the file is."""
_SAME_SCALE = 1e-12
_LARGEST = 2**31 - 1
"""So many cells are all, of any axis: the largest numbers of 32 and of 64 bits stand for its end."""


def reshape(walk: Walk[N], node: N, source: Reference, sizes: Sequence[Dim]) -> Read:
    """The tensor in another shape; -1 is what is left."""
    view = walk.view(source)
    found = view.reshaped(sizes)
    if found is None and walk.views.op(view) is not None:
        found = walk.plain(source).reshaped(sizes)
    if found is None and (array := walk.array(source)) is not None:
        found = array.reshaped(sizes) or _flat(walk, node, array, sizes)
    if found is not None or view.sizes is None:
        return found or Lacks()
    return Lacks(f"a reshape of {text(view.sizes[1:])} to {text(sizes[1:])}")


def _flat(walk: Walk[N], node: N, view: View, sizes: Sequence[Dim]) -> View | None:
    """An array in a shape whose axes do not divide its own: its numbers as features first."""
    whole = view.reshaped([(view.sizes or (1,))[0], -1])
    features = walk.as_array(f"{node.name}:flat", whole) if whole is not None else None
    return features and features.reshaped(sizes)


def flatten(walk: Walk[N], node: N, source: Reference, first: int, last: int = -1) -> Read:
    """The axes from the first to the last as one."""
    sizes = walk.sizes(source)
    if sizes is None:
        return Lacks()
    start, end = (place_of(place, len(sizes)) for place in (first, last))
    return reshape(walk, node, source, [*sizes[:start], product(sizes[start : end + 1]), *sizes[end + 1 :]])


def squeeze(walk: Walk[N], node: N, source: Reference, places: Collection[int] | None = None) -> Read:
    """The tensor without axes of one cell; without all of them if no places are given.

    A file that names rows or columns of unknown size states that they have one cell.
    """
    view = walk.view(source)
    if view.sizes is None:
        return Lacks()
    chosen = view.places(places) if places else {place for place, size in enumerate(view.sizes) if size == 1}
    names, shape = walk.views.names(view), view.value.shape
    if names and shape and None in shape:
        stated = {names[place] for place in chosen}
        whole = tuple(1 if size is None and axis in stated else size for axis, size in zip(AXES, shape, strict=False))
        view = walk.views.laid(replace(view.value, shape=whole), names) or view
    return view.without(chosen) or Lacks()


def unsqueeze(walk: Walk[N], node: N, source: Reference, places: Collection[int]) -> Read:
    """The tensor with axes of one cell, which have these places in it."""
    return walk.view(source).with_axes(places) or Lacks()


def transpose(walk: Walk[N], node: N, source: Reference, order: Sequence[int]) -> Read:
    return walk.view(source).transposed(order) or Lacks()


def repeat(walk: Walk[N], node: N, source: Reference, times: Sequence[Dim]) -> Read:
    """Each axis so many times, one whole copy after the other; of a constant, such as a class token, those of one cell."""
    if not walk.flow.is_value(source):
        return expand(walk, node, source, [size * count for size, count in zip(walk.sizes(source) or (), times, strict=True)])
    return walk.view(source).repeated(known(times)) or Lacks()


def expand(walk: Walk[N], node: N, source: Reference, sizes: Sequence[Dim]) -> Read:
    """The tensor with its axes of one cell repeated to these sizes, which are those of its last axes; -1 and 1 keep an axis. A
    constant may get axes before its own.
    """
    own = walk.sizes(source)
    if own is not None and not walk.flow.is_value(source):
        own = (*[1] * (len(sizes) - len(own)), *own)
    if own is None or len(sizes) > len(own):
        return Lacks()
    wanted = [*own[: len(own) - len(sizes)], *sizes]
    times: list[Dim] = [size if old == 1 and size != -1 else 1 for size, old in zip(wanted, own, strict=True)]
    if any(size not in (-1, 1, old) for size, old in zip(wanted, own, strict=True) if old != 1):
        return Lacks()
    repeated = Repeated(walk.before(source), tuple(size * count for size, count in zip(own, times, strict=True)))
    if not walk.flow.is_value(source):
        return Lacks(f"{node.op} of a constant", repeated=repeated)
    if any(isinstance(count, Open) for count in times):  # an op of the value may repeat it by itself
        return Lacks(f"{node.op} with {Undecided().message}", repeated=repeated)
    view = walk.view(source).repeated(known(times))
    return Lacks(repeated=repeated) if view is None else replace(repeated, view=view)


def cut(walk: Walk[N], node: N, source: Reference, parts: Mapping[int, slice | int]) -> Read:
    """A part of each axis that has one here, as Python takes it; a number takes its axis away. Of a part without cells only the
    sizes are known.
    """
    sizes = [*(walk.view(source).sizes or ())]
    parts = {place: _slice(part, sizes[place]) if sizes and isinstance(part, slice) else part for place, part in parts.items()}
    for place, part in parts.items():
        if sizes and isinstance(part, slice) and isinstance(size := sizes[place], int):
            sizes[place] = len(range(size)[part])
    if 0 in sizes:
        return Lacks(f"{node.op} that leaves nothing", tuple(sizes))
    return _cut(walk, node, node.name, walk.kept(source), parts)


def take(walk: Walk[N], node: N, source: Reference, index: Sequence[slice | int | None]) -> Read:
    """A part of the tensor by numpy's index, without ellipses: a number takes an axis away, and None adds one of one cell."""
    given = [part for part in index if part is not None]
    found = cut(walk, node, source, dict(enumerate(given)))
    added = [place for place, part in enumerate(part for part in index if not isinstance(part, int)) if part is None]
    return found.with_axes(added) or Lacks() if isinstance(found, View) and added else found


def _cut(walk: Walk[N], node: N, name: str, view: View, parts: Mapping[int, slice | int]) -> Read:
    names, sizes = walk.views.names(view), view.sizes
    if sizes is None:
        return Lacks()
    if names is None:
        return arrays.cut(walk, node, name, view, parts)
    gone = view.places(place for place, part in parts.items() if isinstance(part, int))
    slices = {names[place]: slice(part, part + 1 or None) if isinstance(part, int) else part for place, part in parts.items()}
    if not arrays.is_whole(slices.get("batch", slice(None)), sizes[names.index("batch")]):
        return Lacks(f"{node.op} of the batch")
    value = walk.builder.cut(name, view.value, {axis: part for axis, part in slices.items() if axis != "batch"})
    found = walk.views.laid(value, names)
    return (found.without(gone) if found and gone else found) or Lacks()


def _slice(part: slice, size: Dim) -> slice:
    """Of an axis of `size` cells, by known numbers: ends that depend on an open size are counted from its end."""
    if isinstance(size, int):
        return slice(*(None if end is None else known([end])[0] for end in (part.start, part.stop, part.step)))
    start, stop = (None if end is None else end - size if isinstance(end, Open) else end for end in (part.start, part.stop))
    (first,) = known([start or 0])
    if first >= 0 and isinstance(part.start, Open):
        raise Undecided
    if isinstance(part.stop, Open) or (stop or 0) >= _LARGEST:
        stop = min(*known([stop or 0]), 0) or None
    return slice(start, stop, part.step)


def split(walk: Walk[N], node: N, source: Reference, place: int, sizes: Sequence[Dim], keep: bool = True) -> Read | list[Read]:
    """The parts of an axis one after the other; -1 is what is left. Without `keep` they have one cell, and lose the axis."""
    view = walk.kept(source)
    size, stated = view.size(place), known(sizes)
    if isinstance(size, Open):
        return Lacks()
    wanted = [size - sum(each for each in stated if each >= 0) if each < 0 else each for each in stated]
    if sum(wanted) != size:
        return Lacks()
    found: list[Read] = []
    for index, part in enumerate(wanted):
        start = sum(wanted[:index])
        name = f"{node.name}:{index}" if index else node.name
        found.append(_cut(walk, node, name, view, {place: slice(start, start + part) if keep else start}))
    return found


def split_evenly(walk: Walk[N], node: N, source: Reference, place: int, count: int, keep: bool = True) -> Read | list[Read]:
    """As `split`, into `count` parts of one size."""
    sizes = walk.sizes(source)
    size = None if sizes is None else sizes[place]
    if not isinstance(size, int) or not 0 < count <= size:
        return Lacks()
    return split(walk, node, source, place, [size // count] * count, keep)


def concat(walk: Walk[N], node: N, sources: Sequence[Reference], place: int) -> Read:
    """Values one after the other along an axis. Zeros before and after them are a pad."""
    if not all(map(walk.is_value, sources)):
        return _with_zeros(walk, node, sources, place) or arrays.concat(walk, node, sources, place)
    views = [view for source in sources if (view := walk.kept(source)).axes is not None]
    cells = [cell for view in views if (cell := view.without([place])) is not None]
    stacked = _stacked(walk, node, cells, place) if len(cells) == len(sources) else None
    if stacked is not None:
        return stacked
    found = walk.alike(sources)
    if found is None or found[1][place] != "channels":
        return arrays.concat(walk, node, sources, place)
    values, names = found
    return walk.views.laid(walk.builder.concat(node.name, *values), names) or Lacks()


def _with_zeros(walk: Walk[N], node: N, sources: Sequence[Reference], place: int) -> Read | None:
    """Values with stored zeros before and after them; None where other constants are among them."""
    values = [number for number, source in enumerate(sources) if walk.is_value(source)]
    if not values or any(not walk.is_value(source) for source in sources[values[0] : values[-1] + 1]):
        return None
    counts = [None if walk.is_value(source) else walk.zeros(source, place) for source in sources]
    before, after = counts[: values[0]], counts[values[-1] + 1 :]
    stated = [[count for count in each if count is not None] for each in (before, after)]
    if len(stated[0]) + len(stated[1]) < len(before) + len(after):
        return None
    inner = sources[values[0] : values[-1] + 1]
    found = concat(walk, node, inner, place) if len(inner) > 1 else walk.kept(inner[0])
    first, last = (sum(known(each)) for each in stated)
    return _padded(walk, node, found, {place: (first, last)}, 0.0) if isinstance(found, View) else None


def stack(walk: Walk[N], node: N, sources: Sequence[Reference], place: int) -> Read:
    """Values one after the other along a new axis, which has this place; of maps their channels, of which it counts the parts."""
    views = [walk.kept(source) for source in sources]
    return _stacked(walk, node, views, place) or _of_channels(walk, node, views, place) or arrays.stack(walk, node, sources, place)


def _of_channels(walk: Walk[N], node: N, views: Sequence[View], place: int) -> View | None:
    """Maps of one channel, which their tensors have no axis for, as the channels of one map; None for other values."""
    wide = [whole for view in views if (whole := view.with_axes([place])) is not None]
    names = walk.views.alike(wide) if all(view.value.is_map for view in wide) else None
    if names is None or names[place] != "channels":
        return None
    return walk.views.laid(walk.builder.concat(node.name, *(view.value for view in wide)), names)


def _stacked(walk: Walk[N], node: N, views: Sequence[View], place: int) -> View | None:
    names = walk.views.alike(views)
    if names is None or len({view.value.channels for view in views}) > 1:
        return None
    joined = walk.views.laid(walk.builder.concat(node.name, *(view.value for view in views)), names)
    if joined is None or joined.sizes is None:
        return None
    sizes, at = [*joined.sizes], names.index("channels")
    sizes[at : at + 1] = [len(views), sizes[at] // len(views)]
    order = [axis for axis in range(len(sizes)) if axis != at]
    order.insert(place_of(place, len(sizes)), at)
    split = joined.reshaped(sizes)
    return split and split.transposed(order)


def _parts(walk: Walk[N], node: N, view: View, place: int) -> Sequence[View]:
    """The parts of the channels that an axis counts, without that axis; none if it counts something else."""
    count, channels = walk.views.groups(view, place) if view.axes is not None else None, view.value.channels
    if count is None or channels is None or count in (1, channels) or count > _MOST_PARTS:
        return ()
    gone, size = view.places([place]), channels // count
    left = replace(view, axes=tuple(axis for other, axis in enumerate(view.axes or ()) if other not in gone))
    slices = [{AXES[0]: slice(start, start + size)} for start in range(0, channels, size)]
    return [walk.views.like(left, walk.builder.cut(f"{node.name}:part", view.value, each)) for each in slices]


def total(walk: Walk[N], node: N, source: Source, places: Collection[int], keep: bool) -> Read:
    """The sum over an axis that counts parts of the channels, such as that of a stack."""
    parts = _parts(walk, node, walk.kept(source), *places) if len(places) == 1 else ()
    array = None if parts else walk.array(source)
    if array is not None:
        return array_products.total(walk, node, array, places, keep)
    if not parts:
        return Lacks(f"{node.op} over other axes than one of parts of the channels")
    found = walk.views.like(parts[0], walk.builder.add(node.name, Add(), *(part.value for part in parts)))
    return found.with_axes(places) or Lacks() if keep else found


def pad(walk: Walk[N], node: N, source: Reference, pairs: Mapping[int, tuple[int, int]], fill: float = 0.0) -> Read:
    """One number before and after the cells of axes: of rows and columns, and zeros of channels. Negative pads crop a map."""
    return _padded(walk, node, walk.kept(source), pairs, fill)


def _padded(walk: Walk[N], node: N, view: View, pairs: Mapping[int, tuple[int, int]], fill: float) -> Read:
    names = walk.views.names(view)
    if names is None:
        array = walk.as_array(f"{node.name}:array", view)
        return Lacks() if array is None else arrays.pad(walk, node, array, pairs, fill)
    pads = {names[place]: pair for place, pair in pairs.items() if any(pair)}
    channels, rows, columns = (pads.get(axis, (0, 0)) for axis in AXES)
    if "batch" in pads:
        return Lacks(f"{node.op} of the batch")
    if any(channels) and (fill or min(channels) < 0):
        return Lacks(f"{node.op} of channels with {fill:g}")
    value = view.value
    if any((*rows, *columns)):
        value = walk.builder.pad(f"{node.name}:map" if any(channels) else node.name, value, (*rows, *columns), fill)
    if any(channels):
        value = walk.builder.add(node.name, PadChannels(*channels), value)
    return walk.views.laid(value, names) or Lacks()


def extend(walk: Walk[N], node: N, source: Reference, pairs: Mapping[int, tuple[int, int]], mode: Mode) -> Read:
    """Cells of a map's own before and after its rows and columns."""
    view = walk.kept(source)
    names = walk.views.names(view)
    if names is None:
        return Lacks()
    pads = {names[place]: pair for place, pair in pairs.items() if any(pair)}
    if not {*pads} <= {"rows", "columns"}:
        return Lacks(f"{node.op} of {'the batch' if 'batch' in pads else 'channels'} by {mode}")
    rows, columns = (pads.get(axis, (0, 0)) for axis in AXES[1:])
    if not pads:
        return view
    return walk.views.laid(walk.builder.add(node.name, ExtendMap((*rows, *columns), mode), view.value), names) or Lacks()


def turned_round(walk: Walk[N], node: N, source: Reference, places: Collection[int]) -> Read:
    """The cells of these axes from the last one to the first."""
    return cut(walk, node, source, dict.fromkeys(places, slice(None, None, -1))) if places else walk.view(source)


def cells_as_channels(walk: Walk[N], source: Reference, block: int, channels_first: bool, outer: bool = False) -> Read:
    """The cells of each block of a map as channels, block rows first, before the channels that were there or, if these are `outer`,
    behind.
    """
    view = walk.view(source)
    sizes = view.sizes or ()
    if len(sizes) != 4:
        return Lacks()
    images, *axes = sizes
    channels, rows, columns = axes if channels_first else (axes[2], *axes[:2])
    parts: list[Dim] = [rows // block, block, columns // block, block]
    apart = view.reshaped([images, channels, *parts] if channels_first else [images, *parts, channels])
    if channels_first:
        order = (0, 1, 3, 5, 2, 4) if outer else (0, 3, 5, 1, 2, 4)
    else:
        order = (0, 1, 3, 5, 2, 4) if outer else (0, 1, 3, 2, 4, 5)
    turned = apart and apart.transposed(order)
    ends: list[Dim] = [rows // block, columns // block]
    whole = channels * block**2
    return (turned and turned.reshaped([images, whole, *ends] if channels_first else [images, *ends, whole])) or Lacks()


def reduce(walk: Walk[N], node: N, source: Source, function: Function, places: Collection[int], keep: bool) -> Read:
    """The mean, the largest value or the norm over axes of a map, which stay with one cell if `keep`."""
    view = walk.kept(source)
    names = walk.views.names(view)
    if names is None or not view.value.is_map:
        own = walk.view(source)
        order = arrays.batch_first(own)
        turned = own.transposed(order)
        name, tap = (own.value.node, None) if isinstance(source, View) else (source[0], walk.tap(source))
        array = None if turned is None else walk.as_array(name, turned, tap if order[0] == 0 else None)
        gone = {place_of(place, len(order)) for place in places}
        inner = [order.index(place) for place in gone]
        found = Lacks() if array is None else array_products.reduce(walk, node, array, function, inner, keep)
        left = [place for place in order if keep or place not in gone]
        return found.transposed([left.index(place) for place in sorted(left)]) or Lacks() if isinstance(found, View) else found
    gone = {place_of(place, len(names)) for place in places}
    axes = {names[place] for place in gone}
    if "batch" in axes:
        return Lacks(f"{node.op} over the batch")
    cells_only = axes == {"rows", "columns"}
    value = walk.builder.reduce(node.name, view.value, function, [axis for axis in AXES if axis in axes], keep or not cells_only)
    if cells_only and not keep:
        return walk.views.laid(value, tuple(name for name in names if name not in axes)) or Lacks()
    whole = walk.views.laid(value, names)
    return (whole if keep or whole is None else whole.without(gone)) or Lacks()


def softmax(walk: Walk[N], node: N, source: Reference, place: int) -> Read:
    """A softmax over the channels, or over two parts of them, which is a sigmoid of what they differ by."""
    view = walk.kept(source)
    parts = _parts(walk, node, view, place)
    if len(parts) == 2:
        apart = walk.builder.subtract(f"{node.name}:difference", *(part.value for part in parts))
        both = apart, walk.builder.affine(f"{node.name}:opposite", apart, (-1.0,), (0.0,))
        shares = [walk.builder.add(f"{node.name}:share", Sigmoid(), value) for value in both]
        return walk.views.like(view, walk.builder.concat(node.name, *shares))
    if parts or not walk.views.has_channels(view, place):
        return array_products.softmax(walk, node, source, [place])
    return walk.views.like(view, walk.builder.add(node.name, Softmax(), view.value))


def resize(walk: Walk[N], node: N, source: Reference, op: Resize, scales: Mapping[int, float], sizes: Mapping[int, Dim]) -> Read:
    """A map with other cells, by scales or at sizes of its axes. `op` says how they are computed, and has none of these."""
    view = walk.kept(source)
    if view.value.is_array and len(view.axes or ()) == 4:
        view = walk.views.of(walk.value(source))
    names = walk.views.names(view)
    if names is None or view.sizes is None or not view.value.is_map:
        return Lacks()
    old = dict(zip(names, view.sizes, strict=True))
    wanted = {names[place]: size for place, size in sizes.items() if size != view.sizes[place]}
    by = {names[place]: scale for place, scale in scales.items() if scale != 1}
    if other := {*wanted, *by} - {"rows", "columns"}:
        return Lacks(f"{node.op} of {'channels' if 'channels' in other else 'the batch'}")
    if not wanted and not by:
        return view
    rows, columns = (_target(old[axis], wanted.get(axis), by.get(axis, 1.0)) for axis in AXES[1:])
    if op.mode == "nearest" and _repeats(op, (rows.scale, columns.scale)):
        found = walk.builder.add(node.name, Upsample(int(rows.scale or 1), int(columns.scale or 1)), view.value)
    elif rows.scale and columns.scale:
        found = walk.builder.add(node.name, replace(op, scale=(rows.scale, columns.scale)), view.value)
    elif rows.size and columns.size:
        found = walk.builder.add(node.name, replace(op, size=(rows.size, columns.size)), view.value)
    else:
        given = tuple(wanted.get(axis, old[axis]) for axis in AXES[1:])
        like = next((each.value for each in walk.found.values() if each.value.is_map and _cells(walk, each.value) == given), None)
        if like is None:
            return Lacks(f"{node.op} to a size that depends on the input's")
        if op.mode == "nearest":
            return Lacks(f"{node.op} (nearest) to the size of another value, which float32 may round otherwise")
        found = walk.builder.add(node.name, ResizeLike(op.mode, op.coordinates, op.a, op.inside), view.value, like)
    return walk.views.laid(found, names) or Lacks()


def _cells(walk: Walk[N], value: Value) -> tuple[Dim, ...]:
    """The rows and columns of a map."""
    sizes = dict(zip(walk.views.layout(), walk.views.of(value).sizes or (), strict=False))
    return tuple(sizes.get(axis, 0) for axis in AXES[1:])


class _Target(NamedTuple):
    """What an axis becomes: by a scale, at a size, or both where they say the same."""

    scale: float | None
    size: int | None


def _target(old: Dim, wanted: Dim | None, scale: float) -> _Target:
    if wanted is None:
        new = None if isinstance(old, Open) else math.floor(old * scale)
        # A scale that is no float32 is one in no ONNX file; at a known size it may say the same as that.
        same = not isinstance(old, Open) and new is not None and abs(new / old - scale) < scale * _SAME_SCALE
        return _Target(scale if not same or float(np.float32(scale)) == scale else None, new if same else None)
    times = ratio(wanted, old)
    return _Target(None if times is None else float(times), None if isinstance(wanted, Open) else wanted)


def _repeats(op: Resize, scales: tuple[float | None, float | None]) -> bool:
    """Whether the nearest cells are every cell equally often. A half is never reached, because a half pixel of a whole factor is
    none.
    """
    if any(not scale or scale != int(scale) for scale in scales):
        return False
    if op.coordinates == "half_pixel":
        return op.rounding.startswith("round")
    down = op.rounding == "floor" or (op.rounding == "round_prefer_floor" and max(scale or 1 for scale in scales) <= 2)
    return op.coordinates == "asymmetric" and down
