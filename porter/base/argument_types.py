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
    """Expect that an argument is of the type that a function's signature states. A type that is a text
    belongs to a framework, which is not imported here: the function itself looks at such an argument.

    Raises:
        UsageError: it is of another type.
    """
    types = types_of_union(kind)
    if any(isinstance(one_type, ForwardRef) for one_type in types) or _is_one_of(value, kind):
        return
    given = "None" if value is None else f"an object of {type(value).__name__}"
    takes_several = any(get_origin(one_type) is Sequence for one_type in types)
    if takes_several and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        member_types = sorted({type(member).__name__ for member in value})
        given = f"a sequence of {', '.join(member_types) or 'nothing'}"
    expected = " or ".join(_type_words(one_type) for one_type in types if one_type is not NoneType)
    next = f"give {option.metavar or 'True or False'}: {option.help}"
    raise UsageError(f"expected {expected}, got {given}", where=option, next=next)


def types_of_union(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, `(int, str)` of `int | str`; of any other type, a tuple of it."""
    origin = get_origin(kind)
    # The origin of `int | str` is types.UnionType, that of Union[int, str] is no type.
    is_union = origin is not None and (not isinstance(origin, type) or origin.__module__ == "types")
    return get_args(kind) if is_union else (kind,)


def _is_one_of(value: object, kind: Any) -> bool:
    """Return whether a value is of a type, or of one of a union's."""
    return any(_is_of(value, one_type) for one_type in types_of_union(kind))


def _is_of(value: object, kind: Any) -> bool:
    """Return whether a value is of a type as annotations state it: Sequence and Mapping with their members,
    or a class.
    """
    origin = get_origin(kind)
    if origin is Sequence:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return False
        (member_kind,) = get_args(kind)
        return all(_is_one_of(member, member_kind) for member in value)
    if origin is Mapping and isinstance(value, Mapping):
        key_kind, value_kind = get_args(kind)
        return all(_is_one_of(key, key_kind) and _is_one_of(item, value_kind) for key, item in value.items())
    if kind in _NUMBERS:
        return isinstance(value, _NUMBERS[kind]) and not isinstance(value, bool)
    return isinstance(value, origin or kind)


def _type_words(kind: Any) -> str:
    """Return a type in words, for messages: `a sequence of text or a path`."""
    origin = get_origin(kind)
    if origin is Sequence:
        return f"a sequence of {' or '.join(map(_type_words, types_of_union(get_args(kind)[0])))}"
    return {
        str: "text",
        PathLike: "a path",
        bool: "a bool",
        int: "a whole number",
        float: "a number",
        Mapping: "a dict",
    }[origin or kind]
