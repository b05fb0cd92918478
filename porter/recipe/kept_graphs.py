"""The graphs that were made of a recipe, which it keeps: to expand one takes long, and zoos often have one
graph, because other weights of the same code are another zoo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from porter.graph import Graph
from porter.recipe.source import Location


class TooLarge(Exception):
    """A graph has more nodes than it may have."""


class Expanded(NamedTuple):
    """A graph, and the step in the recipe that each of its nodes and each use of a block is from."""

    graph: Graph
    steps: Mapping[str, Location]


@dataclass
class KeptGraphs:
    """Graphs by what they are of, each with all that decided it: of a variant, as its steps were unrolled; of
    a variant and a zoo, as it was checked against the zoo.
    """

    _kept: dict[str | tuple[str, str], list[tuple[object, Expanded]]] = field(default_factory=dict)

    def find(self, of: str | tuple[str, str], decided_by: object, most: int) -> Expanded | None:
        """Return the graph that was kept; None if there is none.

        Raises:
            TooLarge: it has more than `most` nodes.
        """
        for key, expanded in self._kept.get(of, ()):
            if key == decided_by:
                if len(expanded.graph.nodes) > most:
                    raise TooLarge
                return expanded
        return None

    def keep(self, of: str | tuple[str, str], decided_by: object, expanded: Expanded) -> None:
        """Keep a graph."""
        self._kept.setdefault(of, []).append((decided_by, expanded))
