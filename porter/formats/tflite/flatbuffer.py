"""FlatBuffers: tables whose fields are found by offsets, each of which is held to the file."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from porter.base.dtypes import Array


class Field(NamedTuple):
    """A field of numbers in a table.

    Attributes:
        place: in the schema.
        kind: the type of its number as `struct` names it, or that of a vector's numbers as numpy does.
        default: what stands for a number that is left out.
    """

    place: int
    kind: str
    default: Any = 0


@dataclass(frozen=True)
class Table:
    """A table in a buffer. Fields of tables and texts are named by their places in the schema.

    Attributes:
        position: where it begins.
    """

    data: bytes
    position: int
    _asked: set[int] = field(default_factory=set, compare=False, repr=False)

    @property
    def unread_fields(self) -> list[int]:
        """Return the numbers of the fields that it has and that were not asked for."""
        vtable = self.position - _unpack(self.data, "i", self.position)
        size = _unpack(self.data, "H", vtable)
        asked = {*self._asked}
        # Two bytes a field stand behind the four of the two sizes.
        return [
            number
            for number in range((size - 4) // 2)
            if number not in asked and self._locate(number) is not None
        ]

    def scalar(self, field: Field) -> Any:
        """Return a number; the field's default where it is left out."""
        position = self._locate(field.place)
        return field.default if position is None else _unpack(self.data, field.kind, position)

    def table(self, field: int) -> Table | None:
        """Return the table in a field; None where it is left out."""
        position = self._locate(field)
        return None if position is None else Table(self.data, self._follow(position))

    def tables(self, field: int, limit: int) -> list[Table]:
        """Return a vector of tables.

        Raises:
            ValueError: there are more than `limit`, or they are not in the buffer.
        """
        start, count = self.vector(field, 4)
        if count > limit:
            raise ValueError(
                f"it has {count} tables in one list, more than the {limit} that a model may have"
            )
        return [Table(self.data, self._follow(start + 4 * index)) for index in range(count)]

    def numbers(self, field: Field) -> Array:
        """Return a vector of numbers, without a copy; an empty one where it is left out."""
        dtype = np.dtype(field.kind).newbyteorder("<")
        start, count = self.vector(field.place, dtype.itemsize)
        return np.frombuffer(self.data, dtype, count, start)

    def text(self, field: int) -> str:
        """Return the text in a field; an empty one where it is left out."""
        start, count = self.vector(field, 1)
        return self.data[start : start + count].decode()

    def vector(self, field: int, width: int) -> tuple[int, int]:
        """Return where a vector's items, each of so many bytes, begin, and how many there are; (0, 0) where
        it is left out.
        """
        position = self._locate(field)
        if position is None:
            return 0, 0
        start = self._follow(position)
        count = _unpack(self.data, "I", start)
        if start + 4 + count * width > len(self.data):
            raise ValueError("a vector ends behind the file")
        return start + 4, count

    def _locate(self, number: int) -> int | None:
        """Return where a field stands in the buffer; None where it is left out. A table begins with the
        distance to its vtable, which has the offset of each field behind two sizes.
        """
        self._asked.add(number)
        vtable = self.position - _unpack(self.data, "i", self.position)
        size = _unpack(self.data, "H", vtable)
        # The vtable's own size counts the two sizes, of two bytes each, and two bytes for each field.
        has_entry = 6 + 2 * number <= size
        offset = _unpack(self.data, "H", vtable + 4 + 2 * number) if has_entry else 0
        return self.position + offset if offset else None

    def _follow(self, position: int) -> int:
        """Return the place that an offset points to; the offset counts from its own place."""
        target: int = position + _unpack(self.data, "I", position)
        return target


def root(data: bytes) -> Table:
    """Return the table that a buffer begins with."""
    return Table(data, _unpack(data, "I", 0))


def _unpack(data: bytes, kind: str, position: int) -> Any:
    """Return the number at a place; raise ValueError if it is not in the file."""
    if not 0 <= position <= len(data) - struct.calcsize(kind):
        raise ValueError("an offset points out of the file")
    return struct.unpack_from(f"<{kind}", data, position)[0]
