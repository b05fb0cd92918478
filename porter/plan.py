"""The plan of a destination model: the graph, and the realisation of each padding site in the destination framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from porter.errors import PaddingError
from porter.graph import Graph, nonnegative_paths, shapes, site_of
from porter.padding import Capabilities, Realisation, Size, realise

ANY: Size = (None, None)


@dataclass(frozen=True)
class Plan:
    """A graph planned for one framework.

    Attributes:
        realisations: by the path of each windowed node, its layers in the destination.
        size: the only input size (rows, columns) at which every pad is right, or None if they are right at every size.
    """

    graph: Graph
    realisations: Mapping[str, Realisation]
    size: tuple[int, int] | None


def make_plan(graph: Graph, size: Size, capabilities: Capabilities) -> Plan:
    """Decides the realisation of every site for an input of `size` (rows, columns; if one is None, right at every size).

    Raises:
        PaddingError: a site has no exact form in the destination; `where` is its path.
    """
    size = ANY if None in size else size
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
    if rows is None or columns is None or all(realisation.every_size for realisation in realisations.values()):
        return Plan(graph, realisations, None)
    return Plan(graph, realisations, (rows, columns))
