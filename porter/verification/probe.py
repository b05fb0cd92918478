"""Bounds of activations that no image reaches, pads of pools and epsilons of norms that no image shows: their
layers are run by themselves.

Real weights keep far below the 6 of most ReLU6s, so images show nothing of it, nor of a ReLU that a port has
instead. So the source's own layer and the port's own are given numbers on both sides of each bound and far
from all, pools numbers below 0, and norms small ones. No other layer is run: this takes a small part of the
time of a comparison of the whole network.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array, NamedArrays
from porter.base.errors import CannotRun
from porter.frameworks import Alone, Tensors
from porter.frameworks.images import as_maps
from porter.graph import INPUT, Graph, Node, Op, shapes
from porter.graph.ops import is_map
from porter.graph.plan import make_plan
from porter.padding import ANY, KnownSize
from porter.port import StoredPort
from porter.verification.bounds import bounded
from porter.verification.numbers import Norms, norms
from porter.verification.references import LayeredSource
from porter.verification.results import FirstBad, NodeDistance, Parity

_STEPS = np.array([-1.0, -0.125, 0.125, 1.0])
"""The numbers around a bound, in parts of the way to the other bound; or of the bound itself or 1, if that is
less.
"""
_FAR = np.geomspace(8, 1e5, len(_STEPS)) * np.array([[1], [-1]])
"""Numbers that images hardly reach, above 0 and below: the source may have a bound that the port lacks."""
_LARGE = 1e8


@dataclass(frozen=True)
class Probe:
    """Runs layers of a source and of a port by themselves.

    Attributes:
        size: of an input that the source was run on.
        limit: for the relative distance.
        device: where the port runs.
        tensors: see porter.verification.check.Check.
    """

    port: StoredPort
    source: LayeredSource
    size: KnownSize
    limit: float
    device: str
    tensors: Tensors | None

    def completed(self, parity: Parity) -> Parity:
        """The comparison in float64, and that of activations with bounds, and of other layers in `unreached`,
        which the source can run by themselves.
        """
        graph, compared = self.port.graph, {node.path for node in parity.nodes}
        known = bounded(graph)
        bounds = [node for node in graph.nodes if node.path in compared & known]
        others = [graph.by_path[path] for path in parity.unreached if path in compared - known]
        try:
            apart = self._activations(bounds) | self._pools_and_norms(others)
        except CannotRun:  # an operator refuses there what it takes in the network
            return parity
        nodes = {node.path: node for node in parity.nodes}
        nodes |= {
            path: NodeDistance(path, far.rel_l2, far.max_abs, self.limit) for path, far in apart.items()
        }
        bad = next((nodes[path] for path in graph.by_path if path in apart and not nodes[path].ok), None)
        unreached = tuple(path for path in parity.unreached if path not in apart)
        if bad is None:
            return replace(parity, unreached=unreached)
        blamed = FirstBad(bad.path, bad.rel_l2, None, None, None)
        return replace(parity, ok=False, first_bad=blamed, unreached=unreached, nodes=tuple(nodes.values()))

    def _activations(self, nodes: Sequence[Node]) -> dict[str, Norms]:
        """How far apart activations are around their bounds and beyond, by path. Equal ones of the port are
        one layer.
        """
        layers = _across_bounds(self.port.graph, nodes, self.size)
        wanted = self.source.run_alone(layers.values(), self.size)
        kinds = {node.op: node.path for node in nodes if node.path in wanted}
        if not kinds:
            return {}
        numbers = np.unique(np.concatenate([layer.value.ravel() for layer in layers.values()]))
        made = tuple(Node(path, op, (INPUT,)) for op, path in kinds.items())
        values = self._run(made, numbers.reshape(1, 1, -1, 1), {})
        by_path = {}
        for node in (node for node in nodes if node.path in wanted):
            places = np.searchsorted(numbers, layers[node.path].value)
            by_path[node.path] = _farthest(wanted[node.path], values[kinds[node.op]].ravel()[places])
        return by_path

    def _pools_and_norms(self, nodes: Sequence[Node]) -> dict[str, Norms]:
        """How far apart layers are on numbers that show all of them, by path, of those that are equal on
        others: what the source runs may be a part of the layer only, such as a pool without its pads.
        """
        known = shapes(self.port.graph, self.size)
        by_path = dict[str, Norms]()
        for node in nodes:
            shape = [axis or 1 for axis in known[node.source]]
            plain = np.random.default_rng(0).uniform(1, 2, shape)
            epsilon = getattr(node.op, "epsilon", None)
            # Large numbers hide every epsilon, and small ones show it.
            scales = (1.0, -1.0) if epsilon is None else (_LARGE, math.sqrt(epsilon))
            fed = np.stack([scale * plain for scale in scales])
            wanted = self.source.run_alone([_alone(node, fed)], self.size).get(node.path)
            if wanted is None:
                continue
            tensors = self.tensors or self.port.tensors()
            held = {} if epsilon is None else {node.path: tensors.get(node.holder, {})}
            got = self._run((Node(node.path, node.op, (INPUT,)),), fed, held)[node.path]
            if wanted.shape == got.shape and norms(wanted[0], got[0]).rel_l2 <= self.limit:
                by_path[node.path] = norms(wanted[1], got[1])
        return by_path

    def _run(self, nodes: tuple[Node, ...], batch: Array, tensors: Tensors) -> NamedArrays:
        """The values of layers of the port that read its input."""
        first, *further = (node.path for node in nodes)
        axes = () if batch.ndim == 4 else batch.shape[1:]
        graph = Graph(nodes, 1 if axes else batch.shape[1], first, further=tuple(further), axes=axes)
        is_open = self.port.plan.only_size is None or axes
        plan = make_plan(graph, ANY if is_open else batch.shape[2:4], self.port.destination.CAPABILITIES)
        model = self.port.destination.ENGINE.build(plan, tensors, {}, "float64", self.device)
        return self.port.destination.ENGINE.run(model, as_maps(batch, graph), [first, *further])


def _across_bounds(graph: Graph, nodes: Sequence[Node], size: KnownSize) -> dict[str, Alone]:
    """Activations by path with numbers on both sides of each bound of all that read the same value, and far
    ones: a small map of its channels, or as many values of its axes as they take.
    """
    known = shapes(graph, size)
    by_path = dict[str, Alone]()
    for node in nodes:
        read = node.source
        numbers = _across(other.op for other in nodes if other.source == read)
        channels, *others = (axis or 1 for axis in known[read])
        times = -(-numbers.size // channels)
        shape = (1, channels, times, 1) if is_map(known[read]) else (times, channels, *others)
        by_path[node.path] = _alone(node, np.resize(numbers, shape))
    return by_path


def _across(ops: Iterable[Op]) -> NDArray[np.float64]:
    """Numbers on both sides of each bound of ops, and far ones: a row for each of these."""
    bounds = dict.fromkeys(
        (bound, min(max(1.0, abs(bound)), op.bounds[1] - op.bounds[0]))
        for op in ops
        for bound in op.bounds
        if np.isfinite(bound)
    )
    return np.array([*(bound + reach * _STEPS for bound, reach in bounds), *_FAR])


def _farthest(wanted: Array, got: Array) -> Norms:
    """The largest distance around a bound or of far numbers: beside large ones, others would not show."""
    whole = got.size // len(_STEPS) * len(_STEPS)
    theirs, ours = (
        side.ravel()[:whole].reshape(-1, len(_STEPS)).astype(np.float64) for side in (wanted, got)
    )
    scale = np.maximum(np.linalg.norm(theirs, axis=1), np.finfo(np.float64).tiny)
    with np.errstate(over="ignore"):  # far from numbers that are all 0
        worst = np.nan_to_num(np.linalg.norm(theirs - ours, axis=1) / scale, nan=np.inf).argmax()
    return norms(theirs[worst], ours[worst])


def _alone(node: Node, value: Array) -> Alone:
    return Alone(node.path, None if node.source == INPUT else node.source, value)
