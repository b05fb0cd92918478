"""The decision at each padding site, for port.json and the tables; and other conventions at the sites of a
graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import BaseModel, ConfigDict

from porter.graph import AvgPool, Conv, Graph, MaxPool, Node, site_of
from porter.graph.plan import Plan
from porter.padding import Convention


class PadDecision(BaseModel):
    """The decision at one padding site."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    site: str
    source: str
    realised: str
    kind: str
    why: str

    @property
    def is_native(self) -> bool:
        """Whether an attribute of the destination's own layer says the pad."""
        return self.kind == "native"


def pads_of(plan: Plan) -> tuple[PadDecision, ...]:
    """Return the table of padding sites: the source's convention, its realisation in the destination, and
    why.
    """
    return tuple(
        PadDecision(
            site=path,
            source=str(site_of(plan.lowered.by_path[path].op)),
            realised=str(realisation),
            kind=realisation.kind,
            why=realisation.why,
        )
        for path, realisation in plan.realisations.items()
    )


def with_conventions(graph: Graph, conventions: Mapping[str, Convention]) -> Graph:
    """Return the graph in which the padding sites at these paths have these conventions."""
    return replace(graph, nodes=tuple(_with_convention(node, conventions) for node in graph.nodes))


def _with_convention(node: Node, conventions: Mapping[str, Convention]) -> Node:
    """Return a node with the convention at its path; as it is if there is none, or it is no padding site."""
    if node.path not in conventions or not isinstance(node.op, Conv | MaxPool | AvgPool):
        return node
    return replace(node, op=replace(node.op, convention=conventions[node.path]))
