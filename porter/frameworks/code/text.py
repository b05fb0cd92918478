"""Python expressions laid out as ruff would lay them out, so that generated code needs no formatter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import wrap

from porter.graph.blocks.parameters import Arguments, PlainValue, Vector

WIDTH = 100
INDENT = "    "


@dataclass(frozen=True)
class Bracketed:
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


Expression = str | Bracketed | Choice


@dataclass(frozen=True)
class Item:
    """An argument, with the keyword it is passed by and a comment for the line above it."""

    value: Expression
    keyword: str = ""
    comment: str = ""


def call(head: str, *values: Expression, **keywords: Expression) -> Bracketed:
    """Return a call of `head`, with these values by position and by keyword."""
    return Bracketed(
        head, (*(Item(value) for value in values), *(Item(value, key) for key, value in keywords.items()))
    )


def express(arguments: Arguments, slot: str, vector: Vector, owner: str) -> Expression:
    """Return the text of a layer's argument in a class that has several uses.

    Args:
        arguments: what the class takes; it gets what the text needs.
        slot: the layer's argument, such as `out_channels`.
        vector: its value by the number of the use; one value is written as itself, several as an expression
            of the class's arguments, such as `4 * width`.
        owner: the layer's name, after which a new argument of the class is called.
    """
    values = set(vector.values())
    return spell(values.pop()) if len(values) == 1 else arguments.express(slot, vector, owner)


def spell(value: PlainValue) -> Expression:
    """Spell a value as an argument. One number for each channel becomes a list, which may take many lines;
    one for each axis stays a tuple.
    """
    if isinstance(value, tuple) and len(value) > 2 and any(isinstance(number, float) for number in value):
        return Bracketed("", tuple(Item(literal(number)) for number in value), "[]")
    return literal(value)


def literal(value: PlainValue | str | None) -> str:
    """Return a value as Python spells it: `(2, 3)`, a text in double quotes, and infinities by name, as
    `float("inf")`.
    """
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    if isinstance(value, str):
        without_quotes = repr(value)[1:-1]
        return '"' + without_quotes.replace('"', '\\"') + '"'
    return repr(value)


def flat(expression: Expression) -> str | None:
    """Return the expression on one line; None where a comment forbids it."""
    if isinstance(expression, str):
        return expression
    if isinstance(expression, Choice):
        yes, no = flat(expression.yes), flat(expression.no)
        return None if yes is None or no is None else f"{yes} if {expression.condition} else {no}"
    items = [_flat_item(item) for item in expression.items]
    if None in items:
        return None
    opening, closing = expression.brackets[0], expression.brackets[1]
    return expression.head + opening + ", ".join(filter(None, items)) + closing


def _flat_item(item: Item) -> str | None:
    """Return an argument on one line; None where it has a comment."""
    value = flat(item.value)
    if item.comment or value is None:
        return None
    return f"{item.keyword}={value}" if item.keyword else value


@dataclass(frozen=True)
class Code:
    """Lines of Python, of which the next ones stand `depth` steps of indentation in. Codes of several depths
    add to one list of `lines`.
    """

    depth: int = 0
    lines: list[str] = field(default_factory=list)

    def line(self, text: str) -> None:
        self.lines.append(INDENT * self.depth + text)

    @property
    def deeper(self) -> Code:
        """A Code that adds to the same lines, one step further in."""
        return Code(self.depth + 1, self.lines)

    def within(self, head: str) -> Code:
        """Write a line such as `for index in range(4):`, and return the code in its block."""
        self.line(head)
        return self.deeper

    def fits(self, text: str) -> bool:
        """Say whether a line with this text is no longer than lines are."""
        return len(INDENT * self.depth + text) <= WIDTH

    def comment(self, text: str) -> None:
        margin = f"{INDENT * self.depth}# "
        self.lines.extend(wrap(text, WIDTH, initial_indent=margin, subsequent_indent=margin))

    def say(self, prefix: str, expression: Expression, suffix: str = "") -> None:
        """Write `prefix`, the expression and `suffix`, in several lines if one does not hold them."""
        whole = flat(expression)
        if isinstance(expression, str) or (whole is not None and self.fits(prefix + whole + suffix)):
            self.line(f"{prefix}{whole}{suffix}")
        elif isinstance(expression, Choice):
            self._say_choice(prefix, expression, suffix)
        else:
            self._say_call(prefix, expression, suffix)

    def say_tuple(self, prefix: str, items: Sequence[Expression], suffix: str = "") -> None:
        """Write `prefix`, a tuple of the items and `suffix`, in several lines if one does not hold them. The
        tuple has parentheses only then; a single item is written as itself.
        """
        bare = ", ".join(flat(item) or "" for item in items)
        if len(items) == 1:
            self.say(prefix, items[0], suffix)
        else:
            several = Bracketed("", tuple(map(Item, items)))
            self.say(prefix, bare if self.fits(prefix + bare + suffix) else several, suffix)

    def _say_choice(self, prefix: str, choice: Choice, suffix: str) -> None:
        """Write a choice in parentheses over several lines: on one line between these if it fits, otherwise
        its value, its condition and the other value on a line each.
        """
        whole = flat(choice)
        inner = self.within(f"{prefix}(")
        if whole is not None and inner.fits(whole):
            inner.line(whole)
        else:
            inner.say("", choice.yes)
            inner.line(f"if {choice.condition}")
            inner.say("else ", choice.no)
        self.line(f"){suffix}")

    def _say_call(self, prefix: str, call: Bracketed, suffix: str) -> None:
        """Write a call over several lines: its arguments on one line if they fit, otherwise one a line."""
        opening, closing = call.brackets[0], call.brackets[1]
        inner = self.within(prefix + call.head + opening)
        items = [_flat_item(item) for item in call.items]
        together = None if None in items else ", ".join(filter(None, items))
        # Before a tuple stands nothing, or a space: its items go one a line.
        is_call = opening == "(" and (prefix + call.head)[-1:] not in ("", " ")
        if together is not None and is_call and inner.fits(together):
            inner.line(together)
        else:
            for item in call.items:
                if item.comment:
                    inner.comment(item.comment)
                inner.say(f"{item.keyword}=" if item.keyword else "", item.value, ",")
        self.line(closing + suffix)
