"""The input sizes at which a port is proved."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
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
from porter.graph.memory_bounds import count_values
from porter.graph.ops import Rearrange, SpaceToDepth
from porter.graph.plan import Plan
from porter.padding import ANY, KnownSize
from porter.verification.memory import expect_memory
from porter.verification.references.reference import Reference

LEAST_SIDE = 32
"""No image is smaller, unless the native size is: on a few pixels, a mistake in what has no window would not
show, such as one channel's slope.
"""
LARGEST_SIDE = 256
"""No image is larger than the native size for the sake of its maps: what a network with a small native size
does at larger ones is shown, and one for large images is not compared on larger ones.
"""
_MOST_BEYOND = 1 << 25
"""So many numbers the values of one such image have at most, a quarter of a GiB: ResNet-50's at 224x224 are
about as many.
"""
_LEAST_CELLS = 3
_MAP_AXES = 3
"""Channels, rows and columns."""

_REMAINDERS = 3
"""How many remainders of its map's length, after whole strides, a window meets; or as many as its stride has.
"""
_LEAST_RESIZED = 6
"""The least map in which cells are computed: one cell is the same by every rule, and a cubic one reads four
and its edge.
"""
_MOST_PARTS = 16
"""The largest denominator of a scale that counts as a fraction of cells."""


@dataclass(frozen=True)
class Sizes:
    """Rows and columns to compare at: in float64, node by node, and in every other type."""

    exact: tuple[KnownSize, ...]
    rounded: tuple[KnownSize, ...]

    def of(self, dtype: Dtype) -> tuple[KnownSize, ...]:
        """Return the sizes for one number type."""
        return self.exact if dtype == "float64" else self.rounded


def sizes_to_compare(
    plan: Plan, native: KnownSize, source: Reference, built: KnownSize | None, dtypes: Sequence[Dtype]
) -> Sizes | None:
    """Return the sizes to compare a port at; None if the source can run none of them.

    A port that takes one size only is compared at it. Any other is compared in float64 at `small_sizes`, and
    in other types at the native size; in float64 at that as well if it is as small, because a channel can be
    dead at every size near the one that the network is for. If float64 is not among `dtypes`, the other types
    are compared at the native size and at `small_sizes`. Only sizes that the source can run are used; if it
    can run none of them, the size that it was `built` for.

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
    beyond = [size for size in small if math.prod(size) > math.prod(native)]
    if not all(
        count_values(plan.graph, size) <= _MOST_BEYOND and _runs(source, plan.graph, size)
        for size in beyond[:1]
    ):
        small = tuple(size for size in small_sizes(plan.graph, native, native) if source.takes(size))
    native_is_larger = math.prod(native) > max(map(math.prod, small), default=math.inf)
    # The native size is compared in float64 only where it costs no more.
    exact = small if native_is_larger else tuple(dict.fromkeys((*small, native)))
    larger = native[0] + 1, native[1] + 2
    if {*exact} == {native} and takes_size(plan.graph, larger) and source.takes(larger):
        # Where the port's graph fixes the size of a map, the source may compute it from that of the image.
        exact += (larger,) if _runs(source, plan.graph, larger) else ()
    return Sizes(exact, (native,) if "float64" in dtypes else tuple(dict.fromkeys((native, *exact))))


def _expect_every_size(graph: Graph, native: KnownSize, source: Reference) -> None:
    """Expect that the graph takes each size beyond the native one that the source takes: the first side that
    it refuses is tried on the source.

    Raises:
        CheckFailed: the source takes it.
    """
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
    """Return the first side beyond the native one, within a whole period of strides, that a graph does not
    take; None if it takes all.
    """
    # at most 64 sides are tried
    period = min(_period(graph, axis), 64)
    return next(
        (side for side in range(native, native + period) if _map_lengths(graph, axis, side) is None), None
    )


def _runs(source: Reference, graph: Graph, size: KnownSize) -> bool:
    """Try the source at a size, and return whether it runs."""
    try:
        source.run(np.zeros((1, graph.channels, *size)), "float32", graph.outputs)
    except Exception:  # whatever a framework raises for maps that do not fit
        return False
    return True


