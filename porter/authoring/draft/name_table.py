"""Layers' names as a zoo's table of names: patterns where the names are regular, otherwise path by path."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from string import ascii_lowercase

from porter.base.errors import RecipeError
from porter.recipe.expressions import fill_in
from porter.recipe.path_patterns import MAX_WILDCARDS, match_path

# Python reads no number of any length.
_NUMBER = re.compile(r"\d{1,18}")
# A letter after a number counts too: block2a, block2b.
_COUNTED = re.compile(r"\d{1,18}|(?<=\d)[a-z](?=_|$)")
MARK = "\0"
_TOO_FEW_TO_COUNT = 3
"""A rule that counts layers has to name more than these."""
_FEW = 2
"""The most paths that are written because a pattern that fits their form would name them wrongly."""


@dataclass(frozen=True)
class _Rule:
    """A line of the table, the paths that it is for, and the lines that say the same in more words."""

    pattern: str
    name: str
    paths: tuple[str, ...]
    longer: tuple[_Rule, ...] = ()


def draft_names(names: Mapping[str, str], needed: Set[str], paths: Sequence[str]) -> dict[str, str]:
    """Draft the table that names every node in `needed`, and no node wrongly: the name, or its expression, by
    path or pattern.

    Patterns that name too many nodes wrongly are taken back, and the rest of what they name wrongly is
    written path by path.

    Args:
        names: of the file's layers, by path.
        paths: of all nodes, in the graph's order.
    """
    patterns = [
        rule
        for group in _groups_of_one_form(paths)
        for rule in _patterns(group, names) or _patterns_by_last_part(group, names)
    ]
    rules = list(_merge_last_words(patterns, _plain(_unnamed_paths(patterns, needed, paths), names)))
    rules += _counted_rules(_unnamed_paths(rules, needed, paths), names)
    table = _whole_table(rules, names, needed, paths)
    # It ends: each turn takes back a pattern for good, or writes paths for themselves, which are right.
    while wrong := _wrongly_named(table, names, paths):
        rules = _corrected(rules, wrong, names)
        table = _whole_table(rules, names, needed, paths)
    smallest = _without_unneeded(table, needed, names, paths)
    return {rule.pattern: rule.name for rule in smallest}


def _whole_table(
    rules: Sequence[_Rule], names: Mapping[str, str], needed: Set[str], paths: Sequence[str]
) -> list[_Rule]:
    """Return the rules, and one for each needed path that they are not for, in the order of a table."""
    return _in_order([*rules, *_plain(_unnamed_paths(rules, needed, paths), names)], paths)


def _plain(paths: Iterable[str], names: Mapping[str, str]) -> list[_Rule]:
    """Return one rule for each path, by its own name."""
    return [_Rule(path, names[path], (path,)) for path in paths]


def _corrected(
    rules: Sequence[_Rule], wrong: Mapping[_Rule, Sequence[str]], names: Mapping[str, str]
) -> list[_Rule]:
    """Return the rules without the one that names the most paths wrongly, or with these path by path."""
    worst = max(wrong, key=lambda rule: len(wrong[rule]))
    # A pattern that is often wrong is not worth its exceptions.
    if worst in rules and len(wrong[worst]) > _FEW:
        return [*(rule for rule in rules if rule != worst), *worst.longer]
    kept = [_without_paths(rule, wrong[worst]) if len(rule.paths) > 1 else rule for rule in rules]
    # A pattern may name all of its paths wrongly: `c{n}` says c1 where a file says c01.
    return [*(rule for rule in kept if rule.paths), *_plain(wrong[worst], names)]


def _without_unneeded(
    table: list[_Rule], needed: Set[str], names: Mapping[str, str], paths: Sequence[str]
) -> Sequence[_Rule]:
    """Return the table without rules that name no node in `needed`, unless a node would have another name
    then. If the rules that are left name a node wrongly, return the table as it is.
    """
    paths_by_rule: dict[_Rule, list[str]] = {}
    for path in paths:
        rule = next((rule for rule in table if match_path(rule.pattern, path) is not None), None)
        if rule is not None:
            paths_by_rule.setdefault(rule, []).append(path)
    smaller = table
    for rule in table:
        paths_of_rule = paths_by_rule.get(rule, [])
        others = [other for other in smaller if other is not rule]
        if needed.isdisjoint(paths_of_rule) and not _wrongly_named(others, names, paths_of_rule):
            smaller = others
    return table if _wrongly_named(smaller, names, paths) else smaller


def _unnamed_paths(rules: Sequence[_Rule], needed: Set[str], paths: Sequence[str]) -> list[str]:
    """Return the needed paths that no rule is for."""
    covered = {path for rule in rules for path in rule.paths}
    return [path for path in paths if path in needed and path not in covered]


def _without_paths(rule: _Rule, paths: Collection[str]) -> _Rule:
    """Return the rule with some of its paths taken away."""
    return replace(rule, paths=tuple(path for path in rule.paths if path not in paths))


def _wrongly_named(
    table: Sequence[_Rule], names: Mapping[str, str], paths: Sequence[str]
) -> dict[_Rule, list[str]]:
    """Return, by rule, the paths to which it gives another name than `names` has. A path that no rule
    matches is not wrong.
    """
    wrong: dict[_Rule, list[str]] = {}
    counts: Counter[str] = Counter()
    for path in paths:
        for rule in table:
            captured = match_path(rule.pattern, path)
            if captured is None:
                continue
            try:
                name = fill_in(rule.name, {**captured, "count": counts[rule.pattern]})
            except RecipeError:
                name = ""
            counts[rule.pattern] += 1
            if name != names[path]:
                wrong.setdefault(rule, []).append(path)
            break  # the first rule that matches names the path
    return wrong


def _in_order(rules: Sequence[_Rule], paths: Sequence[str]) -> list[_Rule]:
    """Return the rules in the order of the graph, but each before the rules that would match its paths too,
    because the first rule that matches names a path.
    """
    places = {path: index for index, path in enumerate(paths)}
    table: list[_Rule] = []
    for rule in sorted(rules, key=lambda rule: min(places[path] for path in rule.paths)):
        matching_places = (
            index
            for index, listed in enumerate(table)
            if any(match_path(listed.pattern, path) is not None for path in rule.paths)
        )
        table.insert(next(matching_places, len(table)), rule)
    return table


def _groups_of_one_form(paths: Sequence[str]) -> Iterator[list[str]]:
    """Yield groups of paths that differ in numbers only: `stage1/conv2` and `stage3/conv1` are one group."""
    forms: dict[str, list[str]] = {}
    for path in paths:
        forms.setdefault(_NUMBER.sub("#", path), []).append(path)
    yield from forms.values()


def _patterns_by_last_part(group: Sequence[str], names: Mapping[str, str]) -> list[_Rule]:
    """Return the patterns of paths of one form, which `_patterns` found none for, by their last part: one
    for those that end in `conv1`, one for `conv2`. Return none if all have one last part.
    """
    parts: dict[str, list[str]] = {}
    for path in group:
        parts.setdefault(path.rpartition("/")[2], []).append(path)
    return [rule for paths in parts.values() for rule in _patterns(paths, names)] if len(parts) > 1 else []


def _patterns(group: Sequence[str], names: Mapping[str, str]) -> list[_Rule]:
    """Return one rule for most of the paths of one form: `stage{s}/conv{c}` with the name
    `layer{s}.conv{c-1}`. Return an empty list if there is none, because a number of the names follows from
    none of the paths, too few paths fit, or a part would have too many captures.
    """
    # the form that most of the names have
    forms = Counter(_COUNTED.sub("#", names[path]) for path in group)
    form = max(forms, key=lambda form: forms[form])
    paths = [path for path in group if _COUNTED.sub("#", names[path]) == form]
    numbers = {path: [int(number) for number in _NUMBER.findall(path)] for path in paths}
    counted = {path: _COUNTED.findall(names[path]) for path in paths}
    variables = _variables(paths, numbers)
    texts: list[str] = []
    # for each number of the names, an expression of the paths' numbers
    for index, number_text in enumerate(counted[paths[0]]):
        if len({counted[path][index] for path in paths}) == 1:
            texts.append(number_text)
            continue
        values = {path: _number_of(counted[path][index]) for path in paths}
        expression = _expression(values, numbers, variables, letter=number_text.isalpha())
        if expression is None:
            return []
        # The paths for which the expression is wrong are left to other rules.
        text, paths = expression
        texts.append(text)
    if len(paths) < 2 or len(paths) < len(group) - _FEW:
        return []
    pattern = _fill_numbers(_NUMBER, paths[0], variables)
    name = _fill_numbers(_COUNTED, names[paths[0]], texts)
    fits = all(part.count("{") <= MAX_WILDCARDS for part in pattern.split("/"))
    return [_Rule(pattern, name, tuple(paths))] if fits else []


def _variables(paths: Sequence[str], numbers: Mapping[str, Sequence[int]]) -> list[str]:
    """Return for each number in the paths what a pattern has in its place: a capture, such as `{s}` for the
    number of `stage2`, or the number itself where all paths share it.

    Args:
        numbers: the numbers in each path.
    """
    variables: list[str] = []
    for index, match in enumerate(_NUMBER.finditer(paths[0])):
        values = {numbers[path][index] for path in paths}
        word = re.search(r"([a-z])[A-Za-z]*_?$", paths[0][: match.start()].rpartition("/")[2])
        letters = [*(word[1] if word else ""), *"ijklmnpq"]
        letter = next((letter for letter in letters if f"{{{letter}}}" not in variables), f"n{index}")
        variables.append(f"{{{letter}}}" if len(values) > 1 else match[0])
    return variables


def _number_of(text: str) -> int:
    """Return a number of a name, which may be a letter: 2 for `b`."""
    return ascii_lowercase.index(text) + 1 if text.isalpha() else int(text)


def _expression(
    values: Mapping[str, int], numbers: Mapping[str, Sequence[int]], variables: Sequence[str], letter: bool
) -> tuple[str, list[str]] | None:
    """Express a number of the names by one of the paths' numbers and an offset, such as `{s-1}`; return the
    text and the paths for which it is right. A number that most names share is written as it is.

    Args:
        values: the number in the name of each path.
        numbers: the numbers in each path.
        variables: for each of these its capture, or the number itself.
        letter: the number stands as a letter, `a` for 1.
    """
    best: tuple[str, list[str]] | None = None
    most_common, _ = Counter(values.values()).most_common(1)[0]
    for position, variable in enumerate(variables):
        if not variable.startswith("{"):
            continue
        offsets = {path: value - numbers[path][position] for path, value in values.items()}
        offset, _ = Counter(offsets.values()).most_common(1)[0]
        right = [path for path, path_offset in offsets.items() if path_offset == offset]
        if letter:
            # letters are indexed from 0, and counted from 1: {'abc'[s-1]}
            letters = ascii_lowercase[: max(values.values())]
            text = f"{{'{letters}'[{_plus(variable[1:-1], offset - 1)}]}}"
        else:
            text = f"{{{_plus(variable[1:-1], offset)}}}"
        if best is None or len(right) > len(best[1]):
            best = text, right
    constant = [path for path, value in values.items() if value == most_common]
    if best is None or len(constant) > len(best[1]):
        best = ascii_lowercase[most_common - 1] if letter else str(most_common), constant
    return best


def _plus(variable: str, offset: int) -> str:
    """Return a variable with an offset: `s+1`, or `s` for 0."""
    return f"{variable}{offset:+}" if offset else variable


def _fill_numbers(numbers: re.Pattern[str], text: str, values: Sequence[str]) -> str:
    """Replace the numbers of a text by values, in their order."""
    remaining = iter(values)
    return numbers.sub(lambda _: next(remaining), text)


def _merge_last_words(rules: Sequence[_Rule], plain: Sequence[_Rule]) -> Iterator[_Rule]:
    """Yield the rules, with those that differ only in a last word which path and name share as one:
    `stage{s}/conv` and `stage{s}/bn` as `stage{s}/{part}`.

    Args:
        rules: those so far.
        plain: rules of the paths that these lack, which are yielded only as part of another one.
    """
    groups: dict[tuple[str, str], list[_Rule]] = {}
    for rule in (*rules, *plain):
        around, _, word = rule.pattern.rpartition("/")
        if around and "{" not in word and rule.name.endswith(word):
            groups.setdefault((around, rule.name.removesuffix(word)), []).append(rule)
    merged: dict[str, _Rule] = {}
    for (around, prefix), group in groups.items():
        # One rule in place of two is worth it only where these have captures.
        if len(group) > 2 or (len(group) > 1 and "{" in around):
            rule = _Rule(
                f"{around}/{{part}}",
                f"{prefix}{{part}}",
                tuple(path for rule in group for path in rule.paths),
                tuple(group),
            )
            merged |= {merged_rule.pattern: rule for merged_rule in group}
    yield from dict.fromkeys([*(merged.get(rule.pattern, rule) for rule in rules), *merged.values()])


def _counted_rules(paths: Sequence[str], names: Mapping[str, str]) -> Iterator[_Rule]:
    """Yield a rule such as `**/conv` with the name `conv2d_{count}` for paths that end in one word, where a
    framework numbers its layers in the order of the graph.
    """
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(path.rpartition("/")[2], []).append(path)
    for word, group in groups.items():
        stems = Counter(names[path].rstrip("0123456789") for path in group if names[path][-1].isdigit())
        stem = max(stems, key=lambda stem: stems[stem], default="")
        numbers = {
            path: int(names[path].removeprefix(stem))
            for path in group
            if re.fullmatch(re.escape(stem) + r"\d{1,18}", names[path])
        }
        first_number = next(iter(numbers.values()), 0)
        # the paths whose names go on from there without a gap
        counted = [
            path for index, (path, number) in enumerate(numbers.items()) if number == first_number + index
        ]
        if len(counted) > _TOO_FEW_TO_COUNT:
            yield _Rule(f"**/{word}", f"{stem}{{{_plus('count', first_number)}}}", tuple(counted))
