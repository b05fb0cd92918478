"""Groups that are uses of one block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

from porter.graph.blocks import layer_words
from porter.graph.blocks.outline import Group, Leaf
from porter.graph.graph import Node
from porter.graph.ops import OPS, Conv
from porter.graph.walks import upstream

ALIKE = 0.8
"""The share of a group's members that a block of another name must have, for the group to be a use of it."""
ALIKE_BY_NAME = 0.6
"""The share that a block must have whose uses have the group's name."""
LEAST_SHARE = 0.4
"""The least size of a group compared with its block's, whose uses have the group's name."""
HALF = 0.5
"""The least size of a group compared with a block of another name."""

_MOST_KINDS = 128
"""Blocks of a graph: each group is compared with each of them, and what is a use of none is written out."""

T = TypeVar("T")
PartKind = tuple[str, str]
"""A member's name and what it is."""


class Unlike(Exception):
    """The uses of a block differ too much to be written as one."""


@dataclass
class _Kind:
    """A block in the making: the parts that its uses have, in one order.

    Attributes:
        flow: what each part reads, if the uses may not differ in it.
        stems: of the names of its uses.
        known: identities of its uses.
        within: identities of the groups in its uses.
        members: names of the groups that its uses hold directly.
    """

    parts: list[PartKind]
    flow: object
    uses: list[Group] = field(default_factory=list)
    stems: Counter[str] = field(default_factory=Counter)
    known: set[int] = field(default_factory=set)
    within: set[int] = field(default_factory=set)
    members: set[str] = field(default_factory=set)

    def add(self, group: Group, parts: Sequence[PartKind], within: set[int]) -> None:
        """Add a use, whose parts this kind then has too."""
        self.uses.append(group)
        self.stems[_stem(group)] += 1
        self.known.add(id(group))
        self.within |= within
        self.members |= _names_of_groups(group)
        merge(parts, self.parts)


def with_blocks(root: Group) -> Group:
    """Return the groups, with the name of their block for those that are uses of one: chains that were found
    by their ops first, then others. Stages, and groups of only norms and activations, are no uses.
    """
    taken: set[str] = set(OPS)
    for units in (True, False):
        kinds: list[_Kind] = []
        groups = [
            group
            for group in _groups(root)
            if group.unit is units and not is_stage(group) and not _is_norm_and_activation(group)
        ]
        # the largest first, since smaller ones may lack some of a block's parts
        for group in sorted(groups, key=lambda group: -len(group.members)):
            _add_to_kind(group, kinds)
        names: dict[int, str] = {}  # of blocks, by the identity of each use
        index_of = {id(group): index for index, group in enumerate(groups)}
        for kind in sorted(kinds, key=lambda kind: min(index_of[id(use)] for use in kind.uses)):
            if _shortens(kind):
                name = _name(kind, taken)
                names |= dict.fromkeys(map(id, kind.uses), name)
                taken.add(name)
        root = _with_block_names(root, names)
    # of each block, where it is used: in which other block, and under which path there
    places: dict[str, set[tuple[str | None, str]]] = {}
    for block, place in _places(root, None, ""):
        places.setdefault(block, set()).add(place)
    outer_blocks = {
        block: [outer for outer, _ in found if outer is not None] for block, found in places.items()
    }
    # A block cannot hold itself, not even in a block that stands in another use of it.
    endless = {
        block
        for block, outer in outer_blocks.items()
        if block in upstream(outer, lambda name: outer_blocks[name])
    }
    # part of the one block that uses it
    used_once = {block for block, (place, *others) in places.items() if not others and place[0] is not None}
    return _without_blocks(root, used_once | endless)


def _places(group: Group, outer: str | None, prefix: str) -> Iterator[tuple[str, tuple[str | None, str]]]:
    """Yield, for each use of a block within a group, the block's name, and where it is used: in which other
    block, None outside of all, and under which path there.

    Args:
        outer: the block around the group.
        prefix: the beginning of paths in it.
    """
    for member in group.members:
        if isinstance(member, Group):
            path = f"{prefix}{member.name}"
            if member.block is None:
                yield from _places(member, outer, f"{path}/")
            else:
                yield member.block, (outer, path)
                yield from _places(member, member.block, "")


def _without_blocks(group: Group, blocks: set[str]) -> Group:
    """Return the group without `blocks`, which are used in one place of one block only, and so are part of
    that.
    """
    members = tuple(
        _without_blocks(member, blocks) if isinstance(member, Group) else member for member in group.members
    )
    return replace(group, members=members, block=None if group.block in blocks else group.block)


def is_stage(group: Group) -> bool:
    """Return whether a group holds a row of modules; without modules, only other groups that are not chains
    found by their ops.
    """
    if group.module:
        return group.stage
    return all(isinstance(member, Group) and not member.unit for member in group.members)


def _is_norm_and_activation(group: Group) -> bool:
    """Return whether a group is only norms and activations."""
    return all(
        isinstance(member, Leaf) and layer_words.belongs_to_previous(member.node.op_name)
        for member in group.members
    )


def _groups(group: Group) -> Iterator[Group]:
    """Yield the groups within a group, outermost first."""
    for member in group.members:
        if isinstance(member, Group):
            yield member
            yield from _groups(member)


