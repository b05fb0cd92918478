"""Groups in a row: the names by which they are counted."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from porter.graph.blocks import layer_words
from porter.graph.blocks.outline import Group, Leaf, with_unique_names

FEWEST_PAIRS = 3
"""The least number of pairs in a row that make blocks."""

Members = list[Leaf | Group]


def pair_chains(group: Group) -> Group:
    """Return the group in which chains that take turns are joined to blocks: dw1, pw1, dw2, pw2, ... become
    block1, block2, ..., whose layers have the chain's name before their own.
    """
    joined_members: Members = []
    members = [pair_chains(member) if isinstance(member, Group) else member for member in group.members]
    index = 0
    while index < len(members):
        count = _count_turns(members[index:])
        if count == 0:
            joined_members.append(members[index])
            index += 1
            continue
        pairs_end = index + 2 * count
        for first_of_pair in range(index, pairs_end, 2):
            joined_members.append(_join_chains(members[first_of_pair : first_of_pair + 2]))
        index = pairs_end
    return replace(group, members=with_unique_names(joined_members))


def _join_chains(chains: Members) -> Group:
    """Return a pair of chains with one number, dw2 and pw2, as the group block2, whose layers have the
    chain's name before their own: dw_conv, pw_conv.
    """
    leaves = [
        replace(leaf, name=f"{layer_words.without_number(chain.name)}_{leaf.name}")
        for chain in chains
        if isinstance(chain, Group)
        for leaf in chain.members
    ]
    _, number = layer_words.split_number(chains[0].name)
    return Group(f"block{number}", with_unique_names(leaves))


def _count_turns(members: Members) -> int:
    """Return how many pairs of neighbours with two names and one number the members begin with; 0 for fewer
    than FEWEST_PAIRS.
    """
    count = 0
    first_stem, first_number = layer_words.split_number(members[0].name)
    for left, right in zip(members[::2], members[1::2], strict=False):
        left_stem, left_number = layer_words.split_number(left.name)
        right_stem, right_number = layer_words.split_number(right.name)
        is_turn = left_stem == first_stem and right_stem != left_stem
        is_counted = left_number is not None and left_number == right_number
        if not (_is_chain(left) and _is_chain(right) and is_turn and is_counted):
            break
        if left_number != (first_number or 0) + count:
            break
        count += 1
    return count if count >= FEWEST_PAIRS else 0


def _is_chain(member: Leaf | Group) -> bool:
    return isinstance(member, Group) and all(isinstance(leaf, Leaf) for leaf in member.members)


def renumber(group: Group) -> Group:
    """Give uses of one block in a row names that count: a, b, c become unit1 to unit3, and one without a
    number gets the number before the next.
    """
    members_by_number: Members = []
    for block, neighbours in groupby(
        group.members, key=lambda member: member.block if isinstance(member, Group) else None
    ):
        row = [renumber(member) if isinstance(member, Group) else member for member in neighbours]
        if block is not None:
            names = _counting_names([member.name for member in row])
            row = [replace(member, name=name) for member, name in zip(row, names, strict=True)]
        members_by_number += row
    return replace(group, members=with_unique_names(members_by_number))


def _counting_names(names: list[str]) -> list[str]:
    """Return names that count up to the last one's number: `["a", "unit2"]` become `["unit1", "unit2"]`. They
    are unchanged if all but the first do not count, or if the first has another number.
    """
    pairs = [layer_words.split_number(name) for name in names]
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