def small_sizes(
    graph: Graph, native: KnownSize, largest: KnownSize = (LARGEST_SIDE, LARGEST_SIDE)
) -> tuple[KnownSize, ...]:
    """Return the smallest sizes that show each wrong pad that the native size shows, and those that other
    maps under each stride show.

    The pads that a window reads depend on the map's length only through its remainder after whole strides
    (porter.padding). So two sides that differ by a multiple of all strides of the network together are
    equally good: every map has the same remainder. The windows at the beginning of a map, those at its end
    and those between must be different: no map may be shorter than a window and its stride. If one is at the
    native size, the sizes are larger than that, unless the graph takes none up to `largest` at which every
    map is long enough; then none may be shorter than at the native size. An image has at least `LEAST_SIDE`
    cells a side, or the native size's.

    Two conventions can give the same pads for one remainder, for example `same` and (0,1) on even maps. So
    along rows and along columns each window with a stride meets two remainders, and with a stride above two
    three, if the graph takes such sizes. The pads of rows do not depend on columns, so one size has the
    native remainders along its rows, and another along its columns.

    One size at least has other rows than columns if the graph takes such: on a square, what is turned stays
    in its place.

    For ResNet-50 v2 and MobileNet v2 at 224x224 they are 128x97 and 97x128, for Keras's MobileNet v1 128x157
    and 157x128, for Inception v3 at 299x299 171x202 and 202x171.
    """
    rows, columns = (
        _telling_sides(graph, axis, _side_of_whole_windows(graph, axis, native[axis], largest[axis]))
        for axis in (0, 1)
    )
    count = max(len(rows), len(columns)) if rows and columns else 0
    # the next of the columns: a size with the native remainders along its rows has others along its columns
    pairs = [(rows[index % len(rows)], columns[(index + 1) % len(columns)]) for index in range(count)]
    if pairs and _mixes_axes(graph):
        # What follows depends on how many cells there are together, and its rows on the image's columns.
        row_count, column_count = pairs[0]
        pairs += [
            (column_count, column_count),
            (row_count + 1, column_count),
            (row_count + 1, column_count + 1),
        ]
    small = tuple(size for size in dict.fromkeys(pairs) if takes_size(graph, size))
    if any(row_count != column_count for row_count, column_count in small):
        return small
    # All are squares: a period more of columns leaves every remainder as it is.
    oblong = ((row_count, column_count + _period(graph, 1)) for row_count, column_count in small)
    return tuple(filter(partial(takes_size, graph), oblong)) or small


def least_general_size(graph: Graph, sizes: Sequence[KnownSize]) -> KnownSize | None:
    """Return the rows and columns from which on each node has the pads that it has at some of these input
    sizes (porter.padding); None if these do not show that.

    They show it if at those of them at which no map is too short to show what is done with it, each window
    with a stride meets, along rows and along columns, every remainder of its map's length after whole
    strides, and if nothing else depends on how long a map is.
    """
    if any(isinstance(node.op, AdaptivePool | AsLarge | ResizeLike | SpaceToDepth) for node in graph.nodes):
        return None
    if _mixes_axes(graph):
        return None
    if any(isinstance(node.op, Resize) and not _repeats_cells(node.op) for node in graph.nodes):
        return None
    whole = [size for size in sizes if all(_has_whole_windows(graph, axis, size[axis]) for axis in (0, 1))]
    for axis in (0, 1):
        if len({size[axis] for size in whole}) < 2:  # of one length alone, nothing is known of others
            return None
        known = [_map_lengths(graph, axis, size[axis]) or {} for size in whole]
        for node in graph.nodes:
            stride = _stride(node.op, axis)
            met = {maps[node.source] % stride for maps in known if node.source in maps}
            if stride > 1 and len(met) < stride:
                return None
    rows, columns = zip(*whole, strict=True)
    return min(rows), min(columns)


def _mixes_axes(graph: Graph) -> bool:
    """Return whether a graph of any size turns rows and columns, or joins them as a transformer's tokens are,
    so that a map's own rows or columns do not tell all that is done along an axis.
    """
    known = shapes(graph, ANY)
    for node in graph.nodes:
        shape = known[node.path]
        if None in shape and len(shape) != _MAP_AXES:
            return True
        if isinstance(node.op, Rearrange) and None in shape:
            split, joined = node.op.moves.split, node.op.moves.joined
            stay = len(split) == _MAP_AXES and all(
                len(split[axis]) == 1 and joined[axis] == (split[axis][0][0],) for axis in (1, 2)
            )
            if not stay:
                return True
    return False


