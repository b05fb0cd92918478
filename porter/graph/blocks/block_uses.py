"""Groups that are uses of one block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

from porter.graph.blocks import layer_words
from porter.graph.blocks.outline import Group, Leaf, kind_of
from porter.graph.ops import OPS
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
    """A block in the making: groups that are like each other become its uses.

    Attributes:
        parts: those that its uses have, in one order.
        flow: what each part reads (`_flow`), if the uses may not differ in it; otherwise None.
        uses: the groups.
        stems: how often each name without its number is that of a use.
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
        self.stems[layer_words.stem(group.name)] += 1
        self.known.add(id(group))
        self.within |= within
        self.members |= _names_of_groups(group)
        merge(parts, self.parts)


def with_blocks(root: Group) -> Group:
    """Return the groups, with the name of their block for those that are uses of one: chains that were found
    by their ops first, then others. Stages, and groups of only norms and activations, are no uses.
    """
    taken: set[str] = set(OPS)
    for are_units in (True, False):
        groups = [
            group
            for group in _groups(root)
            if group.unit is are_units and not is_stage(group) and not _is_norm_and_activation(group)
        ]
        root = _with_block_names(root, _name_blocks(groups, taken))
    # of each block, where it is used: in which other block, and under which path there
    places: dict[str, set[tuple[str | None, str]]] = {}
    for block, place in _places(root, None, ""):
        places.setdefault(block, set()).add(place)
    outer_blocks = {
        block: [outer for outer, _ in block_places if outer is not None]
        for block, block_places in places.items()
    }
    # a block cannot hold itself, not even in a block that stands in another use of it
    endless = {
        block
        for block, outer in outer_blocks.items()
        if block in upstream(outer, lambda name: outer_blocks[name])
    }
    # a block that is used in one place of one other block is a part of that
    used_once = {
        block
        for block, ((outer, _), *other_places) in places.items()
        if not other_places and outer is not None
    }
    return _without_blocks(root, used_once | endless)


def _name_blocks(groups: Sequence[Group], taken: set[str]) -> dict[int, str]:
    """Find the groups that are uses of one block, and return the block's name by the identity of each use.

    Args:
        taken: names that blocks may not have; the new ones are added.
    """
    kinds: list[_Kind] = []
    # the largest first, since smaller ones may lack some of a block's parts
    for group in sorted(groups, key=lambda group: -len(group.members)):
        _add_to_kind(group, kinds)
    names: dict[int, str] = {}
    index_of = {id(group): index for index, group in enumerate(groups)}
    for kind in sorted(kinds, key=lambda kind: min(index_of[id(use)] for use in kind.uses)):
        if _shortens(kind):
            name = _name(kind, taken)
            names |= dict.fromkeys(map(id, kind.uses), name)
            taken.add(name)
    return names


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
    """Return the group in which the uses of these blocks are no uses any more, but part of the block around
    them.
    """
    members = tuple(
        _without_blocks(member, blocks) if isinstance(member, Group) else member for member in group.members
    )
    return replace(group, members=members, block=None if group.block in blocks else group.block)


