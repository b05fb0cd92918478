"""Uses of one class in a row, as a loop over a short table, as papers print them.

In torch:

    channels, index = 32, 0
    # expansion, filters, stride, repeats; only the first has the stride
    settings = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
    ]
    for expansion, filters, stride, repeats in settings:
        for repeat in range(repeats):
            block = InvertedResidual(channels, expansion, filters, stride if repeat == 0 else 1)
            self.add_module(f"block{index}", block)
            channels, index = filters, index + 1
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

from porter.frameworks.code.language import Language
from porter.frameworks.code.template import Edge, TemplatePart
from porter.frameworks.code.text import Bracketed, Code, Expression, Item, literal, spell
from porter.frameworks.code.written_class import ClassesByName
from porter.graph.blocks.parameters import PlainValue

SHORTEST = 5
"""The least number of uses for which a loop reads better than single lines."""


WriteUse = Callable[[str, Mapping[str, Expression]], Bracketed]
ArgumentRows = list[tuple[tuple[PlainValue, ...], int]]
"""Rows of arguments, each with the number of uses that have it."""


SpecialArgument = tuple[str, PlainValue]
"""An argument that differs in a row's first use, with its value in the others."""


class _Carried(NamedTuple):
    """A variable that a use passes on to the next one: its value before the loop, and for the next use."""

    name: str
    begin: str
    after: str


@dataclass(frozen=True)
class Owner:
    """What a loop adds parts to, by its name in the text: a module, `self`, or a row."""

    language: Language
    name: str

    @property
    def counts(self) -> bool:
        """Whether parts have names, in which they are counted."""
        return self.name == "self" or not self.language.rows

    def add(self, code: Code, pattern: str, use: Bracketed) -> None:
        """Write what adds the part called `pattern`: `self.add_module(f"block{index}", block)`."""
        added = Code(code.depth)
        added.say("", self.language.add_part(self.name, pattern, use))
        if len(added.lines) == 1:
            code.lines.extend(added.lines)
            return
        code.say("block = ", use)
        code.say("", self.language.add_part(self.name, pattern, "block"))


