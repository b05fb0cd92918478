"""The input sizes at which a port is proved."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial

import numpy as np

from porter.base.dtypes import Dtype
from porter.base.errors import CheckFailed, GraphError
from porter.graph import (
    INPUT,
    AdaptivePool,
    AsLarge,
    CropMap,
    ExtendMap,
    Graph,
    Op,
    Resize,
    ResizeLike,
    shapes,
    site_of,
)
from porter.graph.plan import Plan
from porter.verification.memory import expect_memory
from porter.verification.references import SourceValues

Pair = tuple[int, int]

LEAST_SIDE = 32
"""No image is smaller, unless the native size is: on a few pixels, a mistake in what has no window would not
show, such as one channel's slope.
"""


_REMAINDERS = 3
"""How many remainders of its map's length, after whole strides, a window meets; or as many as its stride has.
"""
_RESIZED = 6
"""The least map in which cells are computed: one cell is the same by every rule, and a cubic one reads four
and its edge.
"""
_MOST_PARTS = 16


@dataclass(frozen=True)
class Sizes:
    """Rows and columns to compare at: in float64, node by node, and in every other type."""

    exact: tuple[Pair, ...]
    rounded: tuple[Pair, ...]

    def of(self, dtype: Dtype) -> tuple[Pair, ...]:
        """The sizes for one number type."""
        return self.exact if dtype == "float64" else self.rounded


def check_sizes(
    plan: Plan, native: Pair, source: SourceValues, built: Pair | None, dtypes: Sequence[Dtype]
) -> Sizes | None:
    """The sizes for a port: the only size that it takes; otherwise `small_sizes` in float64 and the native
    size in other types, and in float64 as well if it is as small: a channel can be dead at every size near
    the one that the network is for.

    If float64 is not among `dtypes`, the other types are compared at the native size and at `small_sizes`.
    Only sizes that the source can run are used; if it can run none of them, the size that it was `built` for.
    None if there is no such size.

    Raises:
        CheckFailed: the port's graph does not take a size that the source takes: a wrong pad can make it so.
            Or the machine has not enough memory for the comparison.
    """
    expect_memory(plan.graph, plan.only_size or native)
    if plan.only_size is not None:
        return Sizes((plan.only_size,), (plan.only_size,)) if source.takes(plan.only_size) else None
    if not source.takes(native):
        return None if built is None else Sizes((built,), (built,))
    _expect_every_size(plan.graph, native, source)
    small = tuple(size for size in small_sizes(plan.graph, native) if source.takes(size))
    exact = (
        small
        if math.prod(native) > max(map(math.prod, small), default=math.inf)
        else tuple(dict.fromkeys((*small, native)))
    )
    larger = native[0] + 1, native[1] + 2
    if {*exact} == {native} and _takes(plan.graph, larger) and source.takes(larger):
        # Where the port's graph fixes the size of a map, the source may compute it from that of the image.
        exact += (larger,) if _runs(source, plan.graph, larger) else ()
    return Sizes(exact, (native,) if "float64" in dtypes else tuple(dict.fromkeys((native, *exact))))


def _expect_every_size(graph: Graph, native: Pair, source: SourceValues) -> None:
    """Expects that the graph takes each size beyond the native one that the source takes."""
    for axis in (0, 1):
        side = _refused_side(graph, axis, native[axis])
        if side is None:
            continue
        size = (side, native[1]) if axis == 0 else (native[0], side)
        if source.takes(size) and _runs(source, graph, size):
            try:
                shapes(graph, size)
            except GraphError as error:
                message = (
                    f"the port does not take {size[0]}x{size[1]}, which {source.name} takes: {error.message}"
                )
                raise CheckFailed(message, where=error.where) from None


def _refused_side(graph: Graph, axis: int, native: int) -> int | None:
    """The first side beyond the native one, within a whole period of strides, that a graph does not take."""
    period = min(_strides(graph, axis), 64)
    return next((side for side in range(native, native + period) if _maps(graph, axis, side) is None), None)


def _runs(source: SourceValues, graph: Graph, size: Pair) -> bool:
    """Whether the source runs at a size, which is tried."""
    try:
        source.run(np.zeros((1, graph.channels, *size)), "float32", graph.outputs)
    except Exception:  # whatever a framework raises for maps that do not fit
        return False
    return True


def small_sizes(graph: Graph, native: Pair) -> tuple[Pair, ...]:
    """The smallest sizes that show each wrong pad that the native size shows, and those that other maps under
    each stride show.

    The pads that a window reads depend on the map's length only through its remainder after whole strides
    (porter.padding). So two sides that differ by a multiple of all strides of the network together are
    equally good: every map has the same remainder. The windows at the beginning of a map, those at its end
    and those between must be different: no map may be shorter than a window and its stride, or, if the map at
    the native size is shorter, than that map. An image has at least `LEAST_SIDE` cells a side.

    Two conventions can give the same pads for one remainder, for example `same` and (0,1) on even maps. So
    along rows and along columns each window with a stride meets two remainders, and with a stride above two
    three, if the graph takes such sizes. The pads of rows do not depend on columns, so one size has the
    native remainders along its rows, and another along its columns.

    One size at least has other rows than columns if the graph takes such: on a square, what is turned stays
    in its place.

    For ResNet-50 v2 and MobileNet v2 at 224x224 they are 128x97 and 97x128, for Keras's MobileNet v1 128x157
    and 157x128, for Inception v3 at 299x299 171x202 and 202x171.
    """
    rows, columns = (_sides(graph, axis, _grown(graph, axis, native[axis])) for axis in (0, 1))
    count = max(len(rows), len(columns))
    pairs = (
        ((rows[at % len(rows)], columns[(at + 1) % len(columns)]) for at in range(count))
        if rows and columns
        else ()
    )
    small = tuple(size for size in dict.fromkeys(pairs) if _takes(graph, size))
    if any(down != across for down, across in small):
        return small
    oblong = ((down, across + _strides(graph, 1)) for down, across in small)
    return tuple(filter(partial(_takes, graph), oblong)) or small


def meet_every_remainder(graph: Graph, sizes: Sequence[Pair]) -> bool:
    """Whether each window with a stride meets, along rows and along columns of these input sizes, every
    remainder of its map's length after whole strides, no map is too short to show what is done with it, and
    nothing else depends on how long a map is. The pads of each node are then those of every larger size
    (porter.padding).
    """
    if any(len({size[axis] for size in sizes}) < 2 for axis in (0, 1)):
        return False
    if any(isinstance(node.op, AdaptivePool | AsLarge | ResizeLike) for node in graph.nodes):
        return False
    if any(isinstance(node.op, Resize) and not _is_whole(node.op) for node in graph.nodes):
        return False
    for axis in (0, 1):
        known = [_maps(graph, axis, size[axis]) or {} for size in sizes]
        wanted = _telling_lengths(graph, axis)
        if any(maps[path] < wanted[path] for maps in known for path in maps.keys() & wanted.keys()):
            return False
        for node in graph.nodes:
            stride = _stride(node.op, axis)
            met = {maps[node.source] % stride for maps in known if node.source in maps}
            if stride > 1 and len(met) < stride:
                return False
    return True


def _is_whole(op: Resize) -> bool:
    """Whether a resize makes so many cells of each."""
    return bool(op.scale) and all(float(scale).is_integer() for scale in op.scale)


def _takes(graph: Graph, size: Pair) -> bool:
    """Whether a graph takes rows and columns together: cells in one row may be added to as many channels."""
    try:
        shapes(graph, size)
    except GraphError:
        return False
    return True


def _grown(graph: Graph, axis: int, native: int) -> int:
    """The native side, or a larger one with its remainders where it has less than three cells: on one row, a
    value that is moved by a row is where it was.
    """
    period = _strides(graph, axis)
    grown = native + period * max(0, -(-(3 - native) // period))
    return native if _maps(graph, axis, grown) is None else grown


def _sides(graph: Graph, axis: int, native: int) -> list[int]:
    """The shortest side with the remainders of the native one, then sides with other ones: each time the side
    that adds most.
    """
    period = _strides(graph, axis)
    least = _least(graph, axis, native)
    strided = {
        node.path: (node.source, stride) for node in graph.nodes if (stride := _stride(node.op, axis)) > 1
    }
    fitted = {node.path: node.source for node in graph.nodes if isinstance(node.op, AsLarge)}

    @cache
    def maps_of(side: int) -> dict[str, int] | None:
        return _maps(graph, axis, side)

    def remainders(side: int) -> dict[str, int]:
        """The remainder, by the path of each op with a stride, of its map's length after whole strides; of
        each that pads or crops a map to another one's size, how many cells that is.
        """
        maps = maps_of(side) or {}
        by_path = {
            path: maps[source] % stride for path, (source, stride) in strided.items() if source in maps
        }
        return by_path | {path: maps[path] - maps[source] for path, source in fitted.items() if path in maps}

    def suffices(side: int) -> bool:
        maps = maps_of(side)
        return maps is not None and all(maps[path] >= length for path, length in least.items())

    alike = range(native % period or period, native + 1, period)
    first = bisect_left(alike, True, key=suffices)
    if first == len(alike):
        return []
    shortest = bisect_left(range(native), True, key=suffices)
    met = {
        side: remainders(side)
        for side in range(shortest, min(shortest + period, 2 * native))
        if suffices(side)
    }
    sides, seen = [alike[first]], {path: {rest} for path, rest in remainders(alike[first]).items()}

    def added(side: int) -> int:
        return sum(
            rest not in seen[path] and len(seen[path]) < _REMAINDERS for path, rest in met[side].items()
        )

    while met and added(best := max(met, key=added)):
        sides.append(best)
        for path, rest in met[best].items():
            seen[path].add(rest)
    return sides


def _strides(graph: Graph, axis: int) -> int:
    """The least common multiple, over the ways through a network, of the product of a way's strides."""
    reduced = dict.fromkeys(graph.inputs, 1)
    for node in graph.nodes:
        reduced[node.path] = math.lcm(*(reduced[path] for path in node.inputs)) * _stride(node.op, axis)
    return math.lcm(*reduced.values())


