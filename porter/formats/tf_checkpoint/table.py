"""Tables of keys and values, as tensorflow/core/lib/io/format.h has them: LevelDB's. Both versions of
checkpoints are such.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from porter.files.crc32c import masked_crc32c
from porter.formats.limits import MOST_NODES
from porter.formats.protobuf import expect_varint
from porter.formats.tf_checkpoint.files import TABLE_MAGIC
from porter.formats.tf_checkpoint.snappy import unpacked

_FOOTER, _TRAILER, _NUMBER = 48, 5, 4
_STORED, _SNAPPY = 0, 1
_MOST_KEYS = 64 << 20
"""Bytes of all keys. A key states only how it differs from the one before it, so three bytes may state
100,000.
"""


def read_table(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """The entries in the order of their keys; values are views of `data` where a block is not compressed.

    Raises:
        ValueError: the table is damaged, or has more entries than a model.
    """
    footer = data[-_FOOTER:]
    if len(footer) != _FOOTER or footer[-len(TABLE_MAGIC) :] != TABLE_MAGIC:
        raise ValueError("it does not end as a table")
    _, _, position = _handle(footer, 0)
    start, size, _ = _handle(footer, position)
    return _bounded(
        chain.from_iterable(map(entries_of, _blocks(data, _bounded(entries_of(_block(data, start, size))))))
    )


def _bounded(entries: Iterable[tuple[bytes, memoryview]]) -> Iterator[tuple[bytes, memoryview]]:
    """The entries, at most as many as a model has, in the order of their keys."""
    before, keys = None, 0
    for count, (key, value) in enumerate(entries):
        keys += len(key)
        if count >= MOST_NODES or keys > _MOST_KEYS:
            raise ValueError(
                f"it has more than {MOST_NODES} entries, or more than {_MOST_KEYS} bytes of keys"
            )
        if before is not None and key <= before:
            raise ValueError("its keys are in no order")
        before = key
        yield key, value


def _blocks(data: memoryview, handles: Iterable[tuple[bytes, memoryview]]) -> Iterator[memoryview]:
    """The blocks of a table, none of which may overlap."""
    end = 0
    for _, handle in handles:
        start, size, _ = _handle(handle, 0)
        if start < end:
            raise ValueError("its blocks overlap")
        end = start + size
        yield _block(data, start, size)


def _handle(data: memoryview, position: int) -> tuple[int, int, int]:
    """Where a block begins, its size, and the place after both."""
    start, position = expect_varint(data, position)
    size, position = expect_varint(data, position)
    return start, size, position


def _block(data: memoryview, start: int, size: int) -> memoryview:
    """The content of a block, of which its kind and its checksum follow."""
    whole = data[start : start + size + _TRAILER]
    if len(whole) != size + _TRAILER:
        raise ValueError("a block ends behind the file")
    if masked_crc32c(whole[:-_NUMBER]) != int.from_bytes(whole[-_NUMBER:], "little"):
        raise ValueError("a block's checksum is wrong")
    kind = whole[size]
    if kind not in (_STORED, _SNAPPY):
        raise ValueError(f"a block is compressed by method {kind}, expected none or Snappy")
    return memoryview(unpacked(bytes(whole[:size]))) if kind == _SNAPPY else whole[:size]


def entries_of(block: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Keys and values; after them are the places where a key is whole, and their count, by which a key would
    be searched.
    """
    restarts = int.from_bytes(block[-_NUMBER:], "little")
    end = len(block) - _NUMBER * (restarts + 1)
    if len(block) < _NUMBER or end < 0:
        raise ValueError("a block is too short")
    key, position = b"", 0
    while position < end:
        shared, position = expect_varint(block, position)
        fresh, position = expect_varint(block, position)
        length, position = expect_varint(block, position)
        if shared > len(key) or position + fresh + length > end:
            raise ValueError("an entry ends behind its block")
        key = key[:shared] + bytes(block[position : position + fresh])
        yield key, block[position + fresh : position + fresh + length]
        position += fresh + length
