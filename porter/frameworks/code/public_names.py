"""A plan under other paths, for frameworks that hold names with an underscore in front to be private, and so
neither save nor load what has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from porter.filegraph.names import Names
from porter.graph import Graph, rename_paths
from porter.graph.plan import Plan


def public_names(graph: Graph) -> dict[str, str]:
    """Return new paths for the nodes and blocks in whose path a name begins with an underscore, by their old
    path: `{"_blocks/_bn0": "blocks/bn0"}`. Two paths do not become one: a number is added to the second.
    """
    paths = [*(node.path for node in graph.nodes), *(scope.path for scope in graph.scopes)]
    paths_and_containers = {path[:end] for path in paths for end in _path_ends(path)}
    # Paths without a part that begins with an underscore stay as they are.
    taken = Names(path for path in paths_and_containers if "_" not in (part[0] for part in path.split("/")))
    new: dict[str, str] = {"": ""}
    # Sorted, a path comes behind those around it.
    for path in sorted(paths_and_containers):
        container, _, name = path.rpartition("/")
        wanted = f"{new[container]}/{name.lstrip('_') or 'part'}".lstrip("/")
        new[path] = wanted if wanted == path else taken.take(wanted)
    return {path: new[path] for path in paths if new[path] != path}


def _path_ends(path: str) -> list[int]:
    """Return how long the paths of the containers around a node are, and its own: [4, 9] of `stem/conv`."""
    return [*(place for place, letter in enumerate(path) if letter == "/"), len(path)]


def with_names(plan: Plan, names: Mapping[str, str]) -> Plan:
    """Return a plan whose lowered graph has other paths.

    Args:
        names: the new paths by the old ones; paths without one stay.
    """
    if not names:
        return plan

    def new_path(path: str) -> str:
        return names.get(path, path)

    return replace(
        plan,
        graph=rename_paths(plan.lowered, names),
        realisations={new_path(path): realised for path, realised in plan.realisations.items()},
        notes={new_path(path): note for path, note in plan.notes.items()},
        parts={},
    )
