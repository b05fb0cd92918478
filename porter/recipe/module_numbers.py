"""`{place}` in names: for modules that are numbered in the order in which they run, such as those of torch's
Sequential.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from porter.recipe.expressions import placeholders
from porter.recipe.path_patterns import compile_pattern, match_path
from porter.recipe.recipe import PLACE, NameRule
from porter.recipe.source import Location

Captures = tuple[Any, ...]


class Places:
    """The places of nodes and scopes, counted from 0 in the graph's order among all that the lines of their
    table match.

    A table is counted anew for each value that its scope captures. In the table around it, all nodes of one
    such value have one place together, and so have all nodes of a scope without captures.
    """

    def __init__(self, rules: Sequence[NameRule]) -> None:
        # by the location of an outermost table, its lines
        self._tables: dict[Location, list[NameRule]] = defaultdict(list)
        # by a table with the captures of its scope, the number of each thing that was counted there
        self._counted: dict[tuple[Location, Captures], dict[tuple[Location, Captures], int]] = defaultdict(
            dict
        )
        # without a name that asks for places, nothing is counted
        if any(PLACE in placeholders(rule.name) for rule in rules):
            for rule in rules:
                self._tables[rule.location[: _length_of_table(rule)]].append(rule)

    def count(self, path: str) -> None:
        """Give a node its place (the next number) in every table of names that has a line for it, also if
        another zoo's table names it.

        Args:
            path: of the node.
        """
        for rules in self._tables.values():
            for rule in rules:
                captured = match_path(rule.pattern, path)
                if captured is not None:
                    # The first line that matches names the node.
                    self.numbers_of(rule, path, captured)
                    break

    def numbers_of(self, rule: NameRule, path: str, captured: Mapping[str, Any]) -> Mapping[Location, int]:
        """Return, for a node that a rule names, the places of the scopes around its line, and of the node
        itself, by the location of each line; nothing if no name asks for places. What has no place yet gets
        the next one in its table.

        Args:
            captured: what the rule's pattern captured in the path.
        """
        if not self._tables:
            return {}
        numbers = {}
        for line, table, counted_thing in _lines_around(rule, path, captured):
            places_in_table = self._counted[table]
            numbers[line] = places_in_table.setdefault(counted_thing, len(places_in_table))
        return numbers


def _length_of_table(rule: NameRule) -> int:
    """Return how many parts of a rule's location lead to its outermost table; the others are scopes, which
    end with `/`, and its own key.
    """
    end = len(rule.location) - 1
    while str(rule.location[end - 1]).endswith("/"):
        end -= 1
    return end


def _lines_around(
    rule: NameRule, path: str, captured: Mapping[str, Any]
) -> Iterator[tuple[Location, tuple[Location, Captures], tuple[Location, Captures]]]:
    """Yield the lines from the outermost scope to the rule's own: the line's location, its table with what
    the scopes before captured, and what is counted there, a scope with its captures or the node.
    """
    table_length = _length_of_table(rule)
    outer_captures = tuple[Any, ...]()
    for end in range(table_length + 1, len(rule.location) + 1):
        line, pattern = rule.location[:end], "".join(map(str, rule.location[table_length:end]))
        captures = tuple(captured[name] for name in compile_pattern(pattern).groupindex)
        is_own_line = end == len(rule.location)
        counted = ((), (path,)) if is_own_line else (line, captures)
        yield line, (line[:-1], outer_captures), counted
        outer_captures = captures
