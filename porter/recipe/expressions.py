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
    """Return the nearest multiple, at least one of it and never below 90 % of `value`.

    slim's `make_divisible` (research/slim/nets/mobilenet/mobilenet.py), `_make_divisible` of Keras and
    torchvision, timm's `make_divisible` (timm/layers/helpers.py), whose `divisor` GhostNet sets to 4.
    """
    rounded = max(multiple, int(value + multiple / 2) // multiple * multiple)
    return rounded + multiple if rounded < 0.9 * value else rounded


def round8(value: float) -> int:
    """Return the nearest multiple of 8, as `round_to` does."""
    return round_to(value, 8)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "int": int,
    "round8": round8,
    "round_to": round_to,
}
_ONE_NUMBER: tuple[Callable[[int], bool], str] = (lambda count: count == 1, "one number")
_SEVERAL_NUMBERS: tuple[Callable[[int], bool], str] = (lambda count: count > 1, "two or more numbers")
_ARGUMENT_COUNTS = {
    "min": _SEVERAL_NUMBERS,
    "max": _SEVERAL_NUMBERS,
    "round_to": (lambda count: count == 2, "a number, and the multiple that it is rounded to"),
}
"""How many arguments a function takes, and that in words; a function that is not listed takes one number."""
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
"""In which parts of a recipe the variables are known that no recipe declares."""
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
    """Return `value` itself, or the result of its expression if it begins with `=`. Lists are evaluated item
    by item.

    Raises:
        RecipeError: without `where`; the caller knows the line.
    """
    if isinstance(value, tuple):
        return tuple(evaluate(item, variables) for item in value)
    if isinstance(value, str) and is_expression(value):
        return _compile(value[1:].strip())(variables)
    return value


def fill_in(template: str, variables: Variables) -> str:
    """Return `template` with each `{expression}` replaced by its value: `stage{s + 1}` is `stage2` where s
    is 1.

    Raises:
        RecipeError: without `where`.
    """

    def value_of(match: re.Match[str]) -> str:
        value = _compile(match[1].strip())(variables)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise RecipeError(
                f"'{{{match[1]}}}' is {_show(value)}, and names are made of words and whole numbers"
            )
        return str(value)

    return _PLACEHOLDER.sub(value_of, template) if "{" in template else template


@lru_cache(maxsize=4096)
def placeholders(template: str) -> frozenset[str]:
    """Return the variables that a template's `{expression}`s use."""
    return frozenset(name for text in _PLACEHOLDER.findall(template) for name in variables_of(text.strip()))


def variables_of(text: str) -> frozenset[str]:
    """Return the variables that an expression uses; its text is without the `=`."""
    return frozenset(
        node.id for node in ast.walk(parse(text)) if isinstance(node, ast.Name) and node.id not in FUNCTIONS
    )