def _repeats_cells(op: Resize) -> bool:
    """Return whether a resize makes a whole number of cells of each cell, as one by 2 does and one by 3/2
    does not.
    """
    return bool(op.scale) and all(float(scale).is_integer() for scale in op.scale)


def takes_size(graph: Graph, size: KnownSize) -> bool:
    """Return whether a graph takes rows and columns together. That it takes each of them alone is not enough
    where axes are mixed: the cells of one row may be added to as many channels.
    """
    try:
        shapes(graph, size)
    except GraphError:
        return False
    return True


def _side_of_whole_windows(graph: Graph, axis: int, native: int, largest: int) -> int:
    """Return the native side, or where a map there is too short to show all that is done with it, as one of 2
    rows that a window of 5 reads, the next larger side at which none is, with the same remainders at every
    window. Return the native side, too, if no side up to the `largest` is such.
    """
    same_remainders = range(native, max(native, largest) + 1, _period(graph, axis))
    # Longer sides have longer maps, so the first that suffices is found by halving.
    first = bisect_left(same_remainders, True, key=partial(_has_whole_windows, graph, axis))
    return native if first == len(same_remainders) else same_remainders[first]


def _has_whole_windows(graph: Graph, axis: int, side: int) -> bool:
    """Return whether no map is too short along an axis, for an input of `side` cells, to show all that is
    done with it: by a window, whose beginning, middle and end on the map then differ.
    """
    maps = _map_lengths(graph, axis, side)
    wanted = _telling_lengths(graph, axis)
    # On one row, a value that is moved by a row stays where it was.
    wanted[INPUT] = max(_LEAST_CELLS, wanted.get(INPUT, 0))
    return maps is not None and all(maps[path] >= wanted[path] for path in maps.keys() & wanted.keys())


def _telling_sides(graph: Graph, axis: int, native: int) -> list[int]:
    """Return the shortest side with the remainders of the native one (of each map's length after whole
    strides), then sides with other ones, each time the side that adds most; [] if no side will do.

    Args:
        axis: 0 for rows, 1 for columns.
        native: the side at the native size.
    """
    period = _period(graph, axis)
    least = _least_lengths(graph, axis, native)
    # by path of each op that takes several cells at a time, the map that it reads and its stride
    strided = {
        node.path: (node.source, stride) for node in graph.nodes if (stride := _stride(node.op, axis)) > 1
    }
    # by path of each op that pads or crops a map to another one's size, that map
    fitted = {node.path: node.source for node in graph.nodes if isinstance(node.op, AsLarge)}

    @cache
    def lengths_at(side: int) -> dict[str, int] | None:
        return _map_lengths(graph, axis, side)

    def remainders(side: int) -> dict[str, int]:
        """Return the remainder, by the path of each op with a stride, of its map's length after whole
        strides; and for each op that pads or crops a map to another one's size, the number of those cells.
        """
        lengths = lengths_at(side) or {}
        left_by_strides = {
            path: lengths[source] % stride for path, (source, stride) in strided.items() if source in lengths
        }
        padded_or_cropped = {
            path: lengths[path] - lengths[source]
            for path, source in fitted.items()
            if {path, source} <= lengths.keys()
        }
        return left_by_strides | padded_or_cropped

    def suffices(side: int) -> bool:
        """Return whether no map is shorter than it has to be."""
        lengths = lengths_at(side)
        return lengths is not None and all(lengths[path] >= length for path, length in least.items())

    # the sides up to the native one that differ from it by whole periods
    same_remainders = range(native % period or period, native + 1, period)
    # Longer sides have longer maps, so the first that suffices is found by halving.
    first = bisect_left(same_remainders, True, key=suffices)
    if first == len(same_remainders):
        return []
    first_side = same_remainders[first]
    # The sides of one period from the shortest on have all remainders. It is less than a period before the
    # first one; a graph with blocks does not take every side between.
    shortest = next(side for side in range(max(1, first_side - period + 1), first_side + 1) if suffices(side))
    met = {
        side: remainders(side)
        for side in range(shortest, min(shortest + period, 2 * native))
        if suffices(side)
    }
    return [first_side, *_sides_that_add(remainders(first_side), met)]


