"""Python expressions laid out as ruff would lay them out, so that generated code needs no formatter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

from porter.graph.blocks.arguments import Arguments, Value, Vector

WIDTH = 100
INDENT = "    "


@dataclass(frozen=True)
class Call:
    """A call, a list or a tuple: `head`, the opening bracket, items, the closing bracket."""

    head: str
    items: tuple[Item, ...]
    brackets: str = "()"


@dataclass(frozen=True)
class Choice:
    """`yes if condition else no`."""

    yes: Expression
    condition: str
    no: Expression


Expression = str | Call | Choice


@dataclass(frozen=True)
class Item:
    """An argument, with the keyword it is passed by and a comment for the line above it."""

    value: Expression
    keyword: str = ""
    comment: str = ""


def call(head: str, *values: Expression, **keywords: Expression) -> Call:
    return Call(
        head, (*(Item(value) for value in values), *(Item(value, key) for key, value in keywords.items()))
    )


def expressed(arguments: Arguments, slot: str, vector: Vector, owner: str) -> Expression:
    """The value of a slot in every use: itself, where it is one value, otherwise an expression of the
    arguments.
    """
    values = set(vector.values())
    return spelled(values.pop()) if len(values) == 1 else arguments.express(slot, vector, owner)


def spelled(value: Value) -> Expression:
    """As an argument. One number for each channel becomes a list, which may take many lines; one for each
    axis stays a tuple.
    """
    if isinstance(value, tuple) and len(value) > 2 and any(isinstance(number, float) for number in value):
        return Call("", tuple(Item(literal(number)) for number in value), "[]")
    return literal(value)


def literal(value: Value | str | None) -> str:
    """Python's own spelling; infinities by name."""
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    if isinstance(value, str):
        return '"' + repr(value)[1:-1].replace('"', '\\"') + '"'
    return repr(value)


def flat(expression: Expression) -> str | None:
    """On one line; None where a comment forbids it."""
    if isinstance(expression, str):
        return expression
    if isinstance(expression, Choice):
        yes, no = flat(expression.yes), flat(expression.no)
        return None if yes is None or no is None else f"{yes} if {expression.condition} else {no}"
    items = [_flat_item(item) for item in expression.items]
    if None in items:
        return None
    return expression.head + expression.brackets[0] + ", ".join(filter(None, items)) + expression.brackets[1]


def _flat_item(item: Item) -> str | None:
    value = flat(item.value)
    if item.comment or value is None:
        return None
    return f"{item.keyword}={value}" if item.keyword else value


def comment(text: str, depth: int) -> list[str]:
    margin = f"{INDENT * depth}# "
    return wrap(text, WIDTH, initial_indent=margin, subsequent_indent=margin)


def lines(prefix: str, expression: Expression, suffix: str = "", depth: int = 0) -> list[str]:
    """`prefix`, the expression and `suffix` as lines at an indentation of `depth` steps."""
    margin = INDENT * depth
    whole = flat(expression)
    if whole is not None and len(margin + prefix + whole + suffix) <= WIDTH:
        return [margin + prefix + whole + suffix]
    if isinstance(expression, str):
        return [margin + prefix + expression + suffix]
    if isinstance(expression, Choice):
        if whole is not None and len(margin + INDENT + whole) <= WIDTH:
            return [f"{margin}{prefix}(", f"{margin}{INDENT}{whole}", f"{margin}){suffix}"]
        return [
            f"{margin}{prefix}(",
            *lines("", expression.yes, "", depth + 1),
            f"{margin}{INDENT}if {expression.condition}",
            *lines("else ", expression.no, "", depth + 1),
            f"{margin}){suffix}",
        ]
    first, last = (
        margin + prefix + expression.head + expression.brackets[0],
        margin + expression.brackets[1] + suffix,
    )
    items = [_flat_item(item) for item in expression.items]
    inner = None if None in items else ", ".join(filter(None, items))
    is_call = expression.brackets == "()" and (prefix + expression.head)[-1:] not in ("", " ")
    if inner is not None and is_call and len(margin + INDENT + inner) <= WIDTH:
        return [first, margin + INDENT + inner, last]
    body: list[str] = []
    for item in expression.items:
        if item.comment:
            body += comment(item.comment, depth + 1)
        body += lines(f"{item.keyword}=" if item.keyword else "", item.value, ",", depth + 1)
    return [first, *body, last]


def tuple_lines(prefix: str, items: Sequence[Expression], suffix: str = "", depth: int = 0) -> list[str]:
    """As `lines`, for a tuple, which has parentheses only if it takes several lines."""
    bare = ", ".join(flat(item) or "" for item in items)
    if len(items) > 1 and len(INDENT * depth + prefix + bare + suffix) > WIDTH:
        return lines(prefix, Call("", tuple(map(Item, items))), suffix, depth)
    return lines(prefix, bare, suffix, depth)
