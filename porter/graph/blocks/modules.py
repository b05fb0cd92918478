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
from porter.graph.blocks.outline import Group, Leaf, distinct
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
    """Whether most names are paths of modules."""
    return 2 * sum(len(_parts(name)) >= DEEP for name in names.values()) > len(names)


def modules(graph: Graph, names: Mapping[str, str]) -> Group:
    """The whole graph as nested groups. A module with several inputs or outputs is not a group: its members
    are its parent's.

    Args:
        names: what the layers are called, by path, as a person says them.
    """
    order = in_order(graph.outputs, lambda path: graph.by_path[path].inputs if path in graph.by_path else ())
    parts = {path: _parts(names[path]) for path in order if path in graph.by_path}
    around = {own[:end] for own in parts.values() for end in range(1, len(own))}
    # A layer that has the name of a module is in it: the trained scale of a block.
    nodes = [
        _NodeParts(graph.by_path[path], (*own, "") if own in around else own) for path, own in parts.items()
    ]
    return Group("", distinct(_Modules(graph).members(nodes)))


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[./]", name) if part)


class _Modules:
    def __init__(self, graph: Graph) -> None:
        self.readers: dict[str, set[str]] = {path: {""} for path in graph.outputs}
        for node in graph.nodes:
            for source in node.inputs:
                self.readers.setdefault(source, set()).add(node.path)

    def members(self, nodes: Sequence[_NodeParts]) -> list[Leaf | Group]:
        """The members of a group: modules within it, and nodes of its own."""
        members: list[Leaf | Group] = []
        for label, run in groupby(
            nodes, key=lambda placed: placed.parts[0] if len(placed.parts) > 1 else None
        ):
            own = list(run)
            if label is None:
                members += _leaves(own)
                continue
            members += self._module(label, [replace(one, parts=one.parts[1:]) for one in own])
        stages = {
            layer_words.numbered(member.name)[0]
            for member in members
            if isinstance(member, Group) and member.stage
        }
        return [
            replace(member, stage=True)
            if isinstance(member, Group) and layer_words.numbered(member.name)[0] in stages
            else member
            for member in members
        ]

    def _module(self, label: str, nodes: Sequence[_NodeParts]) -> list[Leaf | Group]:
        """A module as one group; as its members, where it only holds numbered ones or has several inputs or
        outputs.
        """
        inner, name = self.members(nodes), layer_words.local_name(label)
        if (
            len(inner) == 1
            and isinstance(inner[0], Leaf)
            and layer_words.without_number(inner[0].name) == name
        ):
            return inner  # a module that is called several times: relu, relu_2
        numbered = all(isinstance(member, Group) and member.counted for member in inner)
        if not self._is_region(nodes) or (numbered and layer_words.numbered(name)[1] is None):
            return [replace(member, name=f"{name}{_joined(member)}") for member in inner]
        return [Group(name, distinct(inner), module=True, counted=label.isdigit(), stage=_has_row(inner))]

    def _is_region(self, nodes: Sequence[_NodeParts]) -> bool:
        """Whether nodes read one value of others, and others read one of theirs."""
        within = {placed.node.path for placed in nodes}
        sources = {source for placed in nodes for source in placed.node.inputs if source not in within}
        return len(sources) == 1 and sum(bool(self.readers.get(path, set()) - within) for path in within) == 1


def _has_row(members: Sequence[Leaf | Group]) -> bool:
    """Whether a numbered module reads the one before it, and both join values, as nothing beside them
    does.
    """
    if any(isinstance(member, Leaf) and len(member.node.inputs) > 1 for member in members):
        return False
    units = [
        member
        for member in members
        if isinstance(member, Group) and any(len(node.inputs) > 1 for node in member.nodes())
    ]
    return any(_follows(one, other) for one, other in pairwise(units))


def _follows(before: Group, group: Group) -> bool:
    """Whether a group reads the one before it and has the next number."""
    (stem, number), (other, after) = layer_words.numbered(before.name), layer_words.numbered(group.name)
    given = {node.path for node in before.nodes()}
    reads = any(source in given for node in group.nodes() for source in node.inputs)
    return reads and stem == other and number is not None and after == number + 1


def _joined(member: Leaf | Group) -> str:
    """What follows the name of a module that is not a group: `stages1` for 1 in stages, otherwise with a line
    between.
    """
    if isinstance(member, Group) and member.counted:
        return member.name.removeprefix("unit")
    return f"_{member.name}"


def _leaves(nodes: Sequence[_NodeParts]) -> Iterator[Leaf]:
    """Layers by their own names; those without one, and those that are only numbered, by what they
    compute.
    """
    named = [placed.parts[0] != "" and not placed.parts[0].isdigit() for placed in nodes]
    computed = [layer_words.short_word(placed.node.op_name) for placed in nodes]
    counts = Counter(word for word, own in zip(computed, named, strict=True) if not own)
    numbers: Counter[str] = Counter()
    for placed, own, word in zip(nodes, named, computed, strict=True):
        numbers[word] += not own
        name = f"{word}{numbers[word]}" if counts[word] > 1 else word
        if own:
            name = layer_words.local_name(placed.parts[0])
        yield Leaf(name, placed.node)
