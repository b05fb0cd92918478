"""Uses of one class in a row, as a loop over a short table, as papers print them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from porter.frameworks.code.language import Language
from porter.frameworks.code.template import Edge, TemplatePart
from porter.frameworks.code.text import (
    INDENT,
    WIDTH,
    Call,
    Expression,
    Item,
    lines,
    literal,
    spelled,
    tuple_lines,
)
from porter.graph.blocks.arguments import Value

SHORTEST = 5
"""The least number of uses for which a loop reads better than single lines."""


class _HasParameters(Protocol):
    @property
    def parameters(self) -> Sequence[_HasName]: ...


class _HasName(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def default(self) -> str | None: ...


@dataclass(frozen=True)
class Run:
    """Consecutive parts `prefix` + a number from `start` on, all of the class `kind`, each fed by the one
    before.

    Attributes:
        names: of the parts.
        arguments: of each use, by argument.
        parameters: the class's arguments, in its order.
    """

    kind: str
    names: tuple[str, ...]
    start: int
    arguments: tuple[Mapping[str, Value], ...]
    parameters: tuple[str, ...]

    @property
    def pattern(self) -> str:
        """The parts' names as the inside of an f-string."""
        return _counter(self.names[0])[0] + "{index}"

    @property
    def numbers(self) -> str:
        stop = self.start + len(self.names)
        return f"range({stop})" if self.start == 0 else f"range({self.start}, {stop})"

    def lines(
        self, language: Language, target: str, call: Callable[[str, Mapping[str, Expression]], Call]
    ) -> list[str]:
        """The loop that adds the parts to `target`; `call` writes a use of the class from the text of its
        arguments.
        """
        varying = [name for name in self.parameters if len({use[name] for use in self.arguments}) > 1]
        first_use = self.arguments[0]
        texts: dict[str, Expression] = {
            name: name if name in varying else spelled(first_use[name]) for name in self.parameters
        }
        exceptions = {name: text for name in varying if (text := self._exception(name)) is not None}
        counts = target == "self" or not language.rows  # otherwise the parts have no names
        plain = f"for index in {self.numbers}:" if counts else f"for _ in range({len(self.names)}):"
        if len(exceptions) == len(varying):
            use = call(self.kind, texts | exceptions)
            head = f"for index in {self.numbers}:" if exceptions else plain
            return [f"{INDENT * 2}{head}", *added(language, target, self.pattern, use, [], 3)]
        step = self._next_channels(varying)
        if step is not None:
            varying.remove("channels")
        margin, first = INDENT * 2, first_use.get("channels")
        before = [] if step is None else [f"{margin}channels = {first}"]
        after = [] if step is None else [f"channels = {step}"]
        if not varying:
            body = added(language, target, self.pattern, call(self.kind, texts), after, 3)
            return [*before, f"{margin}{plain}", *body]
        table, special = self._table(varying, step or "")
        if all(repeats == 1 for _, repeats in table):
            rows = [_row(row) for row, _ in table]
            names, table_rows = ", ".join(varying), "settings"
            if counts:
                names = f"index, ({names})" if len(varying) > 1 else f"index, {names}"
                table_rows = f"enumerate(settings{f', start={self.start}' if self.start else ''})"
            return [
                *before,
                *lines("settings = ", Call("", tuple(map(Item, rows)), "[]"), depth=2),
                *_loop("index, " if counts else "", names, table_rows, varying),
                *added(language, target, self.pattern, call(self.kind, texts), after, 3),
            ]
        if special is not None:
            name, usual = special
            texts[name] = f"{name} if repeat == 0 else {literal(usual)}"
        rows = [_row((*row, repeats)) for row, repeats in table]
        note = f"{margin}# {', '.join([*varying, 'repeats'])}" + (
            f"; only the first has the {special[0]}" if special else ""
        )
        if counts:
            before = [
                f"{margin}index = {self.start}"
                if step is None
                else f"{margin}channels, index = {first}, {self.start}"
            ]
            after = ["index += 1" if step is None else f"channels, index = {step}, index + 1"]
        return [
            *before,
            note,
            *lines("settings = ", Call("", tuple(map(Item, rows)), "[]"), depth=2),
            *_loop("", ", ".join([*varying, "repeats"]), "settings", [*varying, "repeats"]),
            f"{margin}{INDENT}for {'repeat' if special else '_'} in range(repeats):",
            *added(language, target, self.pattern, call(self.kind, texts), after, 4),
        ]

    def _next_channels(self, varying: Sequence[str]) -> str | None:
        """The channels of the next use, as an expression of this use's arguments, if one is right for all."""
        if "channels" not in varying:
            return None
        pairs = list(zip(self.arguments[:-1], self.arguments[1:], strict=True))
        for name in self.parameters:
            for factor in (1, 2, 4):
                if name != "channels" and all(
                    _is_multiple(after["channels"], factor, before[name]) for before, after in pairs
                ):
                    # No use follows the last one, so the loop's last assignment does no harm.
                    if name not in varying:
                        return literal(self.arguments[1]["channels"])
                    return name if factor == 1 else f"{factor} * {name}"
        return None

    def _exception(self, name: str) -> str | None:
        """An argument that differs only in the first use, or only in the last."""
        values = [use[name] for use in self.arguments]
        for place, others in ((0, values[1:]), (-1, values[:-1])):
            if len(set(others)) == 1:
                number = self.start + range(len(values))[place]
                return f"{literal(values[place])} if index == {number} else {literal(others[0])}"
        return None

    def _table(
        self, varying: Sequence[str], step: str
    ) -> tuple[list[tuple[tuple[Value, ...], int]], tuple[str, Value] | None]:
        """Rows of the varying arguments, each with its number of repeats, and the argument that differs in a
        row's first use.

        The next use's channels cannot depend on that argument.
        """
        values = [tuple(use[name] for name in varying) for use in self.arguments]
        best = [(row, len(list(group))) for row, group in groupby(values)]
        found: tuple[list[tuple[tuple[Value, ...], int]], tuple[str, Value] | None] = (best, None)
        for place, name in enumerate(varying):
            usual = Counter(row[place] for row in values).most_common(1)[0][0]
            rows = list(_rows_by_first(values, place, usual))
            if name not in step.split() and len(rows) < len(found[0]):
                found = rows, (name, usual)
        return found


