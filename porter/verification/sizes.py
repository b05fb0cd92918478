"""The input sizes at which a port is proved."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from porter.dtypes import Dtype
from porter.errors import GraphError
from porter.graph import INPUT, Graph, shapes, site_of
from porter.plan import Plan
from porter.verification.source import Source

Pair = tuple[int, int]
ODD = (1, -23)
"""Added to the native rows and columns for the second size: an even size becomes odd, and a square oblong."""


@dataclass(frozen=True)
class Sizes:
    """Rows and columns to compare at: in float64, node by node, and in every other type."""

    exact: tuple[Pair, ...]
    rounded: tuple[Pair, ...]

    def of(self, dtype: Dtype) -> tuple[Pair, ...]:
        """The sizes for one number type."""
        return self.exact if dtype == "float64" else self.rounded


def check_sizes(plan: Plan, native: Pair, source: Source, built: Pair | None) -> Sizes | None:
    """The sizes for a port: the only size that it takes; otherwise `small_sizes` in float64 and the native size in other types.

    Only sizes that the source can run are used; if it can run none of them, the size that it was `built` for. None if there is no
    such size.
    """
    if plan.size is not None:
        return Sizes((plan.size,), (plan.size,)) if source.takes(plan.size) else None
    if not source.takes(native):
        return None if built is None else Sizes((built,), (built,))
    exact = tuple(size for size in small_sizes(plan.graph, native) if source.takes(size))
    return Sizes(exact or (native,), (native,))


def small_sizes(graph: Graph, native: Pair) -> tuple[Pair, ...]:
    """The two smallest sizes that show every wrong pad that the native size and an odd, oblong size show.

    The pads that a window reads depend on the map's length only through its remainder after whole strides (porter.windows). So two
    sizes that differ by a multiple of all strides of the network together are equally good: every map has the same remainder. The
    windows at the beginning of a map, those at its end and those between must be different: no map may be shorter than a window and
    its stride, or, if the map at the native size is shorter, than that map.

    For ResNet-50 v2 and MobileNet v2 at 224x224 they are 128x128 and 97x105, for Inception v3 at 299x299 they are 171x171 and
    172x180.
    """
    sides = [
        [_smallest(graph, axis, start, native[axis]) for axis, start in enumerate(first)]
        for first in (native, (native[0] + ODD[0], native[1] + ODD[1]))
    ]
    return tuple(dict.fromkeys((rows, columns) for rows, columns in sides if rows is not None and columns is not None))


def _smallest(graph: Graph, axis: int, start: int, native: int) -> int | None:
    """The shortest side that differs from `start` by whole strides and is long enough; None if no side is."""
    period, least = _strides(graph, axis), _least(graph, axis, native)

    def suffices(side: int) -> bool:
        maps = _maps(graph, axis, side)
        return maps is not None and all(maps[path] >= length for path, length in least.items())

    sides = range(start % period or period, max(start, native) + 2 * period, period)
    found = bisect_left(sides, True, key=suffices)
    return sides[found] if found < len(sides) else None


def _strides(graph: Graph, axis: int) -> int:
    """The least common multiple, over the ways through a network, of the product of a way's strides."""
    reduced = {INPUT: 1}
    for node in graph.nodes:
        site = site_of(node.op)
        reduced[node.path] = math.lcm(*(reduced[path] for path in node.inputs)) * (site.window.stride[axis] if site else 1)
    return math.lcm(*reduced.values())


def _least(graph: Graph, axis: int, native: int) -> dict[str, int]:
    """By path, the least length of each map that a window reads."""
    maps, least = _maps(graph, axis, native) or {}, dict[str, int]()
    for node in graph.nodes:
        site, path = site_of(node.op), node.inputs[0]
        if site is not None and path in maps:
            wanted = site.window.extent(axis) + site.window.stride[axis]
            least[path] = max(least.get(path, 0), min(wanted, maps[path]))
    return least


def _maps(graph: Graph, axis: int, side: int) -> dict[str, int] | None:
    """The length of every map along an axis for an input of `side` cells; None if the graph does not take that size."""
    try:
        known = shapes(graph, (side, None) if axis == 0 else (None, side))
    except GraphError:
        return None
    return {path: shape[1 + axis] or 0 for path, shape in known.items() if len(shape) == 3}
