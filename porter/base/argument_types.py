"""Whether what a program gives is of the kind that an option takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from os import PathLike
from types import NoneType
from typing import Any, ForwardRef, get_args, get_origin

from porter.base.errors import UsageError
from porter.base.options import Option

_NUMBERS: Mapping[Any, type] = {int: Integral, float: Real}
"""Numbers of numpy are numbers, too."""


def expect_kind(option: Option, value: object, kind: Any) -> None:
    """Expects that a value is of a type as a signature has it. A type that is a text belongs to a framework:
    who uses the value looks at it.

    Raises:
        UsageError: it is of another type.
    """
    if isinstance(kind, ForwardRef) or any(_is_of(value, each) for each in _members(kind)):
        return
    given = "None" if value is None else f"an object of {type(value).__name__}"
    takes_several = any(get_origin(each) is Sequence for each in _members(kind))
    if takes_several and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        given = f"a sequence of {', '.join(sorted({type(each).__name__ for each in value})) or 'nothing'}"
    expected = " or ".join(_named(each) for each in _members(kind) if each is not NoneType)
    next = f"give {option.metavar or 'True or False'}: {option.help}"
    raise UsageError(f"expected {expected}, got {given}", where=option, next=next)


def _members(kind: Any) -> tuple[Any, ...]:
    """The types of a union; a type that is none by itself."""
    origin = get_origin(kind)
    return (
        (kind,)
        if origin is None or (isinstance(origin, type) and origin.__module__ != "types")
        else get_args(kind)
    )


def _is_of(value: object, kind: Any) -> bool:
    """Whether a value is of a type as annotations state it: Sequence and Mapping with their members, or a
    class.
    """
    origin = get_origin(kind)
    if origin is Sequence:
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str | bytes)
            and all(any(_is_of(each, member) for member in _members(get_args(kind)[0])) for each in value)
        )
    if origin is Mapping and isinstance(value, Mapping):
        return all(
            any(_is_of(each, member) for member in _members(of))
            for pair in value.items()
            for each, of in zip(pair, get_args(kind), strict=True)
        )
    if kind in _NUMBERS:
        return isinstance(value, _NUMBERS[kind]) and not isinstance(value, bool)
    return isinstance(value, origin or kind)


def _named(kind: Any) -> str:
    """A type in words, for messages."""
    origin = get_origin(kind)
    if origin is Sequence:
        return f"a sequence of {' or '.join(map(_named, _members(get_args(kind)[0])))}"
    return {
        str: "text",
        PathLike: "a path",
        bool: "a bool",
        int: "a whole number",
        float: "a number",
        Mapping: "a dict",
    }[origin or kind]
