"""Writes tables as TensorFlow does, with right checksums around whatever they hold."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress

from porter.files.crc32c import masked_crc32c
from porter.formats.protobuf import expect_varint
from porter.formats.tf_checkpoint.files import TABLE_MAGIC
from porter.formats.tf_checkpoint.table import read_entries

Entries = Sequence[tuple[bytes, bytes]]


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def block(entries: Entries) -> bytes:
    """Each key states only what differs from the one before it."""
    found, before = bytearray(), b""
    for key, value in entries:
        places = range(min(len(key), len(before)))
        shared = bisect_left(places, True, key=lambda place: key[: place + 1] != before[: place + 1])
        found += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    return bytes(found) + bytes(4) + (1).to_bytes(4, "little")


def snappy(data: bytes) -> bytes:
    """Copies of what stood four bytes or more before, and literals of up to 60 bytes."""
    found, literal, place, places = bytearray(varint(len(data))), b"", 0, dict[bytes, int]()

    def flush() -> None:
        for start in range(0, len(literal), 60):
            found.extend(bytes([len(literal[start : start + 60]) - 1 << 2]) + literal[start : start + 60])

    while place < len(data):
        piece = data[place : place + 4]
        before = places.get(piece)
        places[piece] = place
        if before is None or len(piece) < 4:
            literal, place = literal + data[place : place + 1], place + 1
            continue
        flush()
        literal, length = b"", 4
        while length < 64 and place + length < len(data) and data[place + length] == data[before + length]:
            length += 1
        offset = place - before
        if length < 12 and offset < 2048:
            found += bytes([offset >> 8 << 5 | length - 4 << 2 | 1, offset & 255])
        else:
            found += bytes([length - 1 << 2 | (2 if offset < 65536 else 3)]) + offset.to_bytes(
                2 if offset < 65536 else 4, "little"
            )
        place += length
    flush()
    return bytes(found)


def table(entries: Entries, compressed: bool = False, packed: bytes = b"") -> bytes:
    """A table of one block; `packed` stands in its place as if it were compressed."""
    found = bytearray()

    def put(content: bytes, kind: int) -> bytes:
        handle = varint(len(found)) + varint(len(content))
        whole = content + bytes([kind])
        found.extend(whole + masked_crc32c(whole).to_bytes(4, "little"))
        return handle

    content = block(entries)
    first = put(packed or snappy(content), 1) if compressed or packed else put(content, 0)
    handles = put(block([]), 0) + put(block([(entries[-1][0] + b"\xff", first)]), 0)
    return bytes(found) + handles.ljust(40, b"\0") + TABLE_MAGIC


def sealed(data: bytes) -> bytes:
    """A table with its checksums made right again, where its blocks can be found."""
    found = bytearray(data)

    def seal(handle: bytes | memoryview, place: int) -> memoryview:
        start, place = expect_varint(handle, place)
        size, _ = expect_varint(handle, place)
        if start + size + 5 <= len(found):
            found[start + size + 1 : start + size + 5] = masked_crc32c(
                bytes(found[start : start + size + 1])
            ).to_bytes(4, "little")
        return memoryview(bytes(found[start : start + size]))

    footer = data[-48:]
    with suppress(ValueError):
        _, place = expect_varint(footer, 0)
        _, place = expect_varint(footer, place)
        for _, handle in read_entries(seal(footer, place)):
            seal(handle, 0)
    return bytes(found)
