"""Bounds of activations that no image reaches, reached by numbers that the activation is fed by itself.

Real weights keep far below the 6 of most ReLU6s, so images show nothing of it. So the source's own layer and
the port's own are given numbers on both sides of each bound. No other layer is run: this takes a small part
of the time of a comparison of the whole network.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array
from porter.frameworks import Alone, Destination
from porter.graph import INPUT, Graph, Node, Op, shapes
from porter.graph.ops import is_map
from porter.graph.plan import make_plan
from porter.verification.numbers import Norms, norms
from porter.verification.results import FirstBad, NodeDistance, Parity

_STEPS = np.array([-1.0, -0.125, 0.125, 1.0])
"""The numbers around a bound, in parts of the way to the other bound; or of the bound itself or 1, if that is
less.
"""


def layers_across(graph: Graph, caps: Collection[str], size: tuple[int, int]) -> dict[str, Alone]:
    """By path, the layers that are `caps`, with numbers on both sides of each bound of all that read the same
    value: a small map of its channels, or as many values of its axes as they take. Names are paths.

    Args:
        size: of the graph's input.
    """
    known, found = shapes(graph, size), dict[str, Alone]()
    for path in caps:
        read = graph.by_path[path].inputs[0]
        numbers = _across(graph.by_path[cap].op for cap in caps if graph.by_path[cap].inputs[0] == read)
        channels, *others = (axis or 1 for axis in known[read])
        times = -(-numbers.size // channels)
        shape = (1, channels, times, 1) if is_map(known[read]) else (times, channels, *others)
        found[path] = Alone(path, None if read == INPUT else read, np.resize(numbers, shape))
    return found


def _across(ops: Iterable[Op]) -> NDArray[np.float64]:
    """Numbers on both sides of each bound of ops: bounds x numbers."""
    found = dict.fromkeys(
        (bound, min(max(1.0, abs(bound)), op.bounds[1] - op.bounds[0]))
        for op in ops
        for bound in op.bounds
        if np.isfinite(bound)
    )
    return np.array([bound + reach * _STEPS for bound, reach in found])


def of_port(
    destination: Destination, nodes: Sequence[Node], layers: Mapping[str, Alone], device: str
) -> dict[str, Array]:
    """What a port's layers of these nodes give for what `layers` are fed, by path. Equal layers are one."""
    kinds = {node.op: node.path for node in nodes}
    numbers = np.unique(np.concatenate([layers[node.path].value.ravel() for node in nodes]))
    first, *further = kinds.values()
    graph = Graph(
        tuple(Node(path, op, (INPUT,)) for op, path in kinds.items()), 1, first, further=tuple(further)
    )
    plan = make_plan(graph, (numbers.size, 1), destination.CAPABILITIES)
    model = destination.ENGINE.build(plan, {}, {}, "float64", device)
    values = destination.ENGINE.run(model, numbers.reshape(1, 1, -1, 1), [*kinds.values()])
    return {
        node.path: values[kinds[node.op]].ravel()[np.searchsorted(numbers, layers[node.path].value)]
        for node in nodes
    }


def with_probed(
    parity: Parity, wanted: Mapping[str, Array], got: Mapping[str, Array], limit: float
) -> Parity:
    """The comparison, with what layers gave that were fed by themselves.

    Args:
        wanted: by the source, of those that it could run.
        got: by the port.
    """
    nodes = {node.path: node for node in parity.nodes}
    compared = [path for path in parity.unreached if path in wanted]
    for path in compared:
        apart = _apart(wanted[path], got[path])
        nodes[path] = NodeDistance(path, apart.rel_l2, apart.max_abs, limit)
    left = tuple(path for path in parity.unreached if path not in wanted)
    bad = next((nodes[path] for path in compared if not nodes[path].ok), None)
    if bad is None:
        return replace(parity, unreached=left)
    return replace(
        parity,
        ok=False,
        first_bad=FirstBad(bad.path, bad.rel_l2, None, None, None),
        unreached=left,
        nodes=tuple(nodes.values()),
    )


def _apart(wanted: Array, got: Array) -> Norms:
    """The largest distance around a bound: beside those around a large one, others would not show."""
    whole = got.size // len(_STEPS) * len(_STEPS)
    theirs, ours = (
        side.ravel()[:whole].reshape(-1, len(_STEPS)).astype(np.float64) for side in (wanted, got)
    )
    scale = np.maximum(np.linalg.norm(theirs, axis=1), np.finfo(np.float64).tiny)
    worst = np.nan_to_num(np.linalg.norm(theirs - ours, axis=1) / scale, nan=np.inf).argmax()
    return norms(theirs[worst], ours[worst])