def _stride(op: Op, axis: int) -> int:
    """So many cells an op takes at a time. A resize by 3/2 takes two: a half cell that is left tells its
    scale from the sizes'.
    """
    if isinstance(op, Resize) and op.scale:
        parts = Fraction(op.scale[axis]).limit_denominator(_MOST_PARTS)
        # Another one always leaves some.
        return parts.denominator if math.isclose(parts, op.scale[axis], rel_tol=1e-6) else 1
    site = site_of(op)
    return site.window.stride[axis] if site else 1


def _least(graph: Graph, axis: int, native: int) -> dict[str, int]:
    """The least length, by path, of the input, and of each map that a window reads or that is cropped,
    extended or resized: no longer than at the native size.
    """
    maps = _maps(graph, axis, native) or {}
    wanted = _telling_lengths(graph, axis)
    wanted[INPUT] = max(LEAST_SIDE, wanted.get(INPUT, 0))
    return {
        path: min(length, maps.get(path, native)) for path, length in wanted.items() if path in {INPUT, *maps}
    }


def _telling_lengths(graph: Graph, axis: int) -> dict[str, int]:
    """The length, by path, from which on a map shows all that is done with it: by a window, a crop, an
    extension or a resize.
    """
    lengths = dict[str, int]()
    for node in graph.nodes:
        site, wanted = site_of(node.op), 0
        if site is not None:
            wanted = site.window.extent(axis) + site.window.stride[axis]
        elif isinstance(node.op, CropMap | ExtendMap):
            wanted = sum(node.op.pads[2 * axis : 2 * axis + 2]) + 2
        elif isinstance(node.op, Resize | ResizeLike):
            wanted = _RESIZED
        elif isinstance(node.op, AdaptivePool):
            wanted = (node.op.rows, node.op.columns)[axis] + 1
        lengths[node.source] = max(lengths.get(node.source, 0), wanted)
    return lengths


def _maps(graph: Graph, axis: int, side: int) -> dict[str, int] | None:
    """The length of every map along an axis for an input of `side` cells; None if the graph does not take
    that size.
    """
    try:
        known = shapes(graph, (side, None) if axis == 0 else (None, side))
    except GraphError:
        return None
    return {path: shape[1 + axis] or 0 for path, shape in known.items() if len(shape) == 3}
