"""A graph's nodes in groups by the modules that the layers' names show: `stages.1.blocks.0.mlp.fc1` is in
four.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from porter.graph.blocks import layer_words
from porter.graph.blocks.outline import Group, Leaf, with_unique_names
from porter.graph.graph import Graph, Node
from porter.graph.walks import in_order

DEEP = 3
"""The parts of a name that show modules in modules: of fewer, chains and regions say more (outline.py)."""


@dataclass(frozen=True)
class _NodeParts:
    """A node and the parts of its layer's name, from some module on."""

    node: Node
    parts: tuple[str, ...]


def has_modules(names: Mapping[str, str]) -> bool:
    """Return whether most names are paths of modules."""
    return 2 * sum(len(_parts(name)) >= DEEP for name in names.values()) > len(names)


def modules(graph: Graph, names: Mapping[str, str]) -> Group:
    """Return the whole graph as nested groups, by the modules that are in its layers' names: `layer1/0/conv1`
    is in the group `0` of the group `layer1`. The members of a module
    with several inputs or outputs belong to its parent.

    Args:
        names: by path, what a person calls the layers.
    """
    order = in_order(graph.outputs, lambda path: graph.by_path[path].inputs if path in graph.by_path else ())
    parts = {path: _parts(names[path]) for path in order if path in graph.by_path}
    module_names = {own[:end] for own in parts.values() for end in range(1, len(own))}
    # A layer that has the name of a module is in it: the trained scale of a block.
    nodes = [
        _NodeParts(graph.by_path[path], (*own, "") if own in module_names else own)
        for path, own in parts.items()
    ]
    return Group("", with_unique_names(_Modules(graph).members(nodes)))


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[./]", name) if part)


class _Modules:
    def __init__(self, graph: Graph) -> None:
        self.readers: dict[str, set[str]] = {path: {""} for path in graph.outputs}
        for node in graph.nodes:
            for source in node.inputs:
                self.readers.setdefault(source, set()).add(node.path)

    def members(self, nodes: Sequence[_NodeParts]) -> list[Leaf | Group]:
        """Return the members of a group: modules within it, and nodes of its own."""
        members: list[Leaf | Group] = []
        for label, run in groupby(
            nodes, key=lambda placed: placed.parts[0] if len(placed.parts) > 1 else None
        ):
            own = list(run)
            if label is None:
                members += _leaves(own)
                continue
            members += self._module(label, [replace(each, parts=each.parts[1:]) for each in own])
        stages = {
            layer_words.split_number(member.name)[0]
            for member in members
            if isinstance(member, Group) and member.stage
        }
        return [
            replace(member, stage=True)
            if isinstance(member, Group) and layer_words.split_number(member.name)[0] in stages
            else member
            for member in members
        ]

    def _module(self, label: str, nodes: Sequence[_NodeParts]) -> list[Leaf | Group]:
        """Return a module as one group, or its members, under names that begin with the module's, if it has
        several inputs or outputs, or only holds numbered modules and has no number itself.
        """
        inner = self.members(nodes)
        name = layer_words.local_name(label)
        only = inner[0] if len(inner) == 1 else None
        if isinstance(only, Leaf) and layer_words.without_number(only.name) == name:
            return inner  # a module that is called several times: relu, relu_2
        holds_numbered = all(isinstance(member, Group) and member.counted for member in inner)
        if not self._is_region(nodes) or (holds_numbered and layer_words.split_number(name)[1] is None):
            return [replace(member, name=f"{name}{_joined_name(member)}") for member in inner]
        return [
            Group(name, with_unique_names(inner), module=True, counted=label.isdigit(), stage=_has_row(inner))
        ]

    def _is_region(self, nodes: Sequence[_NodeParts]) -> bool:
        """Return whether nodes read only one value of others, and others read only one of theirs, so that
        they can be a group.
        """
        within = {placed.node.path for placed in nodes}
        sources = {source for placed in nodes for source in placed.node.inputs if source not in within}
        return len(sources) == 1 and sum(bool(self.readers.get(path, set()) - within) for path in within) == 1


def _has_row(members: Sequence[Leaf | Group]) -> bool:
    """Return whether a numbered module reads the one before it, and both join values, as nothing beside them
    does.
    """
    if any(isinstance(member, Leaf) and len(member.node.inputs) > 1 for member in members):
        return False
    units = [
        member
        for member in members
        if isinstance(member, Group) and any(len(node.inputs) > 1 for node in member.nodes())
    ]
    return any(_comes_next(before, group) for before, group in pairwise(units))


def _comes_next(before: Group, group: Group) -> bool:
    """Return whether a group reads the one before it and has the next number."""
    stem_before, number_before = layer_words.split_number(before.name)
    stem, number = layer_words.split_number(group.name)
    paths_before = {node.path for node in before.nodes()}
    reads = any(source in paths_before for node in group.nodes() for source in node.inputs)
    return reads and stem == stem_before and number_before is not None and number == number_before + 1


def _joined_name(member: Leaf | Group) -> str:
    """Return what follows the name of a module that is not a group: `stages1` for 1 in stages, otherwise its
    member's name after a _.
    """
    if isinstance(member, Group) and member.counted:
        return member.name.removeprefix("unit")
    return f"_{member.name}"


def _leaves(nodes: Sequence[_NodeParts]) -> Iterator[Leaf]:
    """Yield layers by their own names; those without one, and those that are only numbered, by what they
    compute.
    """
    has_own_name = [placed.parts[0] != "" and not placed.parts[0].isdigit() for placed in nodes]
    computed = [layer_words.short_word(placed.node.op_name) for placed in nodes]
    counts = Counter(word for word, own in zip(computed, has_own_name, strict=True) if not own)
    numbers: Counter[str] = Counter()
    for placed, own, word in zip(nodes, has_own_name, computed, strict=True):
        numbers[word] += not own
        name = f"{word}{numbers[word]}" if counts[word] > 1 else word
        if own:
            name = layer_words.local_name(placed.parts[0])
        yield Leaf(name, placed.node)
