"""The values of a recipe that begin with `=`, and the `{s+1}` inside names.

Both are a small part of Python's expressions, read with `ast` and computed here part by part; only what is
listed below exists. There is no power, no attribute, no repetition of strings, and no number beyond
`LARGEST`, so the cost of an expression is bounded by its length.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from porter.base.errors import RecipeError
from porter.recipe.spelling import hint

Value = int | float | bool | str | tuple["Value", ...] | None
Variables = Mapping[str, Any]
"""Name to Value."""
Compute = Callable[[Variables], Value]

MAX_LENGTH = 300
LARGEST = 1e9


def round_to(value: float, multiple: int) -> int:
    """The nearest multiple, at least one of it and never below 90 % of `value`.

    slim's `make_divisible` (research/slim/nets/mobilenet/mobilenet.py), `_make_divisible` of Keras and
    torchvision, timm's `make_divisible` (timm/layers/helpers.py), whose `divisor` GhostNet sets to 4.
    """
    rounded = max(multiple, int(value + multiple / 2) // multiple * multiple)
    return rounded + multiple if rounded < 0.9 * value else rounded


def round8(value: float) -> int:
    """`round_to` a multiple of 8."""
    return round_to(value, 8)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "int": int,
    "round8": round8,
    "round_to": round_to,
}
_ONE: tuple[Callable[[int], bool], str] = (lambda count: count == 1, "one number")
_SEVERAL: tuple[Callable[[int], bool], str] = (lambda count: count > 1, "two or more numbers")
_TAKES = {
    "min": _SEVERAL,
    "max": _SEVERAL,
    "round_to": (lambda count: count == 2, "a number, and the multiple that it is rounded to"),
}
"""How many arguments a function takes, where it is not one."""
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_ORDER: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_EQUALITY: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_SCOPES = {
    **dict.fromkeys(("index", "first", "last"), "in the steps of a block, and in a step with 'repeat'"),
    "channels": "in the steps of a block",
    "count": "in paths and in names",
    "place": "in a zoo's names, but not in the prefix of all",
    "variant": "in a zoo's names",
    "input": "in the names of nodes whose input has a name",
    "own": "in the taps of nodes that have names",
}
"""Where the variables are known that no recipe declares."""
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class NoNumber(RecipeError):
    """An expression computes with a value that is not a number."""


class UnknownVariable(RecipeError):
    """An expression names a variable that is not in scope."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        scope = _SCOPES.get(name)
        advice = f"it is known {scope}" if scope else hint(name, {*known, *FUNCTIONS})
        super().__init__(f"'{name}' is not a variable here", next=advice)
        self.name = name


def is_expression(value: object) -> bool:
    return isinstance(value, str) and value.startswith("=")


def evaluate(value: Value, variables: Variables) -> Value:
    """`value` itself, or the result of its expression if it begins with `=`; lists are evaluated item by
    item.

    Raises:
        RecipeError: without `where`; the caller knows the line.
    """
    if isinstance(value, tuple):
        return tuple(evaluate(item, variables) for item in value)
    if isinstance(value, str) and is_expression(value):
        return _compiled(value[1:].strip())(variables)
    return value


def fill_in(template: str, variables: Variables) -> str:
    """`template` with each `{expression}` replaced by its value.

    Raises:
        RecipeError: without `where`.
    """

    def value_of(found: re.Match[str]) -> str:
        value = _compiled(found[1].strip())(variables)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise RecipeError(
                f"'{{{found[1]}}}' is {_show(value)}, and names are made of words and whole numbers"
            )
        return str(value)

    return _PLACEHOLDER.sub(value_of, template) if "{" in template else template


@lru_cache(maxsize=4096)
def placeholders(template: str) -> frozenset[str]:
    """The variables that a template's `{expression}`s use."""
    return frozenset(name for text in _PLACEHOLDER.findall(template) for name in variables_of(text.strip()))


def variables_of(text: str) -> frozenset[str]:
    """The variables that an expression uses, without its `=`."""
    return frozenset(
        node.id for node in ast.walk(parse(text)) if isinstance(node, ast.Name) and node.id not in FUNCTIONS
    )


