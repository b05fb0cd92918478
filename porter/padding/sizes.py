"""Sizes of a model's input, as people write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from porter.base.errors import UsageError
from porter.base.options import INPUT_SIZE, AnySize
from porter.padding import ANY, Size

MAX_SIDE = 8192


@dataclass(frozen=True)
class InputSizes:
    """The input sizes of a model, rows and columns.

    Attributes:
        built: the one that it was built for.
        only: the only one at which it is right; None if it is right at every size.
        otherwise: what gives a model in memory for another size; None of a file.
    """

    built: tuple[int, int]
    only: tuple[int, int] | None = None
    otherwise: str | None = None

    def takes(self, size: Size) -> bool:
        return self.only in (None, size)

    def expect(self, size: Size) -> None:
        """Expect a size at which the model is right.

        Raises:
            UsageError: there is only one, and `size` is another.
        """
        if not self.takes(size):
            built = size_text(self.built)
            source = "file" if self.otherwise is None else "model"
            otherwise = self.otherwise or "save the model for another size, or for any"
            raise UsageError(
                f"the {source} works at {built} only: layers, numbers or branches in it are for that size",
                where=INPUT_SIZE,
                next=f"write {INPUT_SIZE(built)}, or {otherwise}",
            )


def size_text(size: Size) -> str:
    """Return a size as it is typed: `224x224`, or `any`."""
    return "any" if size == ANY else "{}x{}".format(*size)


def parse_size(given: AnySize) -> Size:
    """Return the size that a user gives as `224`, `225x201` (rows x columns) or `any`, or as a number or a
    pair of them. Raises UsageError for another text.
    """
    if given == "any":
        return ANY
    if isinstance(given, Sequence) and not isinstance(given, str):
        given = "x".join(map(str, given))
    text = str(given)
    sides = text.lower().split("x")
    if len(sides) in (1, 2) and all(side.isdecimal() and 0 < int(side) <= MAX_SIDE for side in sides):
        return int(sides[0]), int(sides[-1])
    form = f"write 224, 225x201 (rows x columns, at most {MAX_SIDE} each) or any"
    raise UsageError(f"'{given}' is not an input size", where=INPUT_SIZE, next=form)