def _sides_that_add(first: Mapping[str, int], met: Mapping[int, Mapping[str, int]]) -> Iterator[int]:
    """Yield sides at which ops meet remainders that they have not met yet, each time the side that adds most.

    Args:
        first: by the path of each op, the remainder that it has met.
        met: by side, the remainders likewise.
    """
    known = {path: {remainder} for path, remainder in first.items()}

    def count_new(side: int) -> int:
        """Count the ops that meet a remainder at a side that they have not met yet and still need."""
        return sum(
            remainder not in known[path] and len(known[path]) < _REMAINDERS
            for path, remainder in met[side].items()
        )

    while met and count_new(best := max(met, key=count_new)):
        yield best
        for path, remainder in met[best].items():
            known[path].add(remainder)


def _period(graph: Graph, axis: int) -> int:
    """Return by how many cells two sides of an image differ whose maps have the same remainders after whole
    strides and blocks: the least common multiple, over the ways through a network, of the product of a way's.
    For ResNet-50 it is 32.
    """
    reduced = dict.fromkeys(graph.inputs, 1)
    for node in graph.nodes:
        reduced[node.path] = math.lcm(*(reduced[path] for path in node.inputs)) * _cells_at_once(
            node.op, axis
        )
    return math.lcm(*reduced.values())


def _cells_at_once(op: Op, axis: int) -> int:
    """Return the stride of an op, or the cells that it makes channels of, along an axis."""
    return op.block if isinstance(op, SpaceToDepth) else _stride(op, axis)


def _stride(op: Op, axis: int) -> int:
    """Return how many cells an op takes at a time along an axis; 1 for an op without a window. A resize by
    3/2 takes two: where one cell is left, its scale and the ratio of the sizes differ, so that it shows which
    of them is used.
    """
    if isinstance(op, Resize) and op.scale:
        parts = Fraction(op.scale[axis]).limit_denominator(_MOST_PARTS)
        # A scale that is no such fraction leaves part of a cell at every length.
        return parts.denominator if math.isclose(parts, op.scale[axis], rel_tol=1e-6) else 1
    site = site_of(op)
    return site.window.stride[axis] if site else 1


def _least_lengths(graph: Graph, axis: int, native: int) -> dict[str, int]:
    """Return by path the least length of the input, and of each map that a window reads or that is cropped,
    extended or resized: no longer than at the native size.
    """
    maps = _map_lengths(graph, axis, native) or {}
    wanted = _telling_lengths(graph, axis)
    wanted[INPUT] = max(LEAST_SIDE, wanted.get(INPUT, 0))
    return {
        path: min(length, maps.get(path, native)) for path, length in wanted.items() if path in {INPUT, *maps}
    }


def _telling_lengths(graph: Graph, axis: int) -> dict[str, int]:
    """Return by path the length from which on a map shows all that is done with it: by a window, a crop, an
    extension or a resize. A map that a 3x3 convolution of stride 2 reads needs 3 + 2 cells.
    """
    lengths = dict[str, int]()
    for node in graph.nodes:
        site = site_of(node.op)  # the op's window with its pads
        wanted = 0
        if site is not None:
            wanted = site.window.extent(axis) + site.window.stride[axis]
        elif isinstance(node.op, CropMap | ExtendMap):
            before, after = node.op.pads[2 * axis : 2 * axis + 2]
            wanted = before + after + 2
        elif isinstance(node.op, Resize | ResizeLike):
            wanted = _LEAST_RESIZED
        elif isinstance(node.op, AdaptivePool):
            wanted = (node.op.rows, node.op.columns)[axis] + 1
        lengths[node.source] = max(lengths.get(node.source, 0), wanted)
    return lengths


def _map_lengths(graph: Graph, axis: int, side: int) -> dict[str, int] | None:
    """Return the length of every map along an axis for an input of `side` cells; None if the graph does not
    take that size.
    """
    try:
        known = shapes(graph, (side, None) if axis == 0 else (None, side))
    except GraphError:
        return None
    # The rows of a map that was turned are as many as the columns, which are not known.
    return {
        path: length
        for path, shape in known.items()
        if len(shape) == _MAP_AXES and (length := shape[1 + axis]) is not None
    }
