"""Nodes compared from their own inputs: each value that other nodes read is cut off, and all that read it are
given random numbers in its place, the same in the source and in the port.

If every node gives what its partner gives for the same numbers, the networks are equal, and so is their
wiring: a wire that comes from somewhere else reads other random numbers. What the network itself hardly
reaches, such as a bound of an activation, a pad of a pool or an epsilon, is reached by the choice of the
numbers. docs/proof.md has the argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.frameworks import UNCUT
from porter.graph import INPUT, Graph, Node, nonnegative_paths, shapes, site_of
from porter.graph.plan import Plan
from porter.padding import KnownSize
from porter.verification.bounds import Reached
from porter.verification.draws import MOVES, Draws, binary_paths
from porter.verification.evidence import LEAST, Samples
from porter.verification.memory import in_parts
from porter.verification.numbers import (
    AMPLIFIED,
    FLOAT64_LIMIT,
    Norms,
    farthest_channel,
    farthest_draw,
    moved,
)
from porter.verification.parity import FLOAT32_LIMIT, MOST_ROUNDING
from porter.verification.references.reference import CutReference
from porter.verification.results import CutCounts, FirstBad, NodeDistance, Parity, farthest
from porter.verification.sizes import least_general_size

LIMITS: Mapping[Dtype, float] = {"float64": FLOAT64_LIMIT, "float32": FLOAT32_LIMIT}
"""The largest distance of a node that is equal, by the port's number type."""
_LEAST_CHANNEL = 64 * float(np.finfo(np.float64).eps) / FLOAT64_LIMIT
"""A channel counts as no smaller than this part of the others: it may be 64 roundings of a number of their
size away.
"""
_EXPLAINED = 1e3
"""A distance of so many times the limit is no rounding, whatever a node reads."""

RunCut = Callable[[Array, Sequence[str], NamedArrays], NamedArrays]
"""Gives values by path for a batch N x C x H x W, with others in place of some."""


