"""Errors of a recipe's parts that do not depend on each other, in one error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar, cast

from porter.base.errors import RecipeError

P = ParamSpec("P")
T = TypeVar("T")


class Faults:
    """Collects the errors of parts, and raises the first with the others.

    Attributes:
        found: one error for each place of a file, in the order in which they were found.
    """

    def __init__(self) -> None:
        self._by_place: dict[str, RecipeError] = {}

    @property
    def errors(self) -> tuple[RecipeError, ...]:
        return tuple(self._by_place.values())

    def attempt(self, read: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `read` returns. If it raises, keep the error and return None: `expect_none` has to come
        before the value is used.
        """
        with self.collect():
            return read(*args, **kwargs)
        return cast(T, None)

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Keep the RecipeError that ends the block, and those that came with it, as its `others`, instead of
        raising it: what follows the block goes on.
        """
        try:
            yield
        except RecipeError as error:
            for fault in (error, *error.others):
                self._by_place.setdefault(fault.where or fault.message, fault)

    def expect_none(self) -> None:
        """Raise the errors that were kept, if there are any.

        Raises:
            RecipeError: the first; `others` has the rest.
        """
        if self.errors:
            first, *others = self.errors
            first.others = tuple(others)
            raise first
