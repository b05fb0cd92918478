"""Several rows of one class's uses as one function, which is called for each row.

In torch, `stage(64, 64, units=3, stride=2)` is a call of

    def stage(channels, width, units, stride):
        row = nn.Sequential()
        for index in range(1, units + 1):
            block = Unit(channels if index == 1 else 4 * width, width, stride if index == units else 1)
            row.add_module(f"unit{index}", block)
        return row
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from porter.frameworks.code.language import Language
from porter.frameworks.code.loops import Owner, PartRun
from porter.frameworks.code.text import Bracketed, Choice, Code, Expression, Item, express, flat, literal
from porter.graph.blocks.parameters import Arguments, PlainValue, Vector


@dataclass(frozen=True)
class Stages:
    """A function that builds rows, and the call that builds each, by the row's name."""

    lines: tuple[str, ...]
    calls: Mapping[str, Bracketed]


def write_stages(
    name: str,
    runs: Mapping[str, PartRun],
    language: Language,
    call: Callable[[str, Mapping[str, Expression]], Bracketed],
) -> Stages | None:
    """Write the function `name` for the rows `runs`, whose parts have the same class and names. Return None
    where it would not be simple: only the first or the last part of a row may differ.

    Args:
        call: writes a use of the class from the text of its arguments.
    """
    rows = dict(enumerate(runs.values()))
    first = rows[0]
    constant = [
        key
        for key in first.parameters
        if all(len({use[key] for use in run.arguments}) == 1 for run in rows.values())
    ]
    # The argument for the number of parts: `units` of `unit{index}`.
    count = first.pattern.removesuffix("{index}") + "s"
    if not count.isidentifier() or count in language.taken | language.imported | set(first.parameters):
        return None
    given: dict[str, Vector] = {
        key: {row: run.arguments[0][key] for row, run in rows.items()}
        for key in first.parameters
        # In a row, the channels may differ behind the first part.
        if key in (*constant, "channels")
    }
    lengths = {row: len(run.names) for row, run in rows.items()}
    arguments = Arguments({**given, count: lengths}, literal)
    length = express(arguments, count, lengths, count)
    texts: dict[str, Expression] = {}
    for key in first.parameters:
        text = _argument_text(
            key,
            [run.arguments for run in rows.values()],
            arguments,
            str(first.start),
            _plus(length, first.start - 1),
        )
        if text is None:
            return None
        texts[key] = text
    used = arguments.used_arguments()
    use = call(first.kind, texts)
    # Where nothing reads the index, the loop has no name for it.
    number = "_" if language.rows and "index" not in (flat(use) or "index") else "index"
    code = Code()
    code.say(f"def {name}", Bracketed("", tuple(map(Item, [*used, *language.passed]))), ":")
    body = code.deeper
    body.line(f"row = {language.row}")
    begin = f"{first.start}, " if first.start else ""
    loop = body.within(f"for {number} in range({begin}{_plus(length, first.start)}):")
    Owner(language, "row").add(loop, first.pattern, use)
    body.line("return row")
    calls = {
        row: _call_stage(name, {key: vector[number] for key, vector in used.items()}, language)
        for number, row in enumerate(runs)
    }
    return Stages(tuple(code.lines), calls)


def _argument_text(
    key: str, rows: Sequence[Sequence[Mapping[str, PlainValue]]], arguments: Arguments, first: str, last: str
) -> Expression | None:
    """Return the text of an argument of the class; None where it has no simple form. It is one value for each
    row (`width`), one value for a row's first or last part and another for all others (`stride if index == 1
    else 1`), or a progression (`channels + 32 * index`).

    Args:
        key: the argument.
        rows: the arguments of each part of each row.
        arguments: the function's arguments, of which the text may need further ones.
        first, last: the index of a row's first and last part, as text.
    """
    values = [[use[key] for use in row] for row in rows]
    if all(len(set(row)) == 1 for row in values):
        return express(arguments, key, {row: found[0] for row, found in enumerate(values)}, key)
    for index, which, number, others in (
        (0, "first", first, slice(1, None)),
        (-1, "last", last, slice(None, -1)),
    ):
        # A row of one part has no others.
        if all(len(set(row[others])) <= 1 for row in values):
            usual = express(
                arguments,
                key,
                {row: found[others][0] for row, found in enumerate(values) if found[others]},
                "other",
            )
            special = express(arguments, key, {row: found[index] for row, found in enumerate(values)}, which)
            return Choice(_in_parentheses(special), f"index == {number}", _in_parentheses(usual))
    step = _common_step(values)
    if step is None:
        return None
    begin = express(arguments, key, {row: found[0] for row, found in enumerate(values)}, key)
    return f"{begin} + {step} * {'index' if first == '0' else f'(index - {first})'}"


def _common_step(rows: Sequence[Sequence[PlainValue]]) -> int | None:
    """Return how much more each value is than the one before it, if it is the same in every row; otherwise
    None. DenseNet's layers read the outputs of all before them.
    """
    steps = {
        after - before
        for row in rows
        for before, after in pairwise(row)
        if isinstance(before, int) and isinstance(after, int)
    }
    whole = all(type(value) is int for row in rows for value in row)
    return steps.pop() if whole and len(steps) == 1 else None


def _in_parentheses(expression: Expression) -> Expression:
    """Put a condition within a condition in parentheses."""
    return f"({expression})" if isinstance(expression, str) and " if " in expression else expression


def _plus(number: Expression, by: int) -> str:
    """Return a number or a name, plus `by`: `units - 1`."""
    if str(number).isdecimal():
        return str(int(str(number)) + by)
    return f"{number} {'+' if by > 0 else '-'} {abs(by)}" if by else str(number)


def _call_stage(name: str, values: Mapping[str, PlainValue], language: Language) -> Bracketed:
    """Return a call with the first argument, or `channels` and the next, by its place, and the others by
    name: `stage(64, 64, units=3, stride=2)`.
    """
    places = 2 if "channels" in values else 1
    given = (
        Item(literal(value), key if index >= places else "")
        for index, (key, value) in enumerate(values.items())
    )
    return Bracketed(name, (*given, *language.passed_on))
