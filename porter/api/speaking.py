"""The API's door: inside it, messages name arguments and functions, not flags and commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from porter.base.call_context import read_by_a_program

P = ParamSpec("P")
T = TypeVar("T")


def public(function: Callable[P, T]) -> Callable[P, T]:
    """Return the same function for `import porter`: its messages name arguments and functions, `split` and
    not `--split`.
    """

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        with read_by_a_program():
            return function(*args, **kwargs)

    return called