@dataclass(frozen=True)
class CutPoints:
    """What comparisons at cut points show, at each of some sizes.

    Attributes:
        dtype: in which the port ran; the source ran in float64.
        sizes: rows and columns of the images.
        distances: how far apart nodes are, by path: the worst of several draws.
        compared: by the path of each node that was compared, itself, and what lies between it and the values
            that were given, because one side does not show it.
        telling: nodes whose values differ between cells or draws.
        unreached: see porter.verification.results.Parity.
    """

    dtype: Dtype
    sizes: tuple[KnownSize, ...]
    distances: Mapping[str, Norms]
    compared: Mapping[str, frozenset[str]]
    telling: frozenset[str]
    unreached: frozenset[str]

    @classmethod
    def at_no_size(cls, graph: Graph, dtype: Dtype) -> CutPoints:
        """Return a comparison at no size, to which others are joined."""
        return cls(
            dtype, (), {}, {path: frozenset((path,)) for path in graph.by_path}, frozenset(), frozenset()
        )

    @property
    def ok(self) -> bool:
        """Whether no node differs."""
        return all(distance.rel_l2 <= LIMITS[self.dtype] for distance in self.distances.values())

    @property
    def alone(self) -> frozenset[str]:
        """The nodes that were compared by themselves, whose values tell."""
        return frozenset(path for path, nodes in self.compared.items() if len(nodes) == 1) & self.telling

    def together(self, graph: Graph) -> frozenset[str]:
        """Return other nodes that were compared together with those beside them, of which one at most is not
        linear. Nodes that were also compared alone are left out.
        """
        every = (self.compared[path] for path in self.compared.keys() & self.telling)
        simple = (
            nodes for nodes in every if sum(not graph.by_path[node].op.is_linear for node in nodes) <= 1
        )
        return frozenset().union(*simple) - self.alone

    def joined_to(self, other: CutPoints) -> CutPoints:
        """Return this comparison with what those at other sizes show: the worst distance of each node, and
        only what holds at every size.
        """
        paths = dict.fromkeys((*self.distances, *other.distances))
        sides = self.distances, other.distances
        worst = {path: farthest(side[path] for side in sides if path in side) for path in paths}
        return CutPoints(
            self.dtype,
            (*self.sizes, *other.sizes),
            worst,
            {
                path: self.compared[path] | other.compared[path]
                for path in self.compared.keys() & other.compared.keys()
            },
            self.telling | other.telling,
            self.unreached | other.unreached,
        )

    def completed(self, parity: Parity, plan: Plan, tolerance: float | None) -> Parity:
        """Return a comparison of the whole network in this number type, completed by this one: nodes that
        differ at cut points make it fail. Nodes whose values told something here no longer count as unexcited
        (the same for every input), and bounds that were reached here no longer as unreached.

        Args:
            parity: the comparison of the whole network.
            plan: of the port.
            tolerance: the limit for the distances, in place of that of the number type.
        """
        graph, limit = plan.graph, tolerance or LIMITS[self.dtype]
        nodes = {node.path: node for node in parity.nodes}
        for path, distance in self.distances.items():
            node = NodeDistance(path, distance.rel_l2, distance.max_abs, limit)
            if not node.ok:  # others would make each record of one port another one
                nodes[path] = node
        ordered = tuple(nodes[path] for path in graph.by_path if path in nodes)
        bad = next((node for node in ordered if not node.ok), None)
        first_bad = parity.first_bad
        if first_bad is None and bad is not None:
            first_bad = _blame(plan, bad)
        linear = sum(graph.by_path[path].op.is_linear for path in self.alone)
        together = self.together(graph)
        unreached = tuple(path for path in parity.unreached if path in self.unreached)
        inside = tuple(path for path in graph.by_path if path not in self.alone | together)
        # Only such a port is the function at sizes that were not compared.
        general = plan.only_size is None and not inside and not self.unreached
        least = least_general_size(graph, self.sizes) if general else None
        return replace(
            parity,
            ok=parity.ok and bad is None,
            sizes=tuple(dict.fromkeys((*parity.sizes, *self.sizes))),
            first_bad=first_bad,
            nodes=ordered,
            unexcited=tuple(path for path in parity.unexcited if path not in self.telling),
            unreached=unreached,
            cut=CutCounts(linear, len(self.alone) - linear, inside, len(together), least),
        )


def _blame(plan: Plan, bad: NodeDistance) -> FirstBad:
    """Return the record of a node that differs, with its padding where it has a window of several cells and
    the difference is larger than rounding.
    """
    site = site_of(plan.graph.by_path[bad.path].op)
    blamed = FirstBad(bad.path, bad.rel_l2, None, None, None, alone=True)
    if site is None or site.window.kernel == (1, 1) or bad.rel_l2 <= MOST_ROUNDING:
        return blamed
    return replace(blamed, site=bad.path, source=str(site), realised=str(plan.realisations[bad.path]))


def compare_at_cut_points(
    graph: Graph, source: CutReference, port: RunCut, images: Array, rng: Generator, dtype: Dtype
) -> CutPoints:
    """Compare a port with its source at cut points: values in place of which both sides are given the same
    random numbers, so that each node is compared by itself.

    Args:
        graph: of the port.
        source, port: run with replaced values.
        images: N x C x H x W, in the network's own range; each goes with a draw of its own of all other
            numbers. Half of them are drawn as these are, and so are the others if all that read them is seen.
        rng: gives the random numbers.
        dtype: in which the port runs. In float64 it shows every value.

    Returns:
        The distances of all nodes, or of the first node that differs only, if one does.
    """
    comparison = _Comparison(graph, source, port, images.astype(dtype), rng, dtype)
    stated = {path: shape[1:] for path, shape in comparison.port_shapes.items()}
    for part in in_parts(graph, stated, 2 * len(images)):
        if wrong := comparison.compare(part):
            every = frozenset(graph.by_path)
            return CutPoints(dtype, (comparison.size,), wrong, {}, frozenset(), every)
    return comparison.shown


