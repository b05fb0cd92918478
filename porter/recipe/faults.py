"""Errors of a recipe's parts that do not depend on each other, in one error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from porter.errors import RecipeError


class Faults:
    """Collects the errors of parts, and raises the first with the others.

    Attributes:
        found: one error for each place of a file, in the order in which they were found.
    """

    def __init__(self) -> None:
        self._by_place: dict[str, RecipeError] = {}

    @property
    def found(self) -> tuple[RecipeError, ...]:
        return tuple(self._by_place.values())

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keeps the error that ends the block, and those that came with it; what follows the block goes on."""
        try:
            yield
        except RecipeError as error:
            for one in (error, *error.others):
                self._by_place.setdefault(one.where or one.message, one)

    def expect_none(self) -> None:
        """Raises what was found.

        Raises:
            RecipeError: the first; `others` has the rest.
        """
        if self.found:
            first, *others = self.found
            raise RecipeError(first.message, where=first.where, next=first.next, others=others)
