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
from porter.graph.walks import in_order, reads_within

DEEP = 3
"""The parts of a name that show modules in modules: of fewer, chains and regions say more (outline.py)."""


@dataclass(frozen=True)
class _NodeParts:
    """A node and the parts of its layer's name, from some module on."""

    node: Node
    parts: tuple[str, ...]


def has_modules(names: Mapping[str, str]) -> bool:
    """Return whether most names are paths of modules, such as `layer1.0.conv1`."""
    return 2 * sum(len(_parts(name)) >= DEEP for name in names.values()) > len(names)


def modules(graph: Graph, names: Mapping[str, str]) -> Group:
    """Return the whole graph as nested groups, by the modules that are in its layers' names: `layer1/0/conv1`
    is in the group `0` of the group `layer1`. The members of a module with several inputs or outputs belong
    to its parent.

    Args:
        names: by path, what a person calls the layers.
    """
    order = in_order(graph.outputs, reads_within(graph.by_path))
    parts_of = {path: _parts(names[path]) for path in order if path in graph.by_path}
    module_names = {parts[:end] for parts in parts_of.values() for end in range(1, len(parts))}
    # A layer that has the name of a module is in it, such as the trained scale of a block.
    nodes = [
        _NodeParts(graph.by_path[path], (*parts, "") if parts in module_names else parts)
        for path, parts in parts_of.items()
    ]
    return Group("", with_unique_names(_Modules(graph).members(nodes)))


def _parts(name: str) -> tuple[str, ...]:
    """Split a name at dots and slashes: `layer1.0.conv1` is layer1, 0, conv1."""
    return tuple(part for part in re.split(r"[./]", name) if part)


class _Modules:
    """The grouping of one graph's nodes by their modules.

    Attributes:
        readers: by the path of a value, the paths of the nodes that read it; "" stands for the caller, who
            reads outputs.
    """

    def __init__(self, graph: Graph) -> None:
        self.readers: dict[str, set[str]] = {path: {""} for path in graph.outputs}
        for node in graph.nodes:
            for source in node.inputs:
                self.readers.setdefault(source, set()).add(node.path)

    def members(self, nodes: Sequence[_NodeParts]) -> list[Leaf | Group]:
        """Return the members of a group: the modules within it as groups, and nodes that are in none of these
        as leaves. If a module is a stage, so are those beside it whose names differ by the number only.
        """

        def module_of(placed: _NodeParts) -> str | None:
            """Return the name of the module within the group that a node is in; None if it is in none."""
            return placed.parts[0] if len(placed.parts) > 1 else None

        members: list[Leaf | Group] = []
        for module, neighbours in groupby(nodes, key=module_of):
            if module is None:
                members += _leaves(list(neighbours))
            else:
                inner = [replace(placed, parts=placed.parts[1:]) for placed in neighbours]
                members += self._module(module, inner)
        stage_stems = {
            layer_words.stem(member.name) for member in members if isinstance(member, Group) and member.stage
        }
        return [
            replace(member, stage=True)
            if isinstance(member, Group) and layer_words.stem(member.name) in stage_stems
            else member
            for member in members
        ]

    def _module(self, label: str, nodes: Sequence[_NodeParts]) -> list[Leaf | Group]:
        """Return a module as one group, or its members, under names that begin with the module's, if it has
        several inputs or outputs, or only holds numbered modules and has no number itself.
        """
        members = self.members(nodes)
        name = layer_words.local_name(label)
        only_member = members[0] if len(members) == 1 else None
        if isinstance(only_member, Leaf) and layer_words.without_number(only_member.name) == name:
            return members  # a module that is called several times: relu, relu_2
        _, number = layer_words.split_number(name)
        only_holds_numbered = all(isinstance(member, Group) and member.counted for member in members)
        is_row = only_holds_numbered and number is None
        if is_row or not self._is_region(nodes):
            return [replace(member, name=f"{name}{_joined_name(member)}") for member in members]
        unique_members = with_unique_names(members)
        return [Group(name, unique_members, module=True, counted=label.isdigit(), stage=_has_row(members))]

    def _is_region(self, nodes: Sequence[_NodeParts]) -> bool:
        """Return whether nodes read only one value of others, and others read only one of theirs, so that
        they can be a group.
        """
        paths = {placed.node.path for placed in nodes}
        outer_sources = {source for placed in nodes for source in placed.node.inputs if source not in paths}
        read_outside = [path for path in paths if self.readers.get(path, set()) - paths]
        return len(outer_sources) == 1 and len(read_outside) == 1


def _has_row(members: Sequence[Leaf | Group]) -> bool:
    """Return whether a numbered module reads the one before it, and both join values, as nothing beside them
    does.
    """
    if any(isinstance(member, Leaf) and len(member.node.inputs) > 1 for member in members):
        return False
    joining_modules = [
        member
        for member in members
        if isinstance(member, Group) and any(len(node.inputs) > 1 for node in member.nodes())
    ]
    return any(_comes_next(before, group) for before, group in pairwise(joining_modules))


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
    compute: `conv`, or `conv1`, `conv2`, ... if there are several.
    """
    has_own_name = [placed.parts[0] != "" and not placed.parts[0].isdigit() for placed in nodes]
    op_words = [layer_words.short_word(placed.node.op_name) for placed in nodes]
    counts = Counter(word for word, is_named in zip(op_words, has_own_name, strict=True) if not is_named)
    numbers: Counter[str] = Counter()
    for placed, is_named, word in zip(nodes, has_own_name, op_words, strict=True):
        if is_named:
            yield Leaf(layer_words.local_name(placed.parts[0]), placed.node)
        else:
            numbers[word] += 1
            yield Leaf(f"{word}{numbers[word]}" if counts[word] > 1 else word, placed.node)
