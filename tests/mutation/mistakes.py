"""One mistake in a right port: in its graph or in one of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from porter.base.errors import PorterError
from porter.frameworks import Tensors
from porter.graph import Graph, Node, Shape, shapes, tensor_shapes, with_own_tensors
from tests.support.arrays import Array


@dataclass(frozen=True)
class Right:
    """A right port's function.

    Attributes:
        size: rows and columns at which a mistake has to fit.
        known: the shape of every path at that size.
    """

    graph: Graph
    tensors: Tensors
    size: tuple[int, int]
    known: Mapping[str, Shape]


def right(graph: Graph, tensors: Tensors, size: tuple[int, int]) -> Right:
    return Right(graph, tensors, size, shapes(graph, size))


@dataclass(frozen=True)
class Change:
    """What a mistake changes.

    Attributes:
        what: for people, such as `epsilon 0.001 is 0.0011`.
        nodes: by path, what stands at the node's place.
        tensors: by path and role.
    """

    what: str
    nodes: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)
    tensors: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)


Planter = Callable[[Right, Node, np.random.Generator], Iterator[Change]]
"""Gives the mistakes of one kind that can be made at a node."""


@dataclass(frozen=True)
class Mutant:
    """A port with one mistake in it, of a `kind`, at the node `place`."""

    kind: str
    place: str
    what: str
    graph: Graph
    tensors: Tensors


def plant(right: Right, kind: str, planter: Planter, rng: np.random.Generator) -> Mutant | None:
    """A mistake of one kind at a node that `rng` chooses; None if there is no place for it.

    The shapes of the outputs stay as they are: another shape needs no proof.
    """
    for at in rng.permutation(len(right.graph.nodes)):
        node = right.graph.nodes[at]
        changes = list(planter(right, node, rng))
        for one in rng.permutation(len(changes)):
            mutant = _mutant(right, kind, node.path, changes[one])
            if mutant is not None:
                return mutant
    return None


def _other_layers(graph: Graph, change: Change) -> set[str]:
    """The paths of nodes that are layers by themselves after a change."""
    changed = {
        new.path for path, found in change.nodes.items() for new in found if new.op != graph.by_path[path].op
    }
    return {*change.tensors, *changed}


def _mutant(right: Right, kind: str, place: str, change: Change) -> Mutant | None:
    nodes = [new for node in right.graph.nodes for new in change.nodes.get(node.path, (node,))]
    # Of a layer that is called several times, the mistake is in one call.
    graph = with_own_tensors(replace(right.graph, nodes=tuple(nodes)), _other_layers(right.graph, change))
    tensors = {
        **right.tensors,
        **{path: {**right.tensors.get(path, {}), **roles} for path, roles in change.tensors.items()},
    }
    try:
        known, needed = shapes(graph, right.size), tensor_shapes(graph)
    except PorterError:
        return None
    if any(known[path] != right.known[path] for path in graph.outputs):
        return None
    if any(
        tensors.get(path, {}).get(role, np.zeros(0)).shape != shape
        for path, roles in needed.items()
        for role, shape in roles.items()
    ):
        return None
    kept = {
        path: {
            role: array for role, array in roles.items() if role in needed.get(path, {}) or role == "batches"
        }
        for path, roles in tensors.items()
    }
    same = graph == right.graph and all(
        np.array_equal(right.tensors[path][role], array)
        for path, roles in change.tensors.items()
        for role, array in roles.items()
    )
    return None if same else Mutant(kind, place, f"{place}: {change.what}", graph, kept)