@lru_cache(maxsize=4096)
def parse(text: str) -> ast.expr:
    """The tree of an expression, without its `=`.

    Raises:
        RecipeError: it is not an expression of Python, too long, or has a part that recipes lack.
    """
    if len(text) > MAX_LENGTH:
        raise RecipeError(f"an expression has at most {MAX_LENGTH} characters, this one has {len(text)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError, Warning):
        raise RecipeError(
            f"'{text}' is not an expression",
            next="such as =4*width or =1 if first else 2; in quotes if it contains a comma or a bracket",
        ) from None
    _check(tree, text)
    return tree


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Compute:
    return _computation(parse(text))


def _check(node: ast.expr, text: str) -> None:
    """Refuses the parts that `_computation` does not know, when a recipe is loaded."""
    parts: list[ast.expr]
    match node:
        case ast.Constant(value=bool() | int() | float() | str()) | ast.Name():
            parts = []
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            parts = [node.left, node.right]
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            parts = [node.operand]
        case ast.BoolOp():
            parts = node.values
        case ast.Compare() if all(type(op) in _ORDER or type(op) in _EQUALITY for op in node.ops):
            parts = [node.left, *node.comparators]
        case ast.IfExp():
            parts = [node.test, node.body, node.orelse]
        case ast.Subscript():
            parts = [node.value, node.slice]
        case ast.Call(func=ast.Name(id=name), keywords=[]) if node.args:
            if name not in FUNCTIONS:
                raise RecipeError(f"there is no function '{name}'", next=hint(name, FUNCTIONS))
            parts = node.args
        case _:
            raise RecipeError(
                f"'{ast.get_source_segment(text, node) or text}' is not part of the recipe language",
                next="there are + - * / // %, comparisons, and/or/not, a if c else b, indexing, "
                + ", ".join(FUNCTIONS),
            )
    for part in parts:
        _check(part, text)


def _computation(node: ast.expr) -> Compute:
    """What computes an expression that `_check` let through: its tree is looked at once, because a graph
    computes it often.
    """
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as constant):
            return lambda _: _bounded(constant)
        case ast.Name(id=name):
            return lambda variables: _variable(name, variables)
        case ast.BinOp():
            return _arithmetic(node)
        case ast.UnaryOp(op=ast.Not()):
            operand = _computation(node.operand)
            return lambda variables: not _truth(operand(variables))
        case ast.UnaryOp():
            operand = _computation(node.operand)
            return lambda variables: -_number(operand(variables))
        case ast.BoolOp():
            stop = isinstance(node.op, ast.Or)
            parts = [*map(_computation, node.values)]
            return lambda variables: any(_truth(part(variables)) is stop for part in parts) is stop
        case ast.Compare():
            return _comparison(node)
        case ast.IfExp():
            test, body, otherwise = map(_computation, (node.test, node.body, node.orelse))
            return lambda variables: body(variables) if _truth(test(variables)) else otherwise(variables)
        case ast.Subscript():
            values, index = _computation(node.value), _computation(node.slice)
            return lambda variables: _item(values(variables), index(variables))
        case ast.Call(func=ast.Name(id=name)):
            return _call(name, [*map(_computation, node.args)])
        case _:
            raise AssertionError(f"_check let through {ast.dump(node)}")


def _variable(name: str, variables: Variables) -> Value:
    if name not in variables:
        raise UnknownVariable(name, variables)
    value: Value = variables[name]
    return value


def _arithmetic(node: ast.BinOp) -> Compute:
    """What computes an operation of two numbers."""
    left = _computation(node.left)
    operate = _ARITHMETIC[type(node.op)]
    right = _computation(node.right)

    def compute(variables: Variables) -> Value:
        first, second = _number(left(variables)), _number(right(variables))
        try:
            return _bounded(operate(first, second))
        except ZeroDivisionError:
            advice = "write a case for it: =a / b if b > 0 else 0"
            raise RecipeError(f"'{ast.unparse(node)}' divides by zero", next=advice) from None

    return compute


def _call(name: str, arguments: Sequence[Compute]) -> Compute:
    """What computes a function of numbers."""

    def compute(variables: Variables) -> Value:
        values = [_number(argument(variables)) for argument in arguments]
        fits, words = _TAKES.get(name, _ONE)
        if not fits(len(values)):
            raise RecipeError(f"'{name}' takes {words}")
        if name == "round_to" and not (isinstance(values[1], int) and values[1] >= 1):
            raise RecipeError(f"'round_to' rounds to multiples of a whole number from 1 on, got {values[1]}")
        return _bounded(FUNCTIONS[name](*values))

    return compute


def _comparison(node: ast.Compare) -> Compute:
    """What computes a chain of comparisons."""
    first = _computation(node.left)
    others = [(type(op), _computation(part)) for op, part in zip(node.ops, node.comparators, strict=True)]

    def compute(variables: Variables) -> bool:
        left = first(variables)
        for op, part in others:
            right = part(variables)
            if not (
                _ORDER[op](_number(left), _number(right)) if op in _ORDER else _EQUALITY[op](left, right)
            ):
                return False
            left = right
        return True

    return compute


def _item(values: Value, index: Value) -> Value:
    """The element of a list, or the letter of a word, at an index."""
    if not isinstance(values, tuple | str):
        raise RecipeError(f"only lists and words can be indexed, got {_show(values)}")
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(values):
        kind = "word" if isinstance(values, str) else "list"
        raise RecipeError(
            f"index {_show(index)} is outside a {kind} of {len(values)}", next="the first index is 0"
        )
    return values[index]


def _number(value: Value) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NoNumber(f"expected a number, got {_show(value)}")
    return value


def _truth(value: Value) -> bool:
    if not isinstance(value, bool):
        raise RecipeError(f"expected a condition, got {_show(value)}", next="compare it, as in 'x > 0'")
    return value


def _bounded(value: Value) -> Value:
    if isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise RecipeError(f"numbers go up to {LARGEST:.0f}")
    return value


def _show(value: Value) -> str:
    return "nothing" if value is None else repr(value)[:60]
