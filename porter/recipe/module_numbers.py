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

Caught = tuple[Any, ...]


class Places:
    """The places of nodes and scopes, counted from 0 in the graph's order among all that the lines of their
    table match.

    A table is counted anew wherever its scope catches something else. What its own captures tell apart is one
    in the table around it; a scope without captures is one.
    """

    def __init__(self, rules: Sequence[NameRule]) -> None:
        self._tables: dict[Location, list[NameRule]] = defaultdict(list)
        self._counted: dict[tuple[Location, Caught], dict[tuple[Location, Caught], int]] = defaultdict(dict)
        if any(PLACE in placeholders(rule.name) for rule in rules):
            for rule in rules:
                self._tables[rule.location[: _root(rule)]].append(rule)

    def count(self, path: str) -> None:
        """Counts a node in every table that has a line for it, also where a line of another zoo's table names
        it.
        """
        for rules in self._tables.values():
            matches = ((rule, match_path(rule.pattern, path)) for rule in rules)
            rule, captured = next(
                ((rule, captured) for rule, captured in matches if captured is not None), (None, None)
            )
            if rule is not None and captured is not None:
                self.of(rule, path, captured)

    def of(self, rule: NameRule, path: str, captured: Mapping[str, Any]) -> Mapping[Location, int]:
        """The numbers of the scopes around a node's line, and of the node, by line."""
        if not self._tables:
            return {}
        numbers = {}
        for line, table, one in _lines(rule, path, captured):
            counted = self._counted[table]
            numbers[line] = counted.setdefault(one, len(counted))
        return numbers


def _root(rule: NameRule) -> int:
    """How many parts of a line's location are the table's."""
    end = len(rule.location) - 1
    while str(rule.location[end - 1]).endswith("/"):
        end -= 1
    return end


def _lines(
    rule: NameRule, path: str, captured: Mapping[str, Any]
) -> Iterator[tuple[Location, tuple[Location, Caught], tuple[Location, Caught]]]:
    """The lines from the outermost scope to the rule's own: each with its table, and what is counted
    there.
    """
    root = _root(rule)
    around = tuple[Any, ...]()
    for end in range(root + 1, len(rule.location) + 1):
        line, pattern = rule.location[:end], "".join(map(str, rule.location[root:end]))
        caught = tuple(captured[name] for name in compile_pattern(pattern).groupindex)
        yield line, (line[:-1], around), ((), (path,)) if end == len(rule.location) else (line, caught)
        around = caught
