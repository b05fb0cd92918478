"""Steps of one block in a row as one step that repeats."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from porter.recipe.writing.template import YamlStep


def with_rows(steps: Sequence[YamlStep], parameters: Mapping[str, Mapping[str, Any]]) -> Iterator[YamlStep]:
    """`steps`, with equal uses of a block under numbered paths as one step; only the first or the last may
    differ a little.

    Args:
        parameters: of each block, with their defaults.
    """
    row: list[YamlStep] = []
    for step in steps:
        if row and not _follows(row[-1], step):
            yield from _repeated(row, parameters[_kind(row[0])])
            row = []
        if _kind(step) in parameters and _number(step)[1] is not None:
            row.append(step)
        else:
            yield step
    if row:
        yield from _repeated(row, parameters[_kind(row[0])])


def _kind(step: YamlStep) -> str:
    return next(iter(step))


def _number(step: YamlStep) -> tuple[str, int | None]:
    """The path without its number, and the number."""
    path = step[_kind(step)]
    match = re.fullmatch(r"(.*?\D)(0|[1-9]\d*)", path)
    return (match[1], int(match[2])) if match else (path, None)


def _follows(before: YamlStep, step: YamlStep) -> bool:
    """Whether a step's number is the next one, and its kind and stem are the same."""
    (stem, number), (other, after) = _number(before), _number(step)
    return (
        _kind(before) == _kind(step)
        and "from" not in step
        and stem == other
        and number is not None
        and after == number + 1
    )


def _repeated(row: Sequence[YamlStep], defaults: Mapping[str, Any]) -> Iterator[YamlStep]:
    """Steps of a row as one line with `repeat`, whose ends may override arguments."""
    kind, (stem, first) = _kind(row[0]), _number(row[0])
    values = [{**defaults, **{key: value for key, value in step.items() if key != kind}} for step in row]
    ends = _ends(values)
    if len(ends) == len(row):
        yield from row
        return
    path = f"{stem}{{count+{first}}}" if first else f"{stem}{{count}}"
    if len(ends) == 1 and first == 1:
        path = stem
    for start, end in zip([0, *ends], ends, strict=False):
        usual = _usual(values, start, end)
        step = {
            kind: path,
            **{
                key: value
                for key, value in usual.items()
                if value != defaults.get(key) or key not in defaults
            },
        }
        if end - start > 1:
            step["repeat"] = end - start
        for name, place in (("first", start), ("last", end - 1)):
            if own := _different(values[place], usual):
                step[name] = {key: values[place][key] for key in own}
        yield step


def _usual(values: Sequence[YamlStep], start: int, end: int) -> YamlStep:
    """The arguments of the steps between the first and the last."""
    if end - start > 2:
        return values[start + 1]
    return values[end - 1]


def _different(one: YamlStep, other: YamlStep) -> list[str]:
    return [key for key in other if one.get(key) != other[key]]


def _cost(values: Sequence[YamlStep], start: int, end: int) -> float:
    """The cost of the steps from `start` to `end` as one line: its overrides cost a little. Infinite where
    they are not such a line.
    """
    usual = _usual(values, start, end)
    overrides = (
        [_different(value, usual) for value in (values[start], values[end - 1])] if end - start > 1 else []
    )
    keys = [key for override in overrides for key in override]
    inner = any(_different(value, usual) for value in values[start + 1 : end - 1])
    wide = any("filters" in key or "units" in key for key in keys)
    if inner or wide or any(set(value) != set(usual) for value in values[start:end]) or len(keys) > 2:
        return float("inf")
    return 1 + len(keys) / 10


def _ends(values: Sequence[YamlStep]) -> list[int]:
    """The ends of the lines that together cost least."""
    best: list[tuple[float, list[int]]] = [(0.0, [])]
    for end in range(1, len(values) + 1):
        best.append(
            min((best[start][0] + _cost(values, start, end), [*best[start][1], end]) for start in range(end))
        )
    return best[-1][1]
