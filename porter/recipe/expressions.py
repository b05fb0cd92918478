"""The recipe's `=` expressions: arithmetic, comparison, choice and indexing, over names that the recipe declares. Nothing else.

Recipes are passed around, so an expression is parsed and walked here, never handed to the interpreter.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from porter.recipe.errors import did_you_mean

Value = int | float | bool | str | None
MAX_LENGTH = 300
MAX_NUMBER = 2**31


class ExpressionError(ValueError):
    """An expression that is not in the language, or fails; `hint` is the nearest valid spelling."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def round8(value: float) -> int:
    """The nearest multiple of 8, at least 8 and at least 90 % of `value` (slim's and Keras's make_divisible)."""
    rounded = max(8, int(value + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * value else rounded


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"min": min, "max": max, "round8": round8, "int": int}
_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def evaluate(text: str, scope: Mapping[str, Any]) -> Any:
    """The value of an expression (without its `=`) where names stand for `scope`.

    Raises:
        ExpressionError: a syntax error, an unknown name, something outside the language, or a failing operation.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"an expression has at most {MAX_LENGTH} characters, got {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _value(tree.body, scope)
    except (SyntaxError, RecursionError, MemoryError):
        raise ExpressionError(f"'{text}' is no expression") from None
    except (TypeError, ZeroDivisionError, IndexError, KeyError, OverflowError) as error:
        raise ExpressionError(f"'{text}' fails: {error}") from None


def _value(node: ast.AST, scope: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return _bounded(value)
        case ast.Name(id=name):
            if name not in scope:
                known = [*scope, *_FUNCTIONS]
                raise ExpressionError(f"'{name}' is not known here", did_you_mean(name, known))
            return scope[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _bounded(_OPERATORS[type(op)](_number(left, scope), _number(right, scope)))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, scope)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_number(operand, scope))
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_value(value, scope) for value in values)
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(_value(value, scope) for value in values)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _OPERATORS for op in ops):
            values = [_value(value, scope) for value in (left, *others)]
            return all(_OPERATORS[type(op)](*pair) for op, pair in zip(ops, pairwise(values), strict=True))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, scope) else orelse, scope)
        case ast.Subscript(value=value, slice=index):
            items = _value(value, scope)
            if not isinstance(items, list | tuple):
                raise ExpressionError("only a list can be indexed")
            return items[_number(index, scope)]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*(_number(argument, scope) for argument in args)))
    raise ExpressionError(f"'{ast.unparse(node)}' is outside the recipe's language")


def _number(node: ast.AST, scope: Mapping[str, Any]) -> Any:
    value = _value(node, scope)
    if not isinstance(value, int | float):
        raise ExpressionError(f"'{ast.unparse(node)}' is no number")
    return value


def _bounded(value: Any) -> Any:
    if isinstance(value, int | float) and not abs(value) < MAX_NUMBER:
        raise ExpressionError(f"a number is below {MAX_NUMBER} here")
    return value
