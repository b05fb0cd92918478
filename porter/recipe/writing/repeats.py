"""Steps of one block in a row as one step that repeats."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from porter.recipe.writing.template import YamlStep


def with_repeats(
    steps: Sequence[YamlStep], parameters: Mapping[str, Mapping[str, Any]]
) -> Iterator[YamlStep]:
    """Yield the steps, with equal uses of a block under numbered paths as one step. Only the first or the
    last of them may differ a little.

    Args:
        parameters: of each block, with their defaults.
    """
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
    """Return the path without its number, and the number; None if it has none."""
    path = step[_kind(step)]
    match = re.fullmatch(r"(.*?\D)(0|[1-9]\d*)", path)
    return (match[1], int(match[2])) if match else (path, None)


def _is_next(before: YamlStep, step: YamlStep) -> bool:
    """Return whether a step goes on after another: its number is the next one, its kind and stem are the
    same, and it reads the step before it.
    """
    (stem, number), (next_stem, next_number) = _split_number(before), _split_number(step)
    return (
        _kind(before) == _kind(step)
        and "from" not in step
        and stem == next_stem
        and number is not None
        and next_number == number + 1
    )


def _repeat_row(row: Sequence[YamlStep], defaults: Mapping[str, Any]) -> Iterator[YamlStep]:
    """Yield the steps of a row, uses of one block under numbered paths, as lines with `repeat`, whose first
    and last step may override arguments; as they are if no line holds several.

    Args:
        defaults: of the block's parameters.
    """
    kind, (stem, first) = _kind(row[0]), _split_number(row[0])
    values = [{**defaults, **{key: value for key, value in step.items() if key != kind}} for step in row]
    ends = _cheapest_ends(values)
    if len(ends) == len(row):
        yield from row
        return
    path = f"{stem}{{count+{first}}}" if first else f"{stem}{{count}}"
    if len(ends) == 1 and first == 1:
        path = stem
    for start, end in zip([0, *ends], ends, strict=False):
        inner = _inner_arguments(values, start, end)
        step = {
            kind: path,
            **{
                key: value
                for key, value in inner.items()
                if value != defaults.get(key) or key not in defaults
            },
        }
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


def _differing_keys(one: YamlStep, other: YamlStep) -> list[str]:
    """Return the keys whose values differ between two steps."""
    return [key for key in other if one.get(key) != other[key]]


def _cost(values: Sequence[YamlStep], start: int, end: int) -> float:
    """Return the cost of the steps from `start` to `end` as one line, to which each override adds a tenth;
    infinite if inner steps differ, or widths or too many arguments would be overridden.
    """
    inner_arguments = _inner_arguments(values, start, end)
    overrides = (
        [_differing_keys(value, inner_arguments) for value in (values[start], values[end - 1])]
        if end - start > 1
        else []
    )
    keys = [key for override in overrides for key in override]
    inner_differ = any(_differing_keys(value, inner_arguments) for value in values[start + 1 : end - 1])
    other_width = any("filters" in key or "units" in key for key in keys)
    if (
        inner_differ
        or other_width
        or any(set(value) != set(inner_arguments) for value in values[start:end])
        or len(keys) > 2
    ):
        return float("inf")
    return 1 + len(keys) / 10


def _cheapest_ends(values: Sequence[YamlStep]) -> list[int]:
    """Return where each line ends if the steps are split into the lines that together cost least."""
    best: list[tuple[float, list[int]]] = [(0.0, [])]
    for end in range(1, len(values) + 1):
        # the cheapest way up to `end` is the cheapest up to some `start` and one more line
        best.append(
            min((best[start][0] + _cost(values, start, end), [*best[start][1], end]) for start in range(end))
        )
    return best[-1][1]
