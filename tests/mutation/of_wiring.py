"""Mistakes in how layers are joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from porter.graph import AvgPool, ConcatChannels, Conv, Divide, MaxPool, Node
from tests.mutation.mistakes import Change, Planter, Right
from tests.mutation.of_ops import OF_OPS
from tests.mutation.of_tensors import OF_TENSORS

Rng = np.random.Generator
NEAR = 12
"""Nodes before one that it may be joined to by mistake."""


def _order(right: Right, node: Node, rng: Rng) -> Iterator[Change]:
    """The inputs of a join in another order, where it matters."""
    if isinstance(node.op, ConcatChannels | Divide) and len(set(node.inputs)) > 1:
        moved = (*node.inputs[1:], node.inputs[0])
        yield Change(f"it reads {', '.join(moved)}", {node.path: (replace(node, inputs=moved),)})


def _rewired(right: Right, node: Node, rng: Rng) -> Iterator[Change]:
    """Another value of the same shape."""
    paths = list(right.known)
    earlier = paths[max(0, paths.index(node.path) - NEAR) : paths.index(node.path)]
    for at, source in enumerate(node.inputs):
        for other in earlier:
            if other != source and right.known[other] == right.known[source]:
                inputs = (*node.inputs[:at], other, *node.inputs[at + 1 :])
                yield Change(f"it reads {other} for {source}", {node.path: (replace(node, inputs=inputs),)})


def _branches(right: Right, node: Node, rng: Rng) -> Iterator[Change]:
    """Two nodes that read each other's values."""
    order = {path: at for at, path in enumerate(right.known)}
    for other in right.graph.nodes:
        one, two = node.inputs[0], other.inputs[0]
        if (
            order[other.path] > order[node.path] > max(order[two], 0)
            and one != two
            and right.known[one] == right.known[two]
        ):
            first, second = (
                replace(node, inputs=(two, *node.inputs[1:])),
                replace(other, inputs=(one, *other.inputs[1:])),
            )
            yield Change(
                f"it reads {two}, and {other.path} reads {one}", {node.path: (first,), other.path: (second,)}
            )


def _windows(name: str) -> Planter:
    """A stride or a dilation at another one of two windows that follow each other."""

    def planter(right: Right, node: Node, rng: Rng) -> Iterator[Change]:
        if not isinstance(node.op, Conv | MaxPool | AvgPool):
            return
        other: Any = right.graph.by_path.get(node.inputs[0])
        while other is not None and not isinstance(other.op, Conv | MaxPool | AvgPool):
            other = right.graph.by_path.get(other.inputs[0])
        if other is None or getattr(other.op.window, name) == getattr(node.op.window, name):
            return
        moved = [
            replace(one, op=replace(mine, window=replace(mine.window, **{name: getattr(its.window, name)})))
            for one, mine, its in ((node, node.op, other.op), (other, other.op, node.op))
        ]
        yield Change(
            f"its {name} is that of {other.path}, and the other way round",
            {one.path: (one,) for one in moved},
        )

    return planter


KINDS: Mapping[str, Planter] = {
    **OF_OPS,
    **OF_TENSORS,
    "inputs of a join swapped": _order,
    "another value read": _rewired,
    "branches swapped": _branches,
    "stride moved": _windows("stride"),
    "dilation moved": _windows("dilation"),
}
"""Every kind of mistake."""
