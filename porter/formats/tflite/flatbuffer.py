"""FlatBuffers: tables whose fields are found by offsets, each of which is held to the file."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from porter.base.dtypes import Array


@dataclass(frozen=True)
class Table:
    """A table in a buffer. Fields are named by their places in the schema; one that is left out has its
    default.

    Attributes:
        place: where it begins.
    """

    data: bytes
    position: int
    _asked: set[int] = field(default_factory=set, compare=False, repr=False)

    @property
    def passed_over(self) -> list[int]:
        """The fields that it has and that were not asked for."""
        size = _number(self.data, "H", self.position - _number(self.data, "i", self.position))
        asked = {*self._asked}
        return [
            number
            for number in range((size - 4) // 2)
            if number not in asked and self._at(number) is not None
        ]

    def scalar(self, field: int, kind: str, default: Any = 0) -> Any:
        """A number, of a type as `struct` writes it."""
        at = self._at(field)
        return default if at is None else _number(self.data, kind, at)

    def flag(self, field: int) -> bool:
        return bool(self.scalar(field, "B"))

    def table(self, field: int) -> Table | None:
        at = self._at(field)
        return None if at is None else Table(self.data, self._followed(at))

    def tables(self, field: int, most: int) -> list[Table]:
        """A vector of tables.

        Raises:
            ValueError: there are more than `most`, or they are not in the buffer.
        """
        start, count = self.vector(field, 4)
        if count > most:
            raise ValueError(f"it has {count} tables in one list, more than the {most} that a model may have")
        return [Table(self.data, self._followed(start + 4 * index)) for index in range(count)]

    def numbers(self, field: int, kind: str) -> Array:
        """A vector of numbers of a numpy type, without a copy."""
        dtype = np.dtype(kind).newbyteorder("<")
        start, count = self.vector(field, dtype.itemsize)
        return np.frombuffer(self.data, dtype, count, start)

    def text(self, field: int) -> str:
        start, count = self.vector(field, 1)
        return self.data[start : start + count].decode()

    def vector(self, field: int, width: int) -> tuple[int, int]:
        """Where a vector's items begin, and how many there are."""
        at = self._at(field)
        if at is None:
            return 0, 0
        start = self._followed(at)
        count = _number(self.data, "I", start)
        if start + 4 + count * width > len(self.data):
            raise ValueError("a vector ends behind the file")
        return start + 4, count

    def _at(self, number: int) -> int | None:
        """Where a field stands; None where it is left out."""
        self._asked.add(number)
        vtable = self.position - _number(self.data, "i", self.position)
        size = _number(self.data, "H", vtable)
        offset = _number(self.data, "H", vtable + 4 + 2 * number) if 6 + 2 * number <= size else 0
        return self.position + offset if offset else None

    def _followed(self, at: int) -> int:
        target: int = at + _number(self.data, "I", at)
        return target


def root(data: bytes) -> Table:
    return Table(data, _number(data, "I", 0))


def _number(data: bytes, kind: str, at: int) -> Any:
    if not 0 <= at <= len(data) - struct.calcsize(kind):
        raise ValueError("an offset points out of the file")
    return struct.unpack_from(f"<{kind}", data, at)[0]
