"""How many bytes the columns of a Parquet file unpack to: its footer says where they are, and their pages how
many bytes they have, in Thrift's compact protocol.

pyarrow ends the process where another number of a column, such as a histogram of its levels, is damaged. It
takes the memory that the pages state, whatever the footer says of them.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_BOOLEANS, _INTEGERS, _LISTS = (1, 2), (4, 5, 6), (9, 10)
_BYTE, _DOUBLE, _BINARY, _MAP, _STRUCT = 3, 7, 8, 11, 12
"""Thrift's types. A boolean, an integer and a list have a type for each value, width or kind."""
_ROW_GROUPS, _COLUMNS, _META_DATA, _PATH, _PACKED, _DATA, _DICTIONARY = 4, 1, 3, 3, 7, 9, 11
"""Fields of parquet.thrift: of the file, a row group, a column in it, and its metadata."""
_PAGE_UNPACKED, _PAGE_PACKED = 2, 3
_ENCODINGS = {5: 2, 7: 2, 8: 4}
"""The field of a page's header that has its encoding, by the field that has its kind."""
_DELTA_BYTE_ARRAY = 7
"""The number of an encoding in which a value states how much it repeats of the one before it, which has no
bound.
"""
_WIDEST_VARINT = 63


class ColumnChunk(NamedTuple):
    """A column in a row group: its name, such as `image.bytes`, where it begins, and its bytes in the
    file.
    """

    name: str
    start: int
    size: int


def read_row_groups(path: Path) -> list[list[ColumnChunk]]:
    """Return the columns of each row group, from the footer at the file's end.

    Raises:
        ValueError, IndexError, RecursionError: the footer is damaged.
    """
    with path.open("rb") as file:
        # The file ends in the footer, its length (4 bytes), and `PAR1`.
        file.seek(-8, 2)
        length = int.from_bytes(file.read(4), "little")
        file.seek(-8 - length, 2)
        footer = _CompactProtocol(file.read(length))
    groups: list[list[ColumnChunk]] = []
    for _ in footer.enter_structs(_ROW_GROUPS):
        groups.append([])
        for _ in footer.enter_structs(_COLUMNS):
            for number, kind in footer.fields():
                if number == _META_DATA and kind == _STRUCT:
                    groups[-1].append(footer.column())
                else:
                    footer.skip(kind)
    return groups