def find_runs(
    parts: Sequence[TemplatePart],
    classes: Mapping[str, _HasParameters],
    outputs: Sequence[Edge] = (),
    shortest: int = SHORTEST,
) -> list[Run]:
    """The runs among the parts of a module that is used once; `outputs` are its outputs."""
    found: list[Run] = []
    for row in _rows(parts, classes, outputs):
        if len(row) >= shortest:
            kind = row[0].alternatives[0].kind
            arguments = tuple(
                {name: vector[0] for name, vector in part.alternatives[0].arguments.items()} for part in row
            )
            parameters = tuple(parameter.name for parameter in classes[kind].parameters)
            found.append(
                Run(kind, tuple(part.name for part in row), _counter(row[0].name)[1], arguments, parameters)
            )
    return found


def whole_run(parts: Sequence[TemplatePart], classes: Mapping[str, _HasParameters]) -> Run | None:
    """The run of all `parts` of a chain; None where they are not one."""
    runs = find_runs(parts, classes, shortest=1)
    return runs[0] if runs and len(runs[0].names) == len(parts) else None


def _rows(
    parts: Sequence[TemplatePart], classes: Mapping[str, _HasParameters], outputs: Sequence[Edge]
) -> Iterator[list[TemplatePart]]:
    reads = Counter(
        source
        for edge in (*outputs, *(edge for part in parts for edge in part.inputs))
        for source in edge.sources
    )
    row: list[TemplatePart] = []
    for part in parts:
        # A loop keeps only its last value: a part that is read elsewhere too ends its row.
        if row and (not _follows(row[-1], part) or reads[row[-1].name] > 1):
            yield row
            row = []
        numbered = "." not in part.name and _counter(part.name)[1] >= 0
        row = [*row, part] if numbered and part.alternatives[0].kind in classes else []
    if row:
        yield row


def _follows(before: TemplatePart, part: TemplatePart) -> bool:
    (prefix, number), (other, next_number) = _counter(before.name), _counter(part.name)
    same = (
        before.alternatives[0].kind == part.alternatives[0].kind
        and prefix == other
        and next_number == number + 1
    )
    return same and [edge.source for edge in part.inputs] == [before.name]


def _counter(name: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.*?)(0|[1-9]\d*)", name)
    return (match[1], int(match[2])) if match else (name, -1)


def _rows_by_first(
    values: Sequence[tuple[Value, ...]], place: int, usual: Value
) -> Iterator[tuple[tuple[Value, ...], int]]:
    """Rows in which the value at `place` is any in the first use and `usual` in the others, with the number
    of uses.
    """
    start = 0
    for end in range(1, len(values) + 1):
        rest = [(*row[:place], *row[place + 1 :]) for row in values[start : end + 1]]
        if end == len(values) or rest[0] != rest[-1] or values[end][place] != usual:
            yield values[start], end - start
            start = end


def added(
    language: Language, target: str, pattern: str, use: Call, after: Sequence[str], depth: int
) -> list[str]:
    """The lines that add the part called `pattern` to `target`, and those `after` them."""
    added = lines("", language.added(target, pattern, use), depth=depth)
    if len(added) > 1:
        added = [
            *lines("block = ", use, depth=depth),
            *lines("", language.added(target, pattern, "block"), depth=depth),
        ]
    return [*added, *(INDENT * depth + text for text in after)]


def _loop(before: str, names: str, table: str, varying: Sequence[str]) -> list[str]:
    """The head of a loop over a table. If its line would be too long, the row is taken apart in the next
    one.
    """
    head = f"{INDENT * 2}for {names} in {table}:"
    if len(head) <= WIDTH:
        return [head]
    return [f"{INDENT * 2}for {before}row in {table}:", *tuple_lines("", varying, " = row", 3)]


def _row(values: tuple[Value, ...]) -> str:
    texts = [literal(value) for value in values]
    return f"({', '.join(texts)})" if len(texts) > 1 else texts[0]


def _is_multiple(value: Value, factor: int, of: Value) -> bool:
    return type(of) is int and value == factor * of
