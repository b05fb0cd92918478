"""Arrays of structs out of MATLAB 5 files: ImageNet's devkit keeps its class ids in one.

The format is MathWorks' "MAT-File Format", chapter 1: tagged elements, padded to 8 bytes, zlib around whole variables. This module
reads only what a table needs: scalars and strings in the fields of a struct array.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from porter.errors import FileError

Value = int | float | str | None
"""A number, a string, or None for what is neither: larger arrays, nested structs, empty cells."""

_MAX_FILE = 16 << 20  # the devkit's meta.mat has 177 thousand bytes
_MAX_UNPACKED = 64 << 20
_HEADER = 128

_COMPRESSED, _MATRIX = 15, 14
_NUMBERS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}
_TEXTS = {1: "ascii", 2: "ascii", 4: "utf-16", 16: "utf-8", 17: "utf-16"}
_STRUCT, _CHAR, _DOUBLE, _UINT64 = 2, 4, 6, 15
"""Classes of arrays; the numeric ones are from _DOUBLE to _UINT64."""

_Element = tuple[int, memoryview]


def read_structs(path: Path, name: str, fields: Sequence[str]) -> list[dict[str, Value]]:
    """The elements of the struct array `name`, each with only `fields`, in the order of the file.

    Raises:
        FileError: the file is no MATLAB 5 file, broken, too large, or lacks that array or those fields.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE + 1)
        if len(data) > _MAX_FILE:
            raise FileError(f"at most {_MAX_FILE:,} bytes of a MATLAB file are read", where=str(path))
        return _read_structs(data, name, fields)
    except (OSError, ValueError, struct.error, zlib.error) as error:  # UnicodeDecodeError is a ValueError
        raise FileError(f"cannot be read as a MATLAB 5 file: {error}", where=str(path), next="check the file") from None


def _read_structs(data: bytes, name: str, fields: Sequence[str]) -> list[dict[str, Value]]:
    order = {b"IM": "<", b"MI": ">"}.get(data[_HEADER - 2 : _HEADER])
    if order is None:
        raise ValueError("it has no such header")
    for kind, body in _elements(memoryview(data)[_HEADER:], order):
        if kind == _COMPRESSED:
            kind, body = next(_elements(memoryview(_inflate(body)), order), (0, body))
        if kind != _MATRIX:
            continue
        kind_of_array, found, parts = _array(body, order)
        if kind_of_array == _STRUCT and found == name:
            return _structs(parts, order, fields)
    raise ValueError(f"it has no struct array '{name}'")


def _structs(parts: Iterator[_Element], order: str, fields: Sequence[str]) -> list[dict[str, Value]]:
    (width,) = struct.unpack(f"{order}i", _part(parts))
    table = bytes(_part(parts))
    if width < 1 or len(table) % width:
        raise ValueError(f"{len(table)} bytes of field names of {width} bytes each")
    names = [table[start : start + width].split(b"\0")[0].decode("ascii") for start in range(0, len(table), width)]
    if missing := set(fields) - set(names):
        raise ValueError(f"it has no field {', '.join(sorted(missing))}")
    cells = list(parts)
    if len(cells) % len(names):
        raise ValueError(f"{len(cells)} values do not fill structs of {len(names)} fields")
    rows = [dict(zip(names, cells[start : start + len(names)], strict=True)) for start in range(0, len(cells), len(names))]
    return [{field: _value(row[field], order) for field in fields} for row in rows]


def _value(cell: _Element, order: str) -> Value:
    kind, body = cell
    if kind != _MATRIX or not body:
        return None
    kind_of_array, _, parts = _array(body, order)
    kind, data = next(parts, (0, memoryview(b"")))
    if kind_of_array == _CHAR and kind in _TEXTS:
        text = _TEXTS[kind]
        return bytes(data).decode(text if text != "utf-16" else f"utf-16-{'le' if order == '<' else 'be'}")
    code = _NUMBERS.get(kind, "")
    if not _DOUBLE <= kind_of_array <= _UINT64 or not code or len(data) != struct.calcsize(code):
        return None
    number: int | float = struct.unpack(order + code, data)[0]
    return number


def _array(body: memoryview, order: str) -> tuple[int, str, Iterator[_Element]]:
    """An array's class, its name, and what follows them."""
    parts = _elements(body, order)
    (flags, _) = struct.unpack(f"{order}2I", _part(parts))
    _part(parts)  # the dimensions, which the number of values tells as well
    return flags & 0xFF, bytes(_part(parts)).decode("ascii"), parts


def _part(parts: Iterator[_Element]) -> memoryview:
    for _, body in parts:
        return body
    raise ValueError("an array ends early")


def _elements(data: memoryview, order: str) -> Iterator[_Element]:
    """Type and content of each element; up to four bytes of content stand within the tag itself."""
    position = 0
    while position < len(data):
        kind, size = struct.unpack_from(f"{order}2I", data, position)
        start = position + 8
        if kind >> 16:
            kind, size, start = kind & 0xFFFF, kind >> 16, position + 4
        if start + size > len(data) or (start == position + 4 and size > 4):
            raise ValueError(f"an element of {size:,} bytes where {len(data) - start:,} are left")
        yield kind, data[start : start + size]
        position = max(start + size, position + 8)
        if kind != _COMPRESSED:
            position += -position % 8


def _inflate(body: memoryview) -> bytes:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(body, _MAX_UNPACKED)
    if not unpacker.eof:
        raise ValueError(f"it ends early, or has more than {_MAX_UNPACKED:,} bytes when unpacked")
    return data
