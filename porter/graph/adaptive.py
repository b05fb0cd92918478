"""Adaptive pools as windows that lie one after the other, for frameworks whose layers lack them, and maps of
known sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from porter.base.errors import GraphError
from porter.graph.graph import Graph, Node
from porter.graph.ops import (
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    AdaptivePool,
    Add,
    AvgPool,
    CropMap,
    MaxPool,
    Op,
    PadMap,
    Shape,
)
from porter.padding import LOWEST, Convention, Window

MOST_WINDOWS = 64
"""Of different sizes along an axis, more than a network has: each is some nodes of its own."""


COMPOSED: tuple[type[Op], ...] = (AdaptiveAvgPool, AdaptiveMaxPool)
"""Ops of which a plan makes others where the destination lacks them."""


def windows(size: int, count: int) -> list[tuple[int, int]]:
    """The first cell of each of `count` windows along `size` cells, and the cell behind its last one."""
    return [(place * size // count, -(-(place + 1) * size // count)) for place in range(count)]


def alike(found: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The size and the step of windows that have the same; None for others."""
    sizes, steps = (
        {end - start for start, end in found},
        {after[0] - before[0] for before, after in pairwise(found)},
    )
    return (
        (sizes.pop(), steps.pop() if steps else 1)
        if len(sizes) == 1 and len(steps) < 2 and steps != {0}
        else None
    )


def with_windows(graph: Graph, known: Mapping[str, Shape]) -> Graph:
    """The graph, whose adaptive pools are pools of each window, put into their places.

    Args:
        known: the shape of every path; those of these pools' maps have no open size.

    Raises:
        GraphError: a pool has too many windows.
    """
    if not any(isinstance(node.op, AdaptivePool) for node in graph.nodes):
        return graph
    nodes: list[Node] = []
    taken = set(known)
    for node in graph.nodes:
        if isinstance(node.op, AdaptivePool):
            nodes += _Windows(node, node.op, taken).nodes(known[node.source])
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


class _Windows:
    """The nodes of one pool: along the rows, then along the columns."""

    def __init__(self, node: Node, op: AdaptivePool, taken: set[str]) -> None:
        self.node, self.op, self.taken = node, op, taken
        self.found: list[Node] = []

    def nodes(self, shape: Shape) -> list[Node]:
        _, *sizes = shape
        counts = self.op.rows, self.op.columns
        lines = [windows(size or 0, count) for size, count in zip(sizes, counts, strict=True)]
        steps = [alike(each) for each in lines]
        if any(step is None and len(each) > MOST_WINDOWS for step, each in zip(steps, lines, strict=True)):
            message = f"{self.op.words} has more than {MOST_WINDOWS} windows that differ in size"
            raise GraphError(message, where=self.node.path, next="port it to torch")
        down, across = (step or (1, 1) for step in steps)
        value = self._pool(self.node.source, Window((down[0], across[0]), (down[1], across[1])))
        for axis, (step, each) in enumerate(zip(steps, lines, strict=True)):
            value = value if step else self._along(value, axis, sizes[axis] or 0, each)
        self.found[-1] = replace(self.found[-1], path=self.node.path)
        return self.found

    def _along(self, source: str, axis: int, size: int, each: Sequence[tuple[int, int]]) -> str:
        """The windows along one axis, each as a map with zeros in the places of the others, and their sum."""
        parts = []
        for place, (start, end) in enumerate(each):
            cells = (
                self._add("cells", CropMap(_pads(axis, start, size - end)), source)
                if (start, end) != (0, size)
                else source
            )
            pooled = self._pool(cells, Window((end - start, 1) if axis == 0 else (1, end - start)))
            parts.append(self._add("placed", PadMap(_pads(axis, place, len(each) - 1 - place)), pooled))
        return self._add("windows", Add(), *parts)

    def _pool(self, source: str, window: Window) -> str:
        largest = self.op.function == "max"
        convention = Convention("explicit", fill=LOWEST if largest else 0.0)
        return self._add("window", (MaxPool if largest else AvgPool)(window, convention), source)

    def _add(self, word: str, op: Op, *inputs: str) -> str:
        path = f"{self.node.path}_{word}"
        while path in self.taken:
            path += "_"
        self.taken.add(path)
        self.found.append(Node(path, op, inputs))
        return path


def _pads(axis: int, before: int, after: int) -> tuple[int, int, int, int]:
    return (before, after, 0, 0) if axis == 0 else (0, 0, before, after)
