"""The bounds of activations, which a proof says nothing of unless a value reaches them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from porter.base.dtypes import Array
from porter.graph import Graph

Look = Callable[[Array, Collection[str]], Mapping[str, Array]]


@dataclass
class Reached:
    """The least and the largest value that each activation with a bound reads, by its path."""

    extremes: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, graph: Graph, values: Mapping[str, Array]) -> None:
        """Args: values: by path, the graph's input among them where it is read."""
        for path in bounded(graph):
            read = graph.by_path[path].inputs[0]
            if read not in values:
                continue
            low, high = float(values[read].min()), float(values[read].max())
            least, most = self.extremes.get(path, (low, high))
            self.extremes[path] = min(low, least), max(high, most)

    def unreached(self, graph: Graph) -> tuple[str, ...]:
        """The activations of which a bound was never reached."""
        return tuple(
            node.path
            for node in graph.nodes
            if node.path in self.extremes and not _reaches(node.op.bounds, *self.extremes[node.path])
        )


def _reaches(bounds: tuple[float, float], low: float, high: float) -> bool:
    least, most = bounds
    return (least == -np.inf or low <= least) and (most == np.inf or high >= most)


def bounded(graph: Graph) -> set[str]:
    """The activations with a bound."""
    return {node.path for node in graph.nodes if np.isfinite(node.op.bounds).any()}


def farthest(graph: Graph, known: Sequence[Array], pool: Array, run: Look, at_once: int) -> Array:
    """The images of a pool that take the input of an activation further, up or down, than the others and than
    those that are `known`, where those do not reach the activation's bounds; none if they reach all.

    Args:
        known: batches of N x C x H x W, as `pool` is.
        run: gives the values at some paths for a batch.
        at_once: so many images of the pool are run together.
    """
    inputs = {path: graph.by_path[path].inputs[0] for path in bounded(graph)}
    inputs = {path: read for path, read in inputs.items() if read in graph.by_path}
    if not inputs:
        return pool[:0]
    reached, ends = Reached(), list[dict[str, Array]]()

    def look(batches: Iterable[Array], paths: Collection[str]) -> None:
        for batch in batches:
            values = run(batch, paths)
            reached.add(graph, values)
            ends.append({path: _ends(values[path]) for path in paths})

    look(known, {*inputs.values()})
    left = sorted({inputs[path] for path in reached.unreached(graph) if path in inputs})
    if not left:
        return pool[:0]
    look(np.array_split(pool, -(-len(pool) // at_once)), left)
    extremes = np.concatenate([np.concatenate([part[path] for path in left]) for part in ends], axis=1)
    # Where all go as far, the first does: one that is known.
    best = np.unique(np.nan_to_num(extremes, nan=-np.inf, posinf=-np.inf).argmax(axis=1))
    first = sum(map(len, known))
    chosen: Array = pool[best[best >= first] - first]
    return chosen


def _ends(value: Array) -> Array:
    """The largest of a value and of its negative: 2 x N."""
    flat = value.reshape(len(value), -1).astype(np.float64, copy=False)
    return np.stack([flat.max(axis=1), -flat.min(axis=1)])