@lru_cache(maxsize=4096)
def parse(text: str) -> ast.expr:
    """Return the tree of an expression; its text is without the `=`.

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
    _expect_known_parts(tree, text)
    return tree


@lru_cache(maxsize=4096)
def _compile(text: str) -> Compute:
    """Return the function that computes the expression in a text, which is parsed once."""
    return _compile_tree(parse(text))


def _expect_known_parts(node: ast.expr, text: str) -> None:
    """Refuse the parts of an expression that recipes lack, when a recipe is loaded."""
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
        _expect_known_parts(part, text)


def _compile_tree(node: ast.expr) -> Compute:
    """Return the function that computes an expression, whose parts `_expect_known_parts` has seen. The tree
    is looked at once, because a graph computes the expression often.
    """
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as constant):
            return lambda _: _expect_bounded(constant)
        case ast.Name(id=name):
            return lambda variables: _variable(name, variables)
        case ast.BinOp():
            return _compile_arithmetic(node)
        case ast.UnaryOp(op=ast.Not()):
            operand = _compile_tree(node.operand)
            return lambda variables: not _truth(operand(variables))
        case ast.UnaryOp():
            operand = _compile_tree(node.operand)
            return lambda variables: -_number(operand(variables))
        case ast.BoolOp():
            # `or` ends at the first True, which is then its value; `and` at the first False.
            decisive = isinstance(node.op, ast.Or)
            parts = [*map(_compile_tree, node.values)]
            return lambda variables: any(_truth(part(variables)) is decisive for part in parts) is decisive
        case ast.Compare():
            return _compile_comparison(node)
        case ast.IfExp():
            test, body, otherwise = map(_compile_tree, (node.test, node.body, node.orelse))
            return lambda variables: body(variables) if _truth(test(variables)) else otherwise(variables)
        case ast.Subscript():
            values, index = _compile_tree(node.value), _compile_tree(node.slice)
            return lambda variables: _item(values(variables), index(variables))
        case ast.Call(func=ast.Name(id=name)):
            return _compile_call(name, [*map(_compile_tree, node.args)])
        case _:
            raise AssertionError(f"_expect_known_parts let through {ast.dump(node)}")


def _variable(name: str, variables: Variables) -> Value:
    """Return the value of a variable; refuse one that is not in scope."""
    if name not in variables:
        raise UnknownVariable(name, variables)
    value: Value = variables[name]
    return value


def _compile_arithmetic(node: ast.BinOp) -> Compute:
    """Return the function that computes an operation of two numbers. It raises RecipeError for other values,
    for a division by zero, and for too large a result.
    """
    left = _compile_tree(node.left)
    operate = _ARITHMETIC[type(node.op)]
    right = _compile_tree(node.right)

    def compute(variables: Variables) -> Value:
        left_number, right_number = _number(left(variables)), _number(right(variables))
        try:
            return _expect_bounded(operate(left_number, right_number))
        except ZeroDivisionError:
            advice = "write a case for it: =a / b if b > 0 else 0"
            raise RecipeError(f"'{ast.unparse(node)}' divides by zero", next=advice) from None

    return compute


def _compile_call(name: str, arguments: Sequence[Compute]) -> Compute:
    """Return the function that calls one of FUNCTIONS with numbers. It raises RecipeError for another number
    of arguments than that takes.
    """

    def compute(variables: Variables) -> Value:
        values = [_number(argument(variables)) for argument in arguments]
        fits, words = _ARGUMENT_COUNTS.get(name, _ONE_NUMBER)
        if not fits(len(values)):
            raise RecipeError(f"'{name}' takes {words}")
        if name == "round_to" and not (isinstance(values[1], int) and values[1] >= 1):
            raise RecipeError(f"'round_to' rounds to multiples of a whole number from 1 on, got {values[1]}")
        return _expect_bounded(FUNCTIONS[name](*values))

    return compute


def _compile_comparison(node: ast.Compare) -> Compute:
    """Return the function that computes a chain of comparisons, such as `0 < s <= 3`: True if each
    neighbouring pair holds. `<` and its like compare numbers, `==` and `!=` any values.
    """
    first_value = _compile_tree(node.left)
    comparisons = [
        (type(op), _compile_tree(part)) for op, part in zip(node.ops, node.comparators, strict=True)
    ]

    def compute(variables: Variables) -> bool:
        left = first_value(variables)
        for op, part in comparisons:
            right = part(variables)
            is_order = op in _ORDER
            holds = _ORDER[op](_number(left), _number(right)) if is_order else _EQUALITY[op](left, right)
            if not holds:
                return False
            left = right
        return True

    return compute


def _item(values: Value, index: Value) -> Value:
    """Return the element of a list, or the letter of a word, at an index. Raises RecipeError for other
    values, and for an index outside.
    """
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


def _expect_bounded(value: Value) -> Value:
    if isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise RecipeError(f"numbers go up to {LARGEST:.0f}")
    return value


def _show(value: Value) -> str:
    return "nothing" if value is None else repr(value)[:60]
