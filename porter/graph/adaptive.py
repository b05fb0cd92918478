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
    """The first cell of each of `count` windows along `size` cells, and the cell behind its last one."""
    return [(index * size // count, -(-(index + 1) * size // count)) for index in range(count)]


def alike(found: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The size and the step of windows that have the same; None for others."""
    sizes = {end - start for start, end in found}
    steps = {after[0] - before[0] for before, after in pairwise(found)}
    if len(sizes) != 1 or len(steps) > 1 or steps == {0}:
        return None
    return sizes.pop(), steps.pop() if steps else 1


def pooled(parts: Parts, op: AdaptivePool) -> None:
    """Pools of each window, put into their places: along the rows, then along the columns.

    Raises:
        GraphError: a pool has too many windows.
    """
    _, *sizes = parts.shape
    lines = [windows(size or 0, count) for size, count in zip(sizes, (op.rows, op.columns), strict=True)]
    steps = [alike(each) for each in lines]
    if any(step is None and len(each) > MOST_WINDOWS for step, each in zip(steps, lines, strict=True)):
        message = f"{op.words} has more than {MOST_WINDOWS} windows that differ in size"
        raise GraphError(message, where=parts.node.path, next="port it to torch")
    down, across = (step or (1, 1) for step in steps)
    first = _pool(op, Window((down[0], across[0]), (down[1], across[1])))
    apart = [axis for axis, step in enumerate(steps) if step is None]
    if not apart:
        parts.end(first, parts.source)
        return
    value = parts.add("window", first, parts.source)
    for axis in apart:
        places = _along(parts, op, value, axis, lines[axis])
        if axis == apart[-1]:
            parts.end(Add(), *places)
        else:
            value = parts.add("windows", Add(), *places)


def _along(
    parts: Parts, op: AdaptivePool, source: str, axis: int, lines: Sequence[tuple[int, int]]
) -> list[str]:
    """The windows along one axis, each as a map with zeros in the places of the others."""
    pools, size = [], lines[-1][1]
    for index, (start, end) in enumerate(lines):
        cells = (
            parts.add("cells", CropMap(_pads(axis, start, size - end)), source)
            if (start, end) != (0, size)
            else source
        )
        window = Window((end - start, 1) if axis == 0 else (1, end - start))
        mine = parts.add("window", _pool(op, window), cells)
        pools.append(parts.add("placed", PadMap(_pads(axis, index, len(lines) - 1 - index)), mine))
    return pools


def _pool(op: AdaptivePool, window: Window) -> Op:
    if op.function == "max":
        return MaxPool(window, Convention("explicit", fill=LOWEST))
    return AvgPool(window, Convention("explicit", fill=0.0))


def _pads(axis: int, before: int, after: int) -> tuple[int, int, int, int]:
    return (before, after, 0, 0) if axis == 0 else (0, 0, before, after)
