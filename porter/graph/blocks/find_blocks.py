"""The finder of blocks: repeated parts of a graph, and the paths that show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from porter.graph.blocks import layer_words
from porter.graph.blocks.block_uses import with_blocks
from porter.graph.blocks.modules import has_modules, modules
from porter.graph.blocks.numbered_groups import pair_chains, renumber
from porter.graph.blocks.outline import Group, Leaf, outline, with_unique_names
from porter.graph.blocks.repeated_calls import name_calls_as_first
from porter.graph.graph import BlockScope, Graph, Node, rename_paths, tensor_shapes, with_own_tensors


@dataclass(frozen=True)
class Found:
    """A graph whose paths show its blocks: `stage1/unit1/conv2`.

    Attributes:
        graph: the same function; its scopes are the uses of blocks that are used twice or more.
        paths: the paths of the nodes in the graph that was given, by their new ones.
    """

    graph: Graph
    paths: Mapping[str, str]


def find_blocks(graph: Graph, names: Mapping[str, str]) -> Found:
    """Find the blocks of a graph by how its values flow and by the names of its layers, and return the graph
    with paths that show them.

    Args:
        names: what the layers are called, by path.
    """
    names_of_calls = name_calls_as_first(graph, names)
    spoken_names = layer_words.as_people_say(names_of_calls)
    renamed_calls = sum(names_of_calls[path] != name for path, name in names.items())
    calls_modules_again = 3 * renamed_calls > len(names)
    if has_modules(spoken_names) or calls_modules_again:
        root = with_blocks(modules(graph, spoken_names))
    else:
        root = _outline_by_names(graph, spoken_names)
    nodes_by_path = list(_nodes_with_paths(root, ""))
    ordered = replace(graph, nodes=tuple(node for _, node in nodes_by_path))
    new_paths = {node.path: path for path, node in nodes_by_path}
    graph_of_blocks = rename_paths(with_own_tensors(ordered), new_paths)
    scopes = tuple(_scopes(root, ""))
    return Found(replace(graph_of_blocks, scopes=scopes), {path: node.path for path, node in nodes_by_path})


def _outline_by_names(graph: Graph, names: Mapping[str, str]) -> Group:
    """Group the graph by the names of all layers, or by those of layers with tensors if fewer than half as
    many nodes are left over then: sums and activations may be called otherwise.
    """
    names_with_tensors = {path: names[path] for path in tensor_shapes(graph) if path in names}
    by_all_names, by_names_with_tensors = (
        _dissolve_other_groups(renumber(with_blocks(pair_chains(outline(graph, known_names)))))
        for known_names in (names, names_with_tensors)
    )
    leaves_fewer = 2 * _count_loose(by_names_with_tensors) < _count_loose(by_all_names)
    return by_names_with_tensors if leaves_fewer else by_all_names


def _count_loose(group: Group) -> int:
    """Return how many nodes are in no block. Those in a chain that was found by its ops count too."""
    if group.block is not None and not group.unit:
        return 0
    return sum(_count_loose(member) if isinstance(member, Group) else 1 for member in group.members)


def _dissolve_other_groups(root: Group) -> Group:
    """Replace the outermost groups that are not blocks and hold none by their nodes, under the paths that
    these had.
    """
    members: list[Leaf | Group] = []
    for member in root.members:
        if isinstance(member, Group) and member.block is None and not any(_scopes(member, "")):
            members += [Leaf(node.path.replace("/", "_"), node) for node in member.nodes()]
        else:
            members.append(member)
    return replace(root, members=with_unique_names(members))


def _nodes_with_paths(group: Group, prefix: str) -> Iterator[tuple[str, Node]]:
    """Yield the nodes of a group with their new paths."""
    for member in group.members:
        if isinstance(member, Group):
            yield from _nodes_with_paths(member, f"{prefix}{member.name}/")
        else:
            yield prefix + member.name, member.node


def _scopes(group: Group, prefix: str) -> Iterator[BlockScope]:
    """Yield the uses of blocks in a group, outermost first."""
    for member in group.members:
        if isinstance(member, Group):
            path = prefix + member.name
            if member.block is not None:
                yield BlockScope(path, member.block, {})
            yield from _scopes(member, f"{path}/")