def unpacked_bytes(path: Path, chunks: Iterable[ColumnChunk]) -> int:
    """Return the number of bytes that the pages of some columns state together.

    Raises:
        ValueError, IndexError, RecursionError: a page is damaged, or of an encoding that says nothing of its
        size.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return sum(size for chunk in chunks for size in _unpacked_sizes(data, chunk))


def _unpacked_sizes(data: mmap.mmap, chunk: ColumnChunk) -> Iterator[int]:
    """Yield the number of bytes that each page of a column unpacks to, as its header says.

    Raises:
        ValueError: a header does not say it, or the encoding has no bound.
    """
    header = _CompactProtocol(data, chunk.start)
    while header.at < chunk.start + chunk.size:
        sizes: dict[int, int] = {}
        for number, kind in header.fields():
            if number in (_PAGE_UNPACKED, _PAGE_PACKED) and kind in _INTEGERS:
                sizes[number] = header.integer()
            elif number in _ENCODINGS and kind == _STRUCT:
                header.expect_bounded(_ENCODINGS[number])
            else:
                header.skip(kind)
        if len(sizes) < 2 or min(sizes.values()) < 0:
            raise ValueError("a page does not say how many bytes it has")
        header.at += sizes[_PAGE_PACKED]
        yield sizes[_PAGE_UNPACKED]


class _CompactProtocol:
    """Thrift's compact protocol, read once from a place on."""

    def __init__(self, data: bytes | mmap.mmap, at: int = 0) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        """Return the next byte."""
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        """Return a number of any length, which has seven bits in each byte, the lowest first. The eighth bit
        says that more follow.
        """
        number = shift = 0
        while (byte := self.byte()) > 127 and shift < _WIDEST_VARINT:
            number |= (byte & 127) << shift
            shift += 7
        return number | (byte & 127) << shift

    def integer(self) -> int:
        """Return a signed number, whose sign is the lowest bit (zigzag)."""
        number = self.varint()
        return number >> 1 ^ -(number & 1)

    def text(self) -> str:
        """Return a text, which has its length before it."""
        length = self.varint()
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the type of each field of a struct. The value has to be read before the next
        field is asked for.
        """
        number = 0
        while head := self.byte():
            # The upper half of the byte is the step from the last field's number, or 0 if the number follows.
            step = head >> 4
            number = number + step if step else self.integer()
            yield number, head & 15

    def elements(self) -> Iterator[int]:
        """Yield the type of each element of a list, whose value has to be read before the next one is asked
        for.
        """
        head = self.byte()
        # The upper half of the byte is the number of elements, or 15 if the number follows.
        count, kind = head >> 4, head & 15
        if count == 15:
            count = self.varint()
        for _ in range(count):
            yield kind

    def enter_structs(self, wanted: int) -> Iterator[None]:
        """Yield at each struct in the list that is the field `wanted` of this struct, for the caller to read
        it before the next one; other fields are skipped.

        Raises:
            ValueError: the list has something else in it.
        """
        for number, kind in self.fields():
            if number != wanted or kind not in _LISTS:
                self.skip(kind)
                continue
            for element_kind in self.elements():
                if element_kind != _STRUCT:
                    raise ValueError("it lists other things than row groups and columns")
                yield

    def column(self) -> ColumnChunk:
        """Return the column whose metadata comes next. It begins with its dictionary if it has one."""
        name = list[str]()
        numbers = dict[int, int]()
        for number, kind in self.fields():
            if number == _PATH and kind in _LISTS:
                name = [self.text() for _ in self.elements()]
            elif number in (_PACKED, _DATA, _DICTIONARY) and kind in _INTEGERS:
                numbers[number] = self.integer()
            else:
                self.skip(kind)
        starts = [start for number in (_DATA, _DICTIONARY) if (start := numbers.get(number, 0)) > 0]
        return ColumnChunk(".".join(name), min(starts, default=0), max(numbers.get(_PACKED, 0), 0))

    def expect_bounded(self, encoding: int) -> None:
        """Read a page's inner header, and expect an encoding whose values state how many bytes they unpack
        to.

        Args:
            encoding: the number of the field that states it.
        """
        for number, kind in self.fields():
            if number == encoding and kind in _INTEGERS:
                if self.integer() == _DELTA_BYTE_ARRAY:
                    raise ValueError("a page has the encoding DELTA_BYTE_ARRAY, which has no bound")
            else:
                self.skip(kind)

    def skip(self, kind: int) -> None:
        """Skip a value of a type, with all that it contains.

        Raises:
            ValueError: there is no such type.
        """
        if kind in _INTEGERS:
            self.varint()
        elif kind in (_BYTE, _DOUBLE, _BINARY):
            # bytes of no fixed length have it before them
            length = {_BYTE: 1, _DOUBLE: 8}.get(kind) or self.varint()
            self.at += length
        elif kind in _LISTS:
            for element_kind in self.elements():
                # A boolean in a list is a byte; as a field it is in the field's head.
                self.skip(_BYTE if element_kind in _BOOLEANS else element_kind)
        elif kind == _MAP:
            size = self.varint()
            kinds = self.byte() if size else 0
            key_kind, value_kind = kinds >> 4, kinds & 15
            for _ in range(size):
                self.skip(key_kind)
                self.skip(value_kind)
        elif kind == _STRUCT:
            for _, field_kind in self.fields():
                self.skip(field_kind)
        elif kind not in _BOOLEANS:
            raise ValueError(f"there is no type {kind}")
