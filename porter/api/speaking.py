"""Errors as the API says them: porter's messages speak of the command line's flags, and here they name
arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from porter.base.errors import PorterError
from porter.base.options import in_python, parameter_of

P = ParamSpec("P")
T = TypeVar("T")


def public(function: Callable[P, T]) -> Callable[P, T]:
    """The same function, whose errors name arguments."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except PorterError as error:
            error.args = (in_python(error.message),)
            error.message = in_python(error.message)
            error.where = error.where and parameter_of(error.where)
            error.next = error.next and in_python(error.next)
            raise

    return called
