"""What a proof says nothing of unless values show it: the bounds of activations, the pads of pools, and the
epsilons of norms.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.frameworks import UNCUT
from porter.graph import Graph, GroupNorm, LayerNorm, MaxPool, Node, nonnegative_paths
from porter.graph.ops import RmsNorm, is_map
from porter.verification.numbers import FLOAT64_LIMIT

_CELLS = 64
"""So many cells of a value tell how its channels vary."""
ValuesAt = Callable[[Array, Collection[str]], NamedArrays]


@dataclass
class Reached:
    """What values show of bounds and pads.

    Attributes:
        extremes: the least and the largest value that each activation with a bound reads, by its path.
        rims: the least value at the rim of what each pool gives whose pads may show, by its path.
        epsilons: how much each norm of what it reads would change without its epsilon, by its path.
    """

    extremes: dict[str, tuple[float, float]] = field(default_factory=dict)
    rims: dict[str, float] = field(default_factory=dict)
    epsilons: dict[str, float] = field(default_factory=dict)

    def add(self, graph: Graph, values: NamedArrays, given: NamedArrays = UNCUT) -> None:
        """Add what the values of one run show: how far the inputs of bounded activations go, the smallest
        number at the rims of padded pools, and the largest share of an epsilon in a norm.

        Args:
            values: by path, the graph's input among them where it is read.
            given: by path, what the readers of a value got in its place, where it was cut
                (porter.verification.cut_points).
        """
        # A rim is that of what the pool gave itself; the inputs are what was really read.
        inputs = {**values, **given}
        for path in bounded_activations(graph):
            input_path = graph.by_path[path].source
            if input_path not in inputs:
                continue
            low, high = float(inputs[input_path].min()), float(inputs[input_path].max())
            least, most = self.extremes.get(path, (low, high))
            self.extremes[path] = min(low, least), max(high, most)
        for path in padded_pools(graph) & values.keys():
            maps = values[path]
            sides = (maps[:, :, :1], maps[:, :, -1:], maps[:, :, :, :1], maps[:, :, :, -1:])
            self.rims[path] = min(self.rims.get(path, np.inf), *(float(side.min()) for side in sides))
        for node in graph.nodes:
            input_path = node.source
            if isinstance(node.op, LayerNorm | RmsNorm | GroupNorm) and input_path in inputs:
                first_image = inputs[input_path][0]
                share = _share_of_epsilon(node.op, first_image, is_map(graph.open_shapes[input_path]))
                self.epsilons[node.path] = max(self.epsilons.get(node.path, 0.0), share)

    def unreached(self, graph: Graph) -> tuple[str, ...]:
        """Return the paths of the activations with a bound that no value reached, such as a ReLU6's 6, and of
        the pools and norms whose pads and epsilons no value showed: nothing is known of these.
        """
        nonnegative = nonnegative_paths(graph)
        return tuple(node.path for node in graph.nodes if not self._shows(node, node.source in nonnegative))

    def _shows(self, node: Node, nonnegative: bool) -> bool:
        """Return whether values show a node's bound, epsilon or pad; True for a node that has none of these.

        Where all numbers are 0 or more (`nonnegative`), pads of 0 give what pads of -inf give, and no bound
        of 0 or less can be passed.
        """
        if node.path in self.extremes:
            least, most = node.op.bounds
            low, high = self.extremes[node.path]
            lower_shows = least == -np.inf or low <= least or (nonnegative and least <= 0)
            upper_shows = most == np.inf or high >= most
            return lower_shows and upper_shows
        if node.path in self.epsilons:
            return self.epsilons[node.path] > FLOAT64_LIMIT
        site, rim = node.op.site, self.rims.get(node.path)
        if site is None or rim is None:  # no pool whose pads may show
            return True
        # A negative number at the rim shows that no zero took part, and the fill shows itself.
        return rim < 0 or rim == site.convention.fill


def _share_of_epsilon(op: LayerNorm | RmsNorm | GroupNorm, value: Array, is_map: bool) -> float:
    """Return how much the norm of one image's `value` would change without its epsilon, as a part of the
    norm: epsilon / (2 (variance + epsilon)), the root mean square of it over the places that are normalised.

    A batch norm's variance is the same for all images: where its epsilon is below rounding for some, it is
    for all.
    """
    if isinstance(op, GroupNorm):
        cells = value.reshape(op.groups, -1)
    else:
        # each cell's channels are normalised together: cells x channels
        channels_last = np.moveaxis(value, 0, -1) if is_map else value
        cells = channels_last.reshape(-1, channels_last.shape[-1])
        # rounded up: at most _CELLS of the cells, evenly spread
        step = -(-len(cells) // _CELLS)
        cells = cells[::step]
    cells = cells.astype(np.float64, copy=False)
    spread = np.square(cells).mean(axis=1) if isinstance(op, RmsNorm) else cells.var(axis=1)
    return float(np.sqrt(np.square(op.epsilon / (2 * (spread + op.epsilon))).mean()))


def bounded_activations(graph: Graph) -> set[str]:
    """Return the paths of the activations that have a bound."""
    return {node.path for node in graph.nodes if np.isfinite(node.op.bounds).any()}


def padded_pools(graph: Graph) -> set[str]:
    """Return the paths of the max pools with pads whose inputs may be negative: beside others, pads of 0
    never show.
    """
    nonnegative = nonnegative_paths(graph)
    return {
        node.path
        for node in graph.nodes
        if isinstance(node.op, MaxPool)
        and node.op.convention.rule != "valid"
        and node.source not in nonnegative
    }


def farthest_images(graph: Graph, known: Sequence[Array], pool: Array, run: ValuesAt, at_once: int) -> Array:
    """Return the images of `pool` that take the input of some activation further up or down than every other
    image, where those `known` do not reach the activation's bounds; no image if they reach all of them. Both
    ends count: the largest number of a value, and the smallest.

    Args:
        known: batches of N x C x H x W, as `pool` is.
        run: gives the values at some paths for a batch.
        at_once: so many images of the pool are run together.
    """
    sources = {path: graph.by_path[path].source for path in bounded_activations(graph)}
    inputs = {path: read for path, read in sources.items() if read in graph.by_path}
    if not inputs:
        return pool[:0]
    reached = Reached()
    ends = list[dict[str, Array]]()

    def look(batches: Iterable[Array], paths: Collection[str]) -> None:
        """Run batches, and add what their values show to `reached` and `ends`."""
        for batch in batches:
            values = run(batch, paths)
            reached.add(graph, values)
            ends.append({path: _largest_both_ways(values[path]) for path in paths})

    look(known, {*inputs.values()})
    left = sorted({inputs[path] for path in reached.unreached(graph) if path in inputs})
    if not left:
        return pool[:0]
    batch_count = -(-len(pool) // at_once)  # rounded up
    look(np.array_split(pool, batch_count), left)
    # a row for each end of each value, a column for each image: the known ones, then the pool's
    extremes = np.concatenate(
        [np.concatenate([of_batch[path] for path in left]) for of_batch in ends], axis=1
    )
    # Where several images go equally far, the first is taken, so that a known one wins.
    best = np.unique(np.nan_to_num(extremes, nan=-np.inf, posinf=-np.inf).argmax(axis=1))
    known_count = sum(map(len, known))
    farthest: Array = pool[best[best >= known_count] - known_count]
    return farthest


def _largest_both_ways(value: Array) -> Array:
    """Return the largest number of each image's values, and the largest of their negatives: 2 x N."""
    flat = value.reshape(len(value), -1).astype(np.float64, copy=False)
    return np.stack([flat.max(axis=1), -flat.min(axis=1)])