@dataclass(frozen=True)
class PartRun:
    """Consecutive parts `prefix` + a number from `start` on, all of the class `kind`, each fed by the one
    before.

    Attributes:
        names: of the parts.
        arguments: the values of each use, by argument.
        parameters: the class's arguments, in its order.
    """

    kind: str
    names: tuple[str, ...]
    start: int
    arguments: tuple[Mapping[str, PlainValue], ...]
    parameters: tuple[str, ...]

    @property
    def pattern(self) -> str:
        """The parts' names as the inside of an f-string: `block{index}`."""
        return _split_number(self.names[0])[0] + "{index}"

    @property
    def numbers(self) -> str:
        stop = self.start + len(self.names)
        return f"range({stop})" if self.start == 0 else f"range({self.start}, {stop})"

    def write(self, code: Code, owner: Owner, call: WriteUse) -> None:
        """Write the loop that adds the parts to their owner. Its call has all arguments if each is constant
        or differs only in the first or the last use; otherwise it loops over a table of them.

        Args:
            code: where the lines are added.
            owner: the module or row that the parts belong to.
            call: writes a use of the class from the text of its arguments.
        """
        varying = [name for name in self.parameters if len({use[name] for use in self.arguments}) > 1]
        first_use = self.arguments[0]
        texts: dict[str, Expression] = {
            name: name if name in varying else spell(first_use[name]) for name in self.parameters
        }
        exceptions = {
            name: text for name in varying if (text := self._argument_of_exception(name)) is not None
        }
        # All that varies has such a condition.
        if len(exceptions) == len(varying):
            # The conditions ask for the index, also in a row without names.
            loop = code.within(self._for_line(counts=bool(exceptions) or owner.counts))
            owner.add(loop, self.pattern, call(self.kind, texts | exceptions))
        else:
            self._write_table_loop(
                code, owner, lambda changed: call(self.kind, {**texts, **changed}), varying
            )

    def _write_table_loop(
        self,
        code: Code,
        owner: Owner,
        use: Callable[[Mapping[str, Expression]], Bracketed],
        varying: Sequence[str],
    ) -> None:
        """Write the loop with a table of what varies, and with the channels and the index that a use passes
        on to the next one, as at the head of this module. It is one loop over a row for each use, two where
        rows repeat, and one without a table where only the channels vary.

        Args:
            use: writes a use of the class, from the text of arguments that are not the variables' names.
            varying: names of the arguments that differ between uses.
        """
        step = self._next_channels(varying)
        carried = [] if step is None else [_Carried("channels", str(self.arguments[0]["channels"]), step)]
        in_table = [name for name in varying if step is None or name != "channels"]
        table, special = self._shortest_table(in_table, step or "")
        if in_table and any(repeats > 1 for _, repeats in table):
            if owner.counts:
                carried.append(_Carried("index", str(self.start), "index + 1"))
            _begin_carried(code, carried)
            loop = _write_nested_loops(code, in_table, table, special)
            owner.add(loop, self.pattern, use(_text_of_special(special)))
        else:
            _begin_carried(code, carried)
            if in_table:
                loop = self._write_settings_loop(code, in_table, table, owner.counts)
            else:
                loop = code.within(self._for_line(owner.counts))
            owner.add(loop, self.pattern, use({}))
        _pass_on_carried(loop, carried)

    def _for_line(self, counts: bool) -> str:
        """Return the loop's first line: `for index in range(3):`, or `for _ in range(3):` where nothing
        `counts`.
        """
        return f"for index in {self.numbers}:" if counts else f"for _ in range({len(self.names)}):"

    def _write_settings_loop(
        self, code: Code, varying: Sequence[str], table: ArgumentRows, counts: bool
    ) -> Code:
        """Write a loop over a row of arguments for each use: `for index, width in enumerate(settings):`.
        Return the code within it.
        """
        _say_settings(code, [row for row, _ in table])
        names = ", ".join(varying)
        if not counts:
            return _write_loop(code, "", names, "settings", varying)
        start = f", start={self.start}" if self.start else ""
        row = f"({names})" if len(varying) > 1 else names
        return _write_loop(code, "index, ", f"index, {row}", f"enumerate(settings{start})", varying)

    def _next_channels(self, varying: Sequence[str]) -> str | None:
        """Return the channels of the next use, as an expression of this use's arguments, such as `filters` or
        `4 * width`, if one is right for all uses; otherwise None.
        """
        if "channels" not in varying:
            return None
        pairs = list(pairwise(self.arguments))
        for name in self.parameters:
            if name == "channels":
                continue
            for factor in (1, 2, 4):  # as blocks widen their channels
                if not all(_is_multiple(after["channels"], factor, before[name]) for before, after in pairs):
                    continue
                # No use follows the last one, so the loop's last assignment does no harm.
                if name not in varying:
                    return literal(self.arguments[1]["channels"])
                return name if factor == 1 else f"{factor} * {name}"
        return None

    def _argument_of_exception(self, name: str) -> str | None:
        """Return `2 if index == 0 else 1` for an argument that differs only in the first use, or only in the
        last; None for any other.
        """
        values = [use[name] for use in self.arguments]
        last = len(values) - 1
        for exception, others in ((0, values[1:]), (last, values[:-1])):
            if len(set(others)) == 1:
                condition = f"index == {self.start + exception}"
                return f"{literal(values[exception])} if {condition} else {literal(others[0])}"
        return None

    def _shortest_table(
        self, varying: Sequence[str], step: str
    ) -> tuple[ArgumentRows, SpecialArgument | None]:
        """Return the shortest table: rows of the varying arguments, each with its number of repeats; and the
        argument that differs in a row's first use, with its usual value, such as `("stride", 1)`. None in
        place of the argument where rows are not fewer by one.

        Args:
            step: the expression of the next use's channels, which cannot depend on that argument.
        """
        values = [tuple(use[name] for name in varying) for use in self.arguments]
        equal_rows = [(row, len(list(group))) for row, group in groupby(values)]
        shortest: tuple[ArgumentRows, SpecialArgument | None] = (equal_rows, None)
        for index, name in enumerate(varying):
            usual = Counter(row[index] for row in values).most_common(1)[0][0]
            rows = list(_rows_with_special_first(values, index, usual))
            if name not in step.split() and len(rows) < len(shortest[0]):
                shortest = rows, (name, usual)
        return shortest


def find_runs(
    parts: Sequence[TemplatePart],
    classes: ClassesByName,
    outputs: Sequence[Edge] = (),
    shortest: int = SHORTEST,
) -> list[PartRun]:
    """Return the runs among the parts of a module that is used once: at least `shortest` consecutive parts
    that one loop can make. `outputs` are the module's outputs, which read parts too.
    """
    return [
        _make_run(row, classes) for row in _split_into_rows(parts, classes, outputs) if len(row) >= shortest
    ]


def _make_run(row: Sequence[TemplatePart], classes: ClassesByName) -> PartRun:
    """Return consecutive uses of one class as a run, with the arguments of each in the module's only use."""
    kind = row[0].alternatives[0].kind
    _, start = _split_number(row[0].name)
    return PartRun(
        kind,
        tuple(part.name for part in row),
        start,
        tuple({name: vector[0] for name, vector in part.alternatives[0].arguments.items()} for part in row),
        tuple(parameter.name for parameter in classes[kind].parameters),
    )


def find_whole_run(parts: Sequence[TemplatePart], classes: ClassesByName) -> PartRun | None:
    """Return the run of all `parts` of a chain; None where they are not one run."""
    runs = find_runs(parts, classes, shortest=1)
    return runs[0] if runs and len(runs[0].names) == len(parts) else None


def _split_into_rows(
    parts: Sequence[TemplatePart], classes: ClassesByName, outputs: Sequence[Edge]
) -> Iterator[list[TemplatePart]]:
    """Yield the longest sequences of parts that one loop can make and call: numbered uses of one class, each
    read by the next one only. A single part is a sequence too.
    """
    reads = Counter(
        source
        for edge in (*outputs, *(edge for part in parts for edge in part.inputs))
        for source in edge.sources
    )
    row: list[TemplatePart] = []
    for part in parts:
        # A loop keeps only its last value: a part that is read elsewhere too ends its row.
        if row and (not _is_next(row[-1], part) or reads[row[-1].name] > 1):
            yield row
            row = []
        is_numbered = "." not in part.name and _split_number(part.name)[1] >= 0
        row = [*row, part] if is_numbered and part.alternatives[0].kind in classes else []
    if row:
        yield row