def _add_to_kind(group: Group, kinds: list[_Kind]) -> None:
    """Add a group to the kind that it is like, or as a kind of its own."""
    parts = [_part_kind(member) for member in group.members]
    stem = _stem(group)
    has_own_name = [isinstance(member, Leaf) and member.own for member in group.members]
    within = {id(each) for each in _groups(group)}
    is_named = group.module or 2 * sum(has_own_name) >= len(has_own_name)
    flow = None if is_named else _flow(group)  # without names, the flow has to be the same
    for kind in kinds:
        if kind.flow is not None or flow is not None:
            # without names, uses have the same parts, and each reads the same
            fits = kind.flow == flow and kind.parts == parts
        else:
            wanted, least = (ALIKE_BY_NAME, LEAST_SHARE) if stem in kind.stems else (ALIKE, HALF)
            has_size = least * len(kind.parts) <= len(parts) and wanted * len(parts) <= len(kind.parts)
            fits = has_size and _fits(group, parts, kind, wanted)
        if fits and id(group) not in kind.within and within.isdisjoint(kind.known):
            kind.add(group, parts, within)
            return
    if len(kinds) < _MOST_KINDS:
        new_kind = _Kind([], flow)
        new_kind.add(group, parts, within)
        kinds.append(new_kind)


def _fits(group: Group, parts: Sequence[PartKind], kind: _Kind, wanted: float) -> bool:
    """Return whether a group has `wanted` of its parts in common with a kind, in the same order, and no part
    of another's name.
    """
    index_of = {part: index for index, part in enumerate(kind.parts)}
    order = [index_of[part] for part in parts if part in index_of]
    names = {name for name, _ in kind.parts}
    if group.module:  # a shortcut may be a pool in one use, and a module of its own in another
        names -= _names_of_groups(group) | kind.members
    has_common_parts = order == sorted(order) and len(order) >= wanted * len(parts)
    return has_common_parts and all(part in index_of or part[0] not in names for part in parts)


def _names_of_groups(group: Group) -> set[str]:
    """Return the names of the groups that a group holds directly."""
    return {member.name for member in group.members if isinstance(member, Group)}


def _stem(group: Group) -> str:
    """Return a group's name without its number."""
    return layer_words.split_number(group.name)[0]


def _shortens(kind: _Kind) -> bool:
    """Return whether the block and a line for each use are shorter than all steps."""
    steps = sum(len(group.members) for group in kind.uses)
    return len(kind.uses) > 1 and steps > len(kind.uses) + len(kind.parts) + 3


def merge(order: Iterable[T], into: list[T]) -> None:
    """Insert into the list `into` what it lacks of `order`, each new part behind the part that stands before
    it in `order`.
    """
    position_of = {part: position for position, part in enumerate(into, 1)}
    position = 0
    behind: dict[int, list[list[T]]] = {0: [[]]}  # the new parts behind each position, those added last first
    for part in order:
        if part in position_of:
            position = position_of[part]
            behind.setdefault(position, []).insert(0, [])
        else:
            behind[position][0].append(part)
    into[:] = [
        part
        for position in range(len(into) + 1)
        for part in (*into[position - 1 : position], *chain(*behind.get(position, ())))
    ]


def merge_orders(orders: Sequence[Sequence[str]]) -> list[str]:
    """Return one order of all names in which each of `orders` is kept.

    Raises:
        Unlike: there is none.
    """
    order_of_all = [*max(orders, key=lambda order: len(order))]
    for order in orders:
        merge(order, order_of_all)
    for order in orders:
        own = set(order)
        if [name for name in order_of_all if name in own] != list(order):
            raise Unlike
    return order_of_all


def _part_kind(member: Leaf | Group) -> PartKind:
    """Return the pair by which members of different uses are matched: a member's name, and what it is. That
    is a group's block, or its own name if it is a use of none, and the kind of a node's op.
    """
    if isinstance(member, Group):
        return member.name, member.block or member.name
    return member.name, kind_of(member.node)


def kind_of(node: Node) -> str:
    """Return what a node is: ops that stand for each other in uses of one block are one kind."""
    if isinstance(node.op, Conv):
        return "depthwise" if node.op.groups > 1 else "conv"
    return layer_words.short_word(node.op_name)


def _flow(group: Group) -> object:
    """Return, for each member, the names of the earlier members that it reads, or "" for what comes from
    outside of the group; members of two groups with the same flow read the same.
    """
    owners = {
        node.path: member.name
        for member in group.members
        for node in ((member.node,) if isinstance(member, Leaf) else member.nodes())
    }
    flow = []
    for member in group.members:
        nodes = (member.node,) if isinstance(member, Leaf) else tuple(member.nodes())
        within = {node.path for node in nodes}
        flow.append(
            tuple(owners.get(source, "") for node in nodes for source in node.inputs if source not in within)
        )
    return tuple(flow)


def _name(kind: _Kind, taken: set[str]) -> str:
    """Return a name for a block that is not taken: what most of its uses are called, or the ops that it
    has.
    """
    first = kind.uses[0]
    if first.unit:
        stem = "_".join(
            leaf.node.op_name if leaf.name.startswith("act") else leaf.name
            for leaf in first.members
            if isinstance(leaf, Leaf)
        )
    else:
        stem = max(kind.stems, key=lambda stem: (kind.stems[stem], stem)) or "unit"
    stem = stem.strip("_")
    stem = f"{stem}_block" if stem in OPS else stem
    name, letter = stem, "b"
    while name in taken:
        name, letter = f"{stem}_{letter}", chr(ord(letter) + 1)
    return name


def _with_block_names(group: Group, blocks: dict[int, str]) -> Group:
    """Return the group, and those within it, with the names of their blocks."""
    members = tuple(
        _with_block_names(member, blocks) if isinstance(member, Group) else member for member in group.members
    )
    return replace(group, members=members, block=blocks.get(id(group), group.block))