class _Comparison:
    """A comparison at one size: what was chosen for it, and what its parts show so far.

    Attributes:
        port_shapes: of the port's values, N x ... for the N draws.
        points: the values that are replaced.
        unread: those that no node of the port reads; the source may.
        computed: points that are more than other values moved.
        distances, telling: as in CutPoints.
        undecided: nodes that differed while more than what they read was replaced.
        known: the values that were replaced on both sides.
    """

    def __init__(
        self, graph: Graph, source: CutReference, port: RunCut, images: Array, rng: Generator, dtype: Dtype
    ) -> None:
        self.graph = graph
        self.size = images.shape[2], images.shape[3]
        self.port_shapes = {
            path: (len(images), *(side or 1 for side in shape))
            for path, shape in shapes(graph, self.size).items()
        }
        shown = [*graph.by_path] if dtype == "float64" else [*port(images[:1], [*graph.by_path], UNCUT)]
        source_shapes = {
            path: (len(images), *value.shape[1:])
            for path, value in source.run_cut(images[:1], shown, UNCUT).items()
            if len(value) == 1
        }
        readers = _readers(graph, source_shapes.keys())
        # A model's further inputs are made of the same images (porter.frameworks.batches.further_arrays).
        readers[INPUT] = [node for path in graph.inputs for node in readers.get(path, ())]
        self.draws = Draws(
            rng, nonnegative_paths(graph), binary_paths(graph), source_shapes.keys(), readers, dtype
        )
        self.sides = _CutSides(source, port, self.draws.of_images(images), source_shapes, dtype)
        self.points = {
            path
            for path in graph.by_path.keys() & source_shapes.keys()
            if math.prod(source_shapes[path]) == math.prod(self.port_shapes[path])
        }
        self.unread = self.points - readers.keys()
        self.computed = {path for path in self.points if not isinstance(graph.by_path[path].op, MOVES)}
        self.distances = dict[str, Norms]()
        self.telling = set[str]()
        self.undecided = set[str]()
        self.known = {INPUT, *graph.inputs}
        self.reached = Reached()

    def compare(self, part: Sequence[str]) -> dict[str, Norms]:
        """Compare the nodes of a part, with random numbers in place of all values that they read. Return the
        first one that differs, with its distance; nothing if none does.
        """
        read = dict.fromkeys((*_read_by(self.graph, part, self.points)[0], *self.unread))
        theirs, ours, cut = self.sides.run(part, self._draw(read))
        self.known |= cut.keys()
        self.reached.add(self.graph, {INPUT: self.sides.images, **ours}, cut)
        # A source may show a value as N x C x 1 x 1 or N x C: only the count has to agree.
        both = [path for path in part if path in theirs and theirs[path].size == ours[path].size]
        self.telling.update(path for path in both if _tells(theirs[path]))
        for path in both:
            distance = self.sides.farthest(theirs[path], ours[path])
            if self.sides.are_equal(distance):
                self.distances[path] = distance
            elif wrong := self._distance_alone(path):
                return {path: wrong}
            else:
                # What else the source reads was its own: it may be another value for other images.
                self.undecided.add(path)
        return {}

    def _distance_alone(self, path: str) -> Norms | None:
        """Return how far a node is apart where nothing but what it reads itself is replaced; None if it is
        equal then, or nothing is known.
        """
        cut = self._draw(_read_by(self.graph, [path], self.computed)[0])
        apart = self.sides.distance(path, cut)
        if apart is None or self.sides.are_equal(apart) or any(map(self.sides.source.is_moved, cut)):
            return None
        return apart

    def _draw(self, paths: Iterable[str]) -> dict[str, Array]:
        return {path: self.draws.of(path, self.port_shapes[path]) for path in paths}

    @property
    def shown(self) -> CutPoints:
        """What all parts show."""
        return CutPoints(
            self.sides.dtype,
            (self.size,),
            self.distances,
            {path: _read_by(self.graph, [path], self.known)[1] for path in self.distances},
            frozenset(self.telling - self.undecided),
            frozenset(self.undecided.union(self.reached.unreached(self.graph))),
        )


