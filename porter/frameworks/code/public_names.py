"""A plan under other paths, for frameworks that hold names with an underscore in front to be private, and so
neither save nor load what has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from porter.filegraph.names import Names
from porter.graph import Graph
from porter.graph.plan import Plan


def public_names(graph: Graph) -> dict[str, str]:
    """Return other paths for the nodes and blocks that have such a name in their path, by the path that they
    have: `_blocks/_bn0` is `blocks/bn0`.
    """
    paths = [*(node.path for node in graph.nodes), *(scope.path for scope in graph.scopes)]
    every = {path[:end] for path in paths for end in _path_ends(path)}
    # Paths without a part that begins with an underscore stay as they are.
    taken = Names(path for path in every if "_" not in (part[0] for part in path.split("/")))
    new: dict[str, str] = {"": ""}
    # Sorted, a path comes behind those around it.
    for path in sorted(every):
        around, _, name = path.rpartition("/")
        wanted = f"{new[around]}/{name.lstrip('_') or 'part'}".lstrip("/")
        new[path] = wanted if wanted == path else taken.take(wanted)
    return {path: new[path] for path in paths if new[path] != path}


def _path_ends(path: str) -> list[int]:
    """Return where the path of each block around a node ends in its path, and where the path itself ends."""
    return [*(place for place, letter in enumerate(path) if letter == "/"), len(path)]


def with_names(plan: Plan, names: Mapping[str, str]) -> Plan:
    """Return a plan whose lowered graph has other paths, given by those that it has."""
    if not names:
        return plan

    def new_path(path: str) -> str:
        return names.get(path, path)

    graph = plan.lowered
    nodes = tuple(
        replace(
            node,
            path=new_path(node.path),
            inputs=tuple(map(new_path, node.inputs)),
            shares=node.shares and new_path(node.shares),
        )
        for node in graph.nodes
    )
    scopes = tuple(replace(scope, path=new_path(scope.path)) for scope in graph.scopes)
    further = tuple(map(new_path, graph.further))
    return replace(
        plan,
        graph=replace(graph, nodes=nodes, scopes=scopes, output=new_path(graph.output), further=further),
        realisations={new_path(path): each for path, each in plan.realisations.items()},
        notes={new_path(path): note for path, note in plan.notes.items()},
        parts={},
    )
