"""Groups in a row: the names by which they are counted."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from porter.graph.blocks import layer_words
from porter.graph.blocks.outline import Group, Leaf, distinct

FEWEST_PAIRS = 3
"""The least number of pairs in a row that make blocks."""

Members = list[Leaf | Group]


def paired(group: Group) -> Group:
    """Chains that take turns as blocks of one chain each: dw1, pw1, dw2, pw2, ... as block1, block2, ..."""
    members_in_pairs: Members = []
    members = [paired(member) if isinstance(member, Group) else member for member in group.members]
    index = 0
    while index < len(members):
        count = _turns(members[index:])
        for number in range(count):
            pair = members[index + 2 * number : index + 2 * number + 2]
            leaves = [
                replace(leaf, name=f"{layer_words.without_number(part.name)}_{leaf.name}")
                for part in pair
                if isinstance(part, Group)
                for leaf in part.members
            ]
            members_in_pairs.append(Group(f"block{layer_words.numbered(pair[0].name)[1]}", distinct(leaves)))
        members_in_pairs += members[index : index + 1] if not count else []
        index += 2 * count or 1
    return replace(group, members=distinct(members_in_pairs))


def _turns(members: Members) -> int:
    """How many pairs of neighbours with two names and one number the members begin with."""
    count = 0
    for one, other in zip(members[::2], members[1::2], strict=False):
        (stem, number), (after, same) = layer_words.numbered(one.name), layer_words.numbered(other.name)
        first = layer_words.numbered(members[0].name)
        chains = all(
            isinstance(part, Group) and all(isinstance(leaf, Leaf) for leaf in part.members)
            for part in (one, other)
        )
        if (
            not chains
            or stem != first[0]
            or stem == after
            or number is None
            or number != same
            or number != (first[1] or 0) + count
        ):
            break
        count += 1
    return count if count >= FEWEST_PAIRS else 0


def renumbered(group: Group) -> Group:
    """Uses of one block in a row with names that count: a, b, c are unit1 to unit3, and one without a number
    is before the next.
    """
    members_by_number: Members = []
    for block, neighbours in groupby(
        group.members, key=lambda member: member.block if isinstance(member, Group) else None
    ):
        row = [renumbered(member) if isinstance(member, Group) else member for member in neighbours]
        if block is not None:
            row = [
                replace(member, name=name)
                for member, name in zip(row, _counting_names([member.name for member in row]), strict=True)
            ]
        members_by_number += row
    return replace(group, members=distinct(members_by_number))


def _counting_names(names: list[str]) -> list[str]:
    """Names that count up to the last one's number: `["a", "unit2"]` are `["unit1", "unit2"]`. They are
    unchanged where all but the first do not count, or where the first has another number.
    """
    pairs = [layer_words.numbered(name) for name in names]
    stem, last_number = pairs[-1]
    if last_number is None or last_number < len(names) - 1:
        return names
    first_number = last_number - len(names) + 1
    counting = [(stem, first_number + index) for index in range(len(names))]
    others_count = pairs[1:] == counting[1:]
    first_has_no_number = pairs[0][1] is None
    if not others_count or not (first_has_no_number or pairs[0] == counting[0]):
        return names
    return [f"{stem.rstrip('_') or 'unit'}{number}" for _, number in counting]
