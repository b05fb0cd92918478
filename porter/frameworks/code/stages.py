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
    """Write the function `name` for several rows, whose parts have the same class and names. Return None
    where it would not be simple: only the first or the last part of a row may differ.

    Args:
        runs: the parts of each row, by the row's name, such as `stage1`.
        call: writes a use of the class from the text of its arguments.
    """
    rows = dict(enumerate(runs.values()))
    first_row = rows[0]  # for the class and the pattern of names, which all rows have
    # The argument for the number of parts: `units` of `unit{index}`.
    count = first_row.pattern.removesuffix("{index}") + "s"
    if not count.isidentifier() or count in language.taken | language.imported | set(first_row.parameters):
        return None
    lengths = {row: len(run.names) for row, run in rows.items()}
    arguments = Arguments({**_row_arguments(rows), count: lengths}, literal)
    length = express(arguments, count, lengths, count)
    uses_of_rows = [run.arguments for run in rows.values()]
    last_index = _plus(length, first_row.start - 1)
    texts: dict[str, Expression] = {}
    for key in first_row.parameters:
        text = _argument_text(key, uses_of_rows, arguments, str(first_row.start), last_index)
        if text is None:
            return None
        texts[key] = text
    used = arguments.used_arguments()
    use = call(first_row.kind, texts)
    lines = _function_lines(name, [*used, *language.passed_names], first_row, length, use, language)
    calls = {
        row: _call_stage(name, {key: vector[number] for key, vector in used.items()}, language)
        for number, row in enumerate(runs)
    }
    return Stages(lines, calls)


def _row_arguments(rows: Mapping[int, PartRun]) -> dict[str, Vector]:
    """Return the arguments of the class that are the same in all parts of each row, by argument and number of
    the row; and `channels`, which may differ behind a row's first part, as the first part has it.
    """
    return {
        key: {row: run.arguments[0][key] for row, run in rows.items()}
        for key in rows[0].parameters
        if key == "channels" or all(len({use[key] for use in run.arguments}) == 1 for run in rows.values())
    }


def _function_lines(
    name: str, parameters: Sequence[str], row: PartRun, length: Expression, use: Bracketed, language: Language
) -> tuple[str, ...]:
    """Return the lines of the function `name`, as at the head of this module.

    Args:
        row: any row, for the numbers in its parts' names.
        length: the number of parts, as an expression of the parameters.
        use: what makes a part.
    """
    # A text that has no flat form may read the index too.
    reads_index = not language.rows or "index" in (flat(use) or "index")
    index = "index" if reads_index else "_"
    code = Code()
    code.say(f"def {name}", Bracketed("", tuple(map(Item, parameters))), ":")
    body = code.deeper
    body.line(f"row = {language.row}")
    begin = f"{row.start}, " if row.start else ""
    loop = body.within(f"for {index} in range({begin}{_plus(length, row.start)}):")
    Owner(language, "row").add(loop, row.pattern, use)
    body.line("return row")
    return tuple(code.lines)


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
    first_values = {row: vector[0] for row, vector in enumerate(values)}
    if all(len(set(vector)) == 1 for vector in values):
        return express(arguments, key, first_values, key)
    last_values = {row: vector[-1] for row, vector in enumerate(values)}
    for special_values, which, number, others in (
        (first_values, "first", first, slice(1, None)),
        (last_values, "last", last, slice(None, -1)),
    ):
        # A row of one part has no others.
        if all(len(set(vector[others])) <= 1 for vector in values):
            usual_values = {row: vector[others][0] for row, vector in enumerate(values) if vector[others]}
            usual = express(arguments, key, usual_values, "other")
            special = express(arguments, key, special_values, which)
            return Choice(_in_parentheses(special), f"index == {number}", _in_parentheses(usual))
    step = _common_step(values)
    if step is None:
        return None
    begin = express(arguments, key, first_values, key)
    return f"{begin} + {step} * {'index' if first == '0' else f'(index - {first})'}"


def _common_step(rows: Sequence[Sequence[PlainValue]]) -> int | None:
    """Return by how much each value is more than the one before it, if that is the same in every row;
    otherwise None. The rows 64, 96, 128 and 128, 160 have the step 32: DenseNet's layers read the outputs of
    all before them.
    """
    steps = {
        after - before
        for row in rows
        for before, after in pairwise(row)
        if isinstance(before, int) and isinstance(after, int)
    }
    are_whole = all(type(value) is int for row in rows for value in row)
    return steps.pop() if are_whole and len(steps) == 1 else None


def _in_parentheses(expression: Expression) -> Expression:
    """Put a condition within a condition in parentheses."""
    return f"({expression})" if isinstance(expression, str) and " if " in expression else expression


def _plus(number: Expression, added: int) -> str:
    """Return the text of a number or a name, plus `added`: 4 and -1 give `3`, `units` and -1 `units - 1`."""
    if str(number).isdecimal():
        return str(int(str(number)) + added)
    if added == 0:
        return str(number)
    return f"{number} {'+' if added > 0 else '-'} {abs(added)}"


def _call_stage(name: str, values: Mapping[str, PlainValue], language: Language) -> Bracketed:
    """Return a call with the first argument, or `channels` and the next, by its place, and the others by
    name: `stage(64, 64, units=3, stride=2)`.
    """
    positional = 2 if "channels" in values else 1
    items = (
        Item(literal(value), key if index >= positional else "")
        for index, (key, value) in enumerate(values.items())
    )
    return Bracketed(name, (*items, *language.passed_items))
