"""The plan of a destination model: the graph, and the realisation of each padding site in the destination framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from porter.errors import GraphError, PaddingError
from porter.graph.graph import Graph, nonnegative_paths, shapes, site_of
from porter.graph.ops import Flatten
from porter.padding import Capabilities, Realisation, Size, realise

ANY: Size = (None, None)


@dataclass(frozen=True)
class Plan:
    """A graph planned for one framework.

    Attributes:
        realisations: by the path of each windowed node, its layers in the destination.
        size: the only input size (rows, columns) at which the graph and every pad are right; None if they are at every size.
    """

    graph: Graph
    realisations: Mapping[str, Realisation]
    size: tuple[int, int] | None


def make_plan(graph: Graph, size: Size, capabilities: Capabilities) -> Plan:
    """Decides the realisation of every site for an input of `size` (rows, columns; if one is None, right at every size).

    Raises:
        PaddingError: a site has no exact form in the destination; `where` is its path.
        GraphError: `size` is free, and the graph flattens a map, which fixes it.
    """
    size = ANY if None in size else size
    fixed = _flattened_map(graph)
    if fixed is not None and size == ANY:
        raise GraphError("what is flattened fixes the input's size", where=fixed, next="give --input-size the model's own size")
    known, nonnegative = shapes(graph, size), nonnegative_paths(graph)
    realisations: dict[str, Realisation] = {}
    for node in graph.nodes:
        site = site_of(node.op)
        if site is None:
            continue
        _, rows, columns = known[node.inputs[0]]
        try:
            realisations[node.path] = realise(site, (rows, columns), capabilities, node.inputs[0] in nonnegative)
        except PaddingError as error:
            raise PaddingError(error.message, where=node.path, next=error.next) from None
    rows, columns = size
    if rows is None or columns is None or (fixed is None and all(found.every_size for found in realisations.values())):
        return Plan(graph, realisations, None)
    return Plan(graph, realisations, (rows, columns))


def _flattened_map(graph: Graph) -> str | None:
    """The first Flatten whose map's size depends on the input's."""
    known = shapes(graph, ANY)
    flattened = (node for node in graph.nodes if isinstance(node.op, Flatten))
    return next((node.path for node in flattened if None in known[node.inputs[0]]), None)