def _is_next(before: TemplatePart, part: TemplatePart) -> bool:
    """Say whether a part is the next one of a row: of the same class, with the next number (`block5` after
    `block4`), and fed by the one before only.
    """
    word, number = _split_number(before.name)
    is_same_class = before.alternatives[0].kind == part.alternatives[0].kind
    is_counted_on = _split_number(part.name) == (word, number + 1)
    return is_same_class and is_counted_on and [edge.source for edge in part.inputs] == [before.name]


def _split_number(name: str) -> tuple[str, int]:
    """Split a name such as `block12` into its word and its number, ("block", 12); the number is -1 where it
    has none.
    """
    match = re.fullmatch(r"(.*?)(0|[1-9]\d*)", name)
    return (match[1], int(match[2])) if match else (name, -1)


def _rows_with_special_first(
    values: Sequence[tuple[PlainValue, ...]], place: int, usual: PlainValue
) -> Iterator[tuple[tuple[PlainValue, ...], int]]:
    """Yield rows in which the value at `place` is any in the first use and `usual` in the others, each with
    its number of uses: with place 1 and usual 1, (24, 2), (24, 1), (24, 1), (32, 2) gives ((24, 2), 3) and
    ((32, 2), 1).

    Args:
        values: the arguments of each use.
    """
    start = 0  # the first use of the row
    for end in range(1, len(values) + 1):
        # the uses of this row and the next one, without that argument
        other_values = [(*row[:place], *row[place + 1 :]) for row in values[start : end + 1]]
        # A row ends where another argument differs, or where the one at `place` is not the usual one.
        if end == len(values) or other_values[0] != other_values[-1] or values[end][place] != usual:
            yield values[start], end - start
            start = end


def _write_nested_loops(
    code: Code, varying: Sequence[str], table: ArgumentRows, special: SpecialArgument | None
) -> Code:
    """Write a loop over rows of arguments, and in it one over the uses that have a row: `for width, repeats
    in settings:` and `for _ in range(repeats):`. Return the code within it.

    Args:
        varying: names of the arguments.
        special: the argument that only a row's first use has, so that the inner loop counts.
    """
    names = [*varying, "repeats"]
    note = f"; only the first has the {special[0]}" if special else ""
    code.line(f"# {', '.join(names)}{note}")
    _say_settings(code, [(*row, repeats) for row, repeats in table])
    uses = "repeat" if special else "_"
    return _write_loop(code, "", ", ".join(names), "settings", names).within(f"for {uses} in range(repeats):")


def _text_of_special(special: SpecialArgument | None) -> dict[str, Expression]:
    """Return the text of the argument that only a row's first use has: `stride if repeat == 0 else 1`."""
    if special is None:
        return {}
    name, usual = special
    return {name: f"{name} if repeat == 0 else {literal(usual)}"}


def _begin_carried(code: Code, carried: Sequence[_Carried]) -> None:
    """Write the line before a loop that gives its carried variables their first values, if it has any."""
    if carried:
        names = ", ".join(variable.name for variable in carried)
        code.line(f"{names} = {', '.join(variable.begin for variable in carried)}")


def _pass_on_carried(loop: Code, carried: Sequence[_Carried]) -> None:
    """Write the last line of a loop, which gives its carried variables their values for the next use."""
    names = [variable.name for variable in carried]
    if names == ["index"]:  # as a person would write it
        loop.line("index += 1")
    elif names:
        loop.line(f"{', '.join(names)} = {', '.join(variable.after for variable in carried)}")


def _say_settings(code: Code, rows: Sequence[tuple[PlainValue, ...]]) -> None:
    code.say("settings = ", Bracketed("", tuple(Item(_row_text(row)) for row in rows), "[]"))


def _write_loop(code: Code, before: str, names: str, table: str, varying: Sequence[str]) -> Code:
    """Write a loop over a table, and return the code within it. If its head would be too long, it is `for row
    in settings:`, and the row is taken apart in the next line.

    Args:
        before: what stands before `row` in such a head: `index, ` or nothing.
        names: all variables of the usual head, as text.
        table: the text of what is looped over.
        varying: the variables of a row.
    """
    head = f"for {names} in {table}:"
    if code.fits(head):
        return code.within(head)
    loop = code.within(f"for {before}row in {table}:")
    loop.say_tuple("", varying, " = row")
    return loop


def _row_text(values: tuple[PlainValue, ...]) -> str:
    texts = [literal(value) for value in values]
    return f"({', '.join(texts)})" if len(texts) > 1 else texts[0]


def _is_multiple(value: PlainValue, factor: int, number: PlainValue) -> bool:
    """Say whether a value is `factor` times a number, which is a whole one and no bool."""
    return type(number) is int and value == factor * number
