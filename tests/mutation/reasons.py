"""Why a mutant is no other function, where it can be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from porter.graph import (
    INPUT,
    BatchNorm,
    GlobalAvgPool,
    Graph,
    GroupNorm,
    Identity,
    LayerNorm,
    Node,
    Relu6,
    RmsNorm,
    nonnegative_paths,
    shapes,
    site_of,
)
from porter.graph.ops import Axes
from porter.padding import same_function
from tests.mutation.judge import MOVED, Judge, Model, distances
from tests.mutation.mistakes import Mutant

UNREAD, PADS, SAME, SAME_ABOVE_ZERO, UNREACHED = (
    "proved: no output reads it",
    "proved: its windows read the same cells, or zeros that are no more than the least value, at these sizes",
    "the op gives the same for random numbers of any sign and size, so nothing that arrives can tell",
    "the op gives the same for random numbers above zero, and by the graph none that arrives is below",
    "what arrives at the node, in all images, does not reach where the two differ",
)


def reason(judge: Judge, mutant: Mutant) -> str:
    """Whether it is proved that no input tells a mutant, and otherwise where its difference ends on the
    judge's images.
    """
    if mutant.place not in _read(judge, mutant):
        return UNREAD
    if _same_windows(judge, mutant):
        return PADS
    order = [node.path for node in judge.graph.nodes if node.path in mutant.graph.by_path]
    apart: dict[str, bool] = dict.fromkeys(order, False)
    wrong = Model(mutant.graph, mutant.tensors)
    for images, _, _ in judge.batches():
        wanted, got = judge.model.run(images, order), wrong.run(images, order)
        for path in order:
            apart[path] |= bool((distances({path: wanted[path]}, {path: got[path]}) > MOVED).any())
    if not any(apart.values()):
        return _of_any(judge, mutant)
    last = [
        node
        for node in judge.graph.nodes
        if not apart.get(node.path) and any(apart.get(path) for path in node.inputs)
    ]
    ends = {_kind(judge, node.path) for node in last}
    return f"its difference ends at {' and '.join(sorted(ends)) or 'values that no node reads'}"


def _of_any(judge: Judge, mutant: Mutant) -> str:
    """Whether random numbers tell the op of a mutant from the right one."""
    right, wrong = judge.graph.by_path[mutant.place], mutant.graph.by_path[mutant.place]
    read = shapes(judge.graph, judge.sizes[0])[right.inputs[0]]
    channels, *size = read
    if (
        right.inputs != wrong.inputs
        or len(set(right.inputs)) > 1
        or isinstance(read, Axes)
        or len(mutant.graph.nodes) != len(judge.graph.nodes)
    ):
        return UNREACHED
    before = (Node("value", Identity() if size else GlobalAvgPool(), (INPUT,)),)
    random = np.random.default_rng(0)
    numbers = random.standard_normal((8, channels or 1, *(size or (1, 1)))) * 10 ** random.uniform(
        -2, 2, (8, 1, 1, 1)
    )
    for images, said in ((numbers, SAME), (abs(numbers), SAME_ABOVE_ZERO)):
        values = []
        for node, tensors in ((right, judge.tensors), (wrong, mutant.tensors)):
            nodes = (*before, replace(node, inputs=("value",) * len(node.inputs), shares=None))
            values.append(Model(Graph(nodes, channels or 1, node.path), tensors).run(images, (node.path,)))
        if (distances(*values) <= MOVED).all() and (
            said is SAME or right.inputs[0] in nonnegative_paths(judge.graph)
        ):
            return said
    return UNREACHED


def _kind(judge: Judge, path: str) -> str:
    op = judge.graph.by_path[path].op
    if isinstance(op, BatchNorm | GroupNorm | LayerNorm | RmsNorm):
        return "a norm"
    return "a ReLU" if isinstance(op, Relu6) else f"a {op.name}"


def _read(judge: Judge, mutant: Mutant) -> set[str]:
    """The nodes that an output depends on, in the right graph or in the mutant's."""
    found: set[str] = set()
    for graph in (judge.graph, mutant.graph):
        waiting: Sequence[str] = graph.outputs
        while waiting:
            found.update(waiting)
            waiting = [
                path
                for at in waiting
                if at in graph.by_path
                for path in graph.by_path[at].inputs
                if path not in found
            ]
    return found


def _same_windows(judge: Judge, mutant: Mutant) -> bool:
    right, wrong = judge.graph.by_path[mutant.place], mutant.graph.by_path.get(mutant.place)
    site, other = site_of(right.op), site_of(wrong.op) if wrong else None
    if site is None or other is None or site.window != other.window or site.kind != other.kind:
        return False
    source, lowest = right.inputs[0], right.inputs[0] in nonnegative_paths(judge.graph)
    known = [shapes(judge.graph, size)[source] for size in judge.sizes]
    return all(same_function(site, other.convention, (shape[1], shape[2]), lowest) for shape in known)
