"""The finder of blocks: repeated parts of a graph, and the paths that show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from porter.graph.blocks import layer_words
from porter.graph.blocks.block_uses import with_blocks
from porter.graph.blocks.modules import has_modules, modules
from porter.graph.blocks.numbered_groups import paired, renumbered
from porter.graph.blocks.outline import Group, Leaf, distinct, outline
from porter.graph.blocks.repeated_calls import named_as_first
from porter.graph.graph import BlockScope, Graph, Node, tensor_shapes, with_own_tensors


@dataclass(frozen=True)
class Found:
    """A graph whose paths show its blocks.

    Attributes:
        graph: the same function; its scopes are the uses of blocks that are used twice or more.
        paths: by path, the node's path in the graph that was given.
    """

    graph: Graph
    paths: Mapping[str, str]


def find_blocks(graph: Graph, names: Mapping[str, str]) -> Found:
    """Finds the blocks of a graph by how its values flow and by the names of its layers.

    Args:
        names: what the layers are called, by path.
    """
    called = named_as_first(graph, names)
    spoken = layer_words.spoken(called)
    again = sum(called[path] != name for path, name in names.items())
    root = (
        with_blocks(modules(graph, spoken))
        if has_modules(spoken) or 3 * again > len(names)
        else _by_names(graph, spoken)
    )
    placed = list(_placed(root, ""))
    ordered = replace(graph, nodes=tuple(node for _, node in placed))
    graph_of_blocks = renamed(with_own_tensors(ordered), {node.path: path for path, node in placed})
    return Found(
        replace(graph_of_blocks, scopes=tuple(_scopes(root, ""))), {path: node.path for path, node in placed}
    )


def _by_names(graph: Graph, names: Mapping[str, str]) -> Group:
    """The groups by the names of all layers; by those of layers with tensors, if fewer than half as many
    nodes are left over then: sums and activations may be called otherwise.
    """
    weighted = {path: names[path] for path in tensor_shapes(graph) if path in names}
    every, some = (
        _without_parts(renumbered(with_blocks(paired(outline(graph, known))))) for known in (names, weighted)
    )
    return some if 2 * _loose(some) < _loose(every) else every


def _loose(group: Group) -> int:
    """How many nodes are in no block but chains that were found by their ops."""
    if group.block is not None and not group.unit:
        return 0
    return sum(_loose(member) if isinstance(member, Group) else 1 for member in group.members)


def renamed(graph: Graph, paths: Mapping[str, str]) -> Graph:
    """The graph with other paths, by those that it has; it has no scopes then."""

    def new(path: str) -> str:
        return paths.get(path, path)

    nodes = tuple(
        replace(
            node,
            path=new(node.path),
            inputs=tuple(map(new, node.inputs)),
            shares=node.shares and new(node.shares),
        )
        for node in graph.nodes
    )
    return replace(
        graph, nodes=nodes, output=new(graph.output), further=tuple(map(new, graph.further)), scopes=()
    )


def _without_parts(root: Group) -> Group:
    """The outermost groups that are not blocks and have none, as their nodes under the paths that they
    had.
    """
    members: list[Leaf | Group] = []
    for member in root.members:
        if isinstance(member, Group) and member.block is None and not any(_scopes(member, "")):
            members += [Leaf(node.path.replace("/", "_"), node) for node in member.nodes()]
        else:
            members.append(member)
    return replace(root, members=distinct(members))


def _placed(group: Group, prefix: str) -> Iterator[tuple[str, Node]]:
    """The nodes of a group with their paths."""
    for member in group.members:
        if isinstance(member, Group):
            yield from _placed(member, f"{prefix}{member.name}/")
        else:
            yield prefix + member.name, member.node


def _scopes(group: Group, prefix: str) -> Iterator[BlockScope]:
    """The uses of blocks in a group, outermost first."""
    for member in group.members:
        if isinstance(member, Group):
            path = prefix + member.name
            if member.block is not None:
                yield BlockScope(path, member.block, {})
            yield from _scopes(member, f"{path}/")
