"""Steps of one block in a row as one step that repeats."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from porter.recipe.writing.template import YamlStep


def with_repeats(
    steps: Sequence[YamlStep], parameters: Mapping[str, Mapping[str, Any]]
) -> Iterator[YamlStep]:
    """Yield the steps, with equal uses of a block in a row, under numbered paths (`block1`, `block2`, ...),
    as one step with `repeat`. Only the first or the last of them may differ a little.

    Args:
        parameters: of each block, with their defaults.
    """
    # the uses of one block that follow each other, so far
    row: list[YamlStep] = []
    for step in steps:
        if row and not _is_next(row[-1], step):
            yield from _repeat_row(row, parameters[_kind(row[0])])
            row = []
        if _kind(step) in parameters and _split_number(step)[1] is not None:
            row.append(step)
        else:
            yield step
    if row:
        yield from _repeat_row(row, parameters[_kind(row[0])])


def _kind(step: YamlStep) -> str:
    """Return the operation or block of a step, which is its first key."""
    return next(iter(step))


def _split_number(step: YamlStep) -> tuple[str, int | None]:
    """Return a step's path without the number at its end, and the number: `stage1/block` and 2 for
    `stage1/block2`; None for a path without a number.
    """
    path = step[_kind(step)]
    match = re.fullmatch(r"(.*?\D)(0|[1-9]\d*)", path)
    return (match[1], int(match[2])) if match else (path, None)


def _is_next(before: YamlStep, step: YamlStep) -> bool:
    """Return whether a step goes on after another: its number is the next one, its kind and stem are the
    same, and it reads the step before it.
    """
    stem, number = _split_number(before)
    next_stem, next_number = _split_number(step)
    is_numbered_next = number is not None and stem == next_stem and next_number == number + 1
    return is_numbered_next and _kind(before) == _kind(step) and "from" not in step


def _repeat_row(row: Sequence[YamlStep], defaults: Mapping[str, Any]) -> Iterator[YamlStep]:
    """Yield the uses of one block under numbered paths as steps with `repeat`, whose first and last use may
    override arguments; as they are if no such step holds several.

    Args:
        row: the uses, one after another.
        defaults: of the block's parameters.
    """
    kind, (stem, first_number) = _kind(row[0]), _split_number(row[0])
    values = [{**defaults, **{key: value for key, value in step.items() if key != kind}} for step in row]
    ends = _cheapest_ends(values)
    if len(ends) == len(row):
        yield from row
        return
    # `count` goes on through all lines; a single line numbers its repetitions itself, from 1.
    path = f"{stem}{{count+{first_number}}}" if first_number else f"{stem}{{count}}"
    if len(ends) == 1 and first_number == 1:
        path = stem
    for start, end in zip([0, *ends], ends, strict=False):
        inner = _inner_arguments(values, start, end)
        not_default = {
            key: value for key, value in inner.items() if key not in defaults or value != defaults[key]
        }
        step = {kind: path, **not_default}
        if end - start > 1:
            step["repeat"] = end - start
        for name, index in (("first", start), ("last", end - 1)):
            if differing := _differing_keys(values[index], inner):
                step[name] = {key: values[index][key] for key in differing}
        yield step


def _inner_arguments(values: Sequence[YamlStep], start: int, end: int) -> YamlStep:
    """Return the arguments of the steps from `start` to `end` as one line: those of the second step, which
    stands for all inner ones; of two steps or one, those of the last.
    """
    if end - start > 2:
        return values[start + 1]
    return values[end - 1]


def _differing_keys(step: YamlStep, inner: YamlStep) -> list[str]:
    """Return the keys of the inner step whose values are others in `step`."""
    return [key for key in inner if step.get(key) != inner[key]]


def _cost(values: Sequence[YamlStep], start: int, end: int) -> float:
    """Return the cost of the steps from `start` to `end` as one line, to which each override adds a tenth;
    infinite if inner steps differ, or widths or too many arguments would be overridden.
    """
    if end - start == 1:
        return 1
    inner = _inner_arguments(values, start, end)
    overridden = [*_differing_keys(values[start], inner), *_differing_keys(values[end - 1], inner)]
    inner_steps_differ = any(_differing_keys(value, inner) for value in values[start + 1 : end - 1])
    overrides_width = any("filters" in key or "units" in key for key in overridden)
    other_arguments = any(set(value) != set(inner) for value in values[start:end])
    if inner_steps_differ or overrides_width or other_arguments or len(overridden) > 2:
        return float("inf")
    return 1 + len(overridden) / 10


def _cheapest_ends(values: Sequence[YamlStep]) -> list[int]:
    """Return where each line ends if the steps are split into the lines that together cost least."""
    # best[n] is the cost of the first n steps, and where their lines end
    best: list[tuple[float, list[int]]] = [(0.0, [])]
    for end in range(1, len(values) + 1):
        # the cheapest way up to `end` is the cheapest up to some `start` and one more line
        ways = []
        for start in range(end):
            cost, ends = best[start]
            ways.append((cost + _cost(values, start, end), [*ends, end]))
        best.append(min(ways))
    _, cheapest = best[-1]
    return cheapest
