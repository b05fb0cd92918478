"""Adaptive pools as windows that lie one after the other, for frameworks whose layers lack them, and maps of
known sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from porter.base.errors import GraphError
from porter.graph.lowered_parts import Parts
from porter.graph.ops import AdaptivePool, Add, AvgPool, CropMap, MaxPool, Op, PadMap
from porter.padding import LOWEST, Convention, Window

MOST_WINDOWS = 64
"""The most windows of different sizes along an axis, more than a network has: each is some nodes of its own.
"""


def windows(size: int, count: int) -> list[tuple[int, int]]:
    """Return the first cell of each of `count` windows along `size` cells, and the cell behind its last
    one.
    """
    return [(index * size // count, -(-(index + 1) * size // count)) for index in range(count)]


def common_size_and_step(spans: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the size and the step of windows that all have the same; None for others."""
    sizes = {end - start for start, end in spans}
    steps = {after[0] - before[0] for before, after in pairwise(spans)}
    if len(sizes) != 1 or len(steps) > 1 or steps == {0}:
        return None
    return sizes.pop(), steps.pop() if steps else 1


def lower_adaptive_pool(parts: Parts, op: AdaptivePool) -> None:
    """Make an adaptive pool of pools of each window, which are put into their places along the rows, then
    along the columns. Axes whose windows are alike are pooled at once.

    Raises:
        GraphError: a pool has too many windows.
    """
    _, *sizes = parts.shape
    windows_by_axis = [
        windows(size or 0, count) for size, count in zip(sizes, (op.rows, op.columns), strict=True)
    ]
    grids = [common_size_and_step(each) for each in windows_by_axis]
    uneven_axes = [axis for axis, grid in enumerate(grids) if grid is None]
    if any(len(windows_by_axis[axis]) > MOST_WINDOWS for axis in uneven_axes):
        message = f"{op.words} has more than {MOST_WINDOWS} windows that differ in size"
        raise GraphError(message, where=parts.node.path, next="port it to torch")
    # size and step; (1, 1) keeps the cells of an axis whose windows differ
    down, across = (grid or (1, 1) for grid in grids)
    even_pool = _pool(op, Window((down[0], across[0]), (down[1], across[1])))
    if not uneven_axes:
        parts.end(even_pool, parts.source)
        return
    value = parts.add("window", even_pool, parts.source)
    for axis in uneven_axes:
        maps = _pool_along(parts, op, value, axis, windows_by_axis[axis])
        if axis == uneven_axes[-1]:
            parts.end(Add(), *maps)
        else:
            value = parts.add("windows", Add(), *maps)


def _pool_along(
    parts: Parts, op: AdaptivePool, source: str, axis: int, spans: Sequence[tuple[int, int]]
) -> list[str]:
    """Pool each window along one axis, and return it as a map with zeros in the places of the others."""
    placed = []
    size = spans[-1][1]
    for index, (start, end) in enumerate(spans):
        cells = source
        if (start, end) != (0, size):
            cells = parts.add("cells", CropMap(_pads(axis, start, size - end)), source)
        window = Window((end - start, 1) if axis == 0 else (1, end - start))
        pool = parts.add("window", _pool(op, window), cells)
        placed.append(parts.add("placed", PadMap(_pads(axis, index, len(spans) - 1 - index)), pool))
    return placed


def _pool(op: AdaptivePool, window: Window) -> Op:
    """Return the pool of a window by the op's function."""
    if op.function == "max":
        return MaxPool(window, Convention("explicit", fill=LOWEST))
    return AvgPool(window, Convention("explicit", fill=0.0))


def _pads(axis: int, before: int, after: int) -> tuple[int, int, int, int]:
    """Return pads (top, bottom, left, right) around rows (axis 0) or columns (1)."""
    return (before, after, 0, 0) if axis == 0 else (0, 0, before, after)
