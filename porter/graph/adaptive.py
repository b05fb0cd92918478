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
    """Return where each of the `count` windows of an adaptive pool lies along `size` cells: its first cell,
    rounded down, and the cell behind its last one, rounded up. 2 windows over 5 cells are (0, 3) and (2, 5).
    """
    return [(index * size // count, -(-(index + 1) * size // count)) for index in range(count)]


def common_size_and_step(spans: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the size and the step of windows that all have the same; None for others. A single window has a
    step of 1.

    Args:
        spans: the first cell of each window, and the cell behind its last one.
    """
    sizes = {end - start for start, end in spans}
    steps = {next_start - start for (start, _), (next_start, _) in pairwise(spans)}
    if len(sizes) != 1 or len(steps) > 1 or steps == {0}:
        return None
    return sizes.pop(), steps.pop() if steps else 1


def lower_adaptive_pool(parts: Parts, op: AdaptivePool) -> None:
    """Make an adaptive pool of other ops, and add them to `parts`. Along an axis whose windows have one size
    and one step, that is one pool. Along another axis each window is a pool, and their results are put into
    their places by pads of zeros, and added.

    Raises:
        GraphError: there are too many windows along such an axis.
    """
    _, *sizes = parts.shape
    windows_by_axis = [
        windows(size or 0, count) for size, count in zip(sizes, (op.rows, op.columns), strict=True)
    ]
    grids = [common_size_and_step(spans) for spans in windows_by_axis]
    uneven_axes = [axis for axis, grid in enumerate(grids) if grid is None]
    if any(len(windows_by_axis[axis]) > MOST_WINDOWS for axis in uneven_axes):
        message = f"{op.words} has more than {MOST_WINDOWS} windows that differ in size"
        raise GraphError(message, where=parts.node.path, next="port it to torch")
    # a size and a step of 1 keep the cells of an axis whose windows differ
    (size_down, step_down), (size_across, step_across) = (grid or (1, 1) for grid in grids)
    even_pool = _pool(op, Window((size_down, size_across), (step_down, step_across)))
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
    """Add a pool for each window along one axis, and return the paths of their results: each is a map with
    its number in the window's place, and zeros in the places of the others.

    Args:
        source: the path of the value that is pooled.
        spans: the first cell of each window, and the cell behind its last one.
    """
    placed = []
    _, size = spans[-1]
    for index, (start, end) in enumerate(spans):
        cells = source
        if (start, end) != (0, size):
            cells = parts.add("cells", CropMap(_pads(axis, start, size - end)), source)
        window = Window((end - start, 1) if axis == 0 else (1, end - start))
        pool = parts.add("window", _pool(op, window), cells)
        places_behind = len(spans) - 1 - index
        placed.append(parts.add("placed", PadMap(_pads(axis, index, places_behind)), pool))
    return placed


def _pool(op: AdaptivePool, window: Window) -> Op:
    """Return the op that takes the maximum, or the mean, of each such window, as an adaptive pool does."""
    if op.function == "max":
        return MaxPool(window, Convention("explicit", fill=LOWEST))
    return AvgPool(window, Convention("explicit", fill=0.0))


def _pads(axis: int, before: int, after: int) -> tuple[int, int, int, int]:
    """Return pads (top, bottom, left, right) around rows (axis 0) or columns (1)."""
    return (before, after, 0, 0) if axis == 0 else (0, 0, before, after)