@dataclass(frozen=True)
class _CutSides:
    """A source and a port, run on the same images with the same values replaced.

    Attributes:
        shapes: of the source's values, as it gives them.
        dtype: the port's number type.
    """

    source: CutReference
    port: RunCut
    images: Array
    shapes: Mapping[str, tuple[int, ...]]
    dtype: Dtype

    def run(
        self, paths: Collection[str], cut: NamedArrays
    ) -> tuple[NamedArrays, NamedArrays, dict[str, Array]]:
        """Return the source's values and the port's by path, and the cuts (the values that were replaced)
        that the source could make. The port is given the same cuts.
        """
        asked = [*dict.fromkeys((*(path for path in paths if path in self.shapes), *cut))]
        theirs = self.source.run_cut(self.images, asked, self._shaped(cut))
        made = {path: value for path, value in cut.items() if path in theirs}
        return theirs, self.port(self.images, [*dict.fromkeys((*paths, *made))], made), made

    def distance(self, path: str, cut: NamedArrays) -> Norms | None:
        """Return how far the source's and the port's values of one node are apart, with random numbers in
        place of what it reads and of nothing else. The port's node x / (1 + |x|) may be several operations of
        the source, and the |x| among them may be another node's value, which an earlier run had replaced.

        Args:
            cut: the numbers, by the paths of the values that they replace.

        Returns:
            None where nothing is known: the distance is a little beyond the limit, and moving all that is
            given by one rounding moves the source's own value as far.
        """
        theirs, ours, _ = self.run([path], cut)
        apart, limit = self.farthest(theirs[path], ours[path]), LIMITS[self.dtype]
        if limit < apart.rel_l2 <= _EXPLAINED * limit:
            near = self._shaped({read: moved(value) for read, value in cut.items()})
            again = self.source.run_cut(moved(self.images), [path, *cut], near)
            if apart.rel_l2 <= AMPLIFIED * self.farthest(theirs[path], again[path]).rel_l2:
                return None
        return apart

    def are_equal(self, apart: Norms) -> bool:
        """Return whether a distance is within the limit."""
        return apart.rel_l2 <= LIMITS[self.dtype]

    def farthest(self, theirs: Array, ours: Array) -> Norms:
        """Return how far a node is apart in the draw where that is most and, in float64, in the channel where
        it is most. A sum of many float32 numbers may be near 0 by chance, and is then further away than the
        limit.
        """
        if self.dtype == "float32":
            return farthest_draw(theirs, ours)
        return farthest_channel(theirs, ours, _LEAST_CHANNEL)

    def _shaped(self, cut: NamedArrays) -> dict[str, Array]:
        """Return the cuts in the source's shapes: both sides have the numbers in one order."""
        return {path: value.reshape(self.shapes[path]) for path, value in cut.items()}


def _readers(graph: Graph, shown: Collection[str]) -> dict[str, list[Node]]:
    """Return what reads each value: the nodes that do, and those behind one that is not shown. A fused layer
    shows only what its activation gives.
    """
    readers: dict[str, list[Node]] = {}
    # backwards, because what is behind a node has to be known first
    for node in reversed(graph.nodes):
        behind = [] if node.path in shown else readers.get(node.path, [])
        for path in node.inputs:
            readers.setdefault(path, []).extend([node, *behind])
    return readers


def _read_by(graph: Graph, paths: Sequence[str], points: Collection[str]) -> tuple[list[str], frozenset[str]]:
    """Return the points that are read on the way to these values, before any other point; and the nodes on
    the way, with these.

    Args:
        points: the values at which the way may be cut.
    """
    first = dict[str, None]()
    left = [*paths]
    seen = set(left)
    while left:
        for path in graph.by_path[left.pop()].inputs:
            if path in points:
                first[path] = None
            elif path in graph.by_path and path not in seen:
                seen.add(path)
                left.append(path)
    return [*first], frozenset(seen)


def _tells(value: Array) -> bool:
    """Return whether the numbers of some channel differ between cells or draws."""
    samples = Samples()
    samples.add(value)
    return samples.variation >= LEAST
