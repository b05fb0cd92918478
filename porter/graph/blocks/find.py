"""The finder of blocks: repeated parts of a graph, and the paths that show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from porter.graph.blocks.kinds import with_blocks
from porter.graph.blocks.outline import Group, outline
from porter.graph.blocks.rows import paired, renumbered
from porter.graph.graph import Graph, Node, Scope


@dataclass(frozen=True)
class Found:
    """A graph whose paths show its blocks.

    Attributes:
        graph: the same function; its scopes are the uses of blocks that are used twice or more.
        names: what the layers were called, by path.
    """

    graph: Graph
    names: Mapping[str, str]


def find_blocks(graph: Graph, names: Mapping[str, str]) -> Found:
    """Finds the blocks of a graph by how its values flow and by the names of its layers.

    Args:
        names: what the layers are called, by path.
    """
    root = renumbered(with_blocks(paired(outline(graph, names))))
    placed = list(_placed(root, ""))
    paths = {node.path: path for path, node in placed}
    nodes = tuple(
        replace(node, path=path, inputs=tuple(paths.get(source, source) for source in node.inputs)) for path, node in placed
    )
    output, *further = (paths[path] for path in graph.outputs)
    found = Graph(nodes, graph.channels, output, tuple(_scopes(root, "")), tuple(further))
    return Found(found, {paths[path]: name for path, name in names.items() if path in paths})


def _placed(group: Group, prefix: str) -> Iterator[tuple[str, Node]]:
    for member in group.members:
        if isinstance(member, Group):
            yield from _placed(member, f"{prefix}{member.name}/")
        else:
            yield prefix + member.name, member.node


def _scopes(group: Group, prefix: str) -> Iterator[Scope]:
    for member in group.members:
        if isinstance(member, Group):
            path = prefix + member.name
            if member.block is not None:
                yield Scope(path, member.block, {})
            yield from _scopes(member, f"{path}/")