def is_stage(group: Group) -> bool:
    """Return whether a group is a stage: a module that holds a row of modules or, among groups that are no
    modules, one that holds only groups, none of them a chain found by its ops.
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
    stem = layer_words.stem(group.name)
    has_own_name = [isinstance(member, Leaf) and member.own for member in group.members]
    groups_within = {id(inner) for inner in _groups(group)}
    is_named = group.module or 2 * sum(has_own_name) >= len(has_own_name)
    flow = None if is_named else _flow(group)
    for kind in kinds:
        if kind.flow is not None or flow is not None:
            # without names, uses have the same parts, and each reads the same
            fits = kind.flow == flow and kind.parts == parts
        else:
            common_share, least_size = (ALIKE_BY_NAME, LEAST_SHARE) if stem in kind.stems else (ALIKE, HALF)
            is_large_enough = len(parts) >= least_size * len(kind.parts)
            is_small_enough = common_share * len(parts) <= len(kind.parts)
            fits = is_large_enough and is_small_enough and _fits(group, parts, kind, common_share)
        # no use of a block holds another use of it
        is_nested = id(group) in kind.within or not groups_within.isdisjoint(kind.known)
        if fits and not is_nested:
            kind.add(group, parts, groups_within)
            return
    if len(kinds) < _MOST_KINDS:
        new_kind = _Kind([], flow)
        new_kind.add(group, parts, groups_within)
        kinds.append(new_kind)


def _fits(group: Group, parts: Sequence[PartKind], kind: _Kind, common_share: float) -> bool:
    """Return whether a group has so large a share of its parts in common with a kind, in the same order, and
    no other part that has the name of one of the kind's.
    """
    index_of = {part: index for index, part in enumerate(kind.parts)}
    common_indices = [index_of[part] for part in parts if part in index_of]
    names = {name for name, _ in kind.parts}
    if group.module:  # a shortcut may be a pool in one use, and a module of its own in another
        names -= _names_of_groups(group) | kind.members
    are_in_order = common_indices == sorted(common_indices)
    are_enough = len(common_indices) >= common_share * len(parts)
    has_same_name = any(part not in index_of and part[0] in names for part in parts)
    return are_in_order and are_enough and not has_same_name


def _names_of_groups(group: Group) -> set[str]:
    """Return the names of the groups that a group holds directly."""
    return {member.name for member in group.members if isinstance(member, Group)}


def _shortens(kind: _Kind) -> bool:
    """Return whether a recipe with the block is shorter than one without: the block's steps, with some lines
    around them, and a line for each use, than the steps of all uses.
    """
    all_steps = sum(len(group.members) for group in kind.uses)
    lines_around_block = 3
    return len(kind.uses) > 1 and all_steps > len(kind.uses) + len(kind.parts) + lines_around_block


def merge(order: Iterable[T], into: list[T]) -> None:
    """Insert into the list `into` what it lacks of `order`, each new part behind the part that stands before
    it in `order`: a, x, c into a, b, c gives a, x, b, c.
    """
    position_of = {part: position for position, part in enumerate(into, 1)}
    position = 0  # of the last part that both have; 0 is before the first one
    # by position, the runs of new parts behind it, those added last first
    new_runs: dict[int, list[list[T]]] = {0: [[]]}
    for part in order:
        if part in position_of:
            position = position_of[part]
            new_runs.setdefault(position, []).insert(0, [])
        else:
            new_runs[position][0].append(part)
    merged = [*chain(*new_runs[0])]
    for position, part in enumerate(into, 1):
        merged += [part, *chain(*new_runs.get(position, ()))]
    into[:] = merged


def merge_orders(orders: Sequence[Sequence[str]]) -> list[str]:
    """Return one order of all names in which each of `orders` is kept.

    Raises:
        Unlike: there is none.
    """
    longest = max(orders, key=lambda order: len(order))
    order_of_all = [*longest]
    for order in orders:
        merge(order, order_of_all)
    for order in orders:
        names = set(order)
        if [name for name in order_of_all if name in names] != list(order):
            raise Unlike
    return order_of_all


def _part_kind(member: Leaf | Group) -> PartKind:
    """Return the pair by which members of different uses are matched: a member's name, and what it is. That
    is a group's block, or its own name if it is a use of none, and the kind of a node's op.
    """
    if isinstance(member, Group):
        return member.name, member.block or member.name
    # ops that stand for each other in uses of one block are one kind
    return member.name, layer_words.short_word(kind_of(member.node))


def _flow(group: Group) -> object:
    """Return, for each member, the names of the earlier members that it reads, or "" for what comes from
    outside of the group; members of two groups with the same flow read the same.
    """
    nodes_of = [
        (member.node,) if isinstance(member, Leaf) else tuple(member.nodes()) for member in group.members
    ]
    member_names = {
        node.path: member.name
        for member, nodes in zip(group.members, nodes_of, strict=True)
        for node in nodes
    }
    flow = []
    for nodes in nodes_of:
        paths = {node.path for node in nodes}
        outer_sources = (source for node in nodes for source in node.inputs if source not in paths)
        flow.append(tuple(member_names.get(source, "") for source in outer_sources))
    return tuple(flow)


def _name(kind: _Kind, taken: set[str]) -> str:
    """Return a name for a block that is not taken: what most of its uses are called, or the ops that it
    has.
    """
    first_use = kind.uses[0]
    if first_use.unit:  # a chain that was found by its ops: conv_norm_relu
        words = [
            leaf.node.op_name if leaf.name.startswith("act") else leaf.name
            for leaf in first_use.members
            if isinstance(leaf, Leaf)
        ]
        stem = "_".join(words)
    else:
        most_frequent = max(kind.stems, key=lambda stem: (kind.stems[stem], stem))
        stem = most_frequent or "unit"
    stem = stem.strip("_")
    if stem in OPS:
        stem = f"{stem}_block"
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
