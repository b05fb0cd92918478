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
from porter.formats.tf_checkpoint.snappy import unpack

_FOOTER_BYTES, _TRAILER_BYTES, _NUMBER_BYTES = 48, 5, 4
_STORED, _SNAPPY = 0, 1
_MOST_KEYS = 64 << 20
"""Bytes of all keys. A key states only how it differs from the one before it, so three bytes may state
100,000.
"""


def read_table(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the entries in the order of their keys; values are views of `data` where a block is not
    compressed.

    Raises:
        ValueError: the table is damaged, or has more entries than a model.
    """
    footer = data[-_FOOTER_BYTES:]
    if len(footer) != _FOOTER_BYTES or footer[-len(TABLE_MAGIC) :] != TABLE_MAGIC:
        raise ValueError("it does not end as a table")
    # Of the two handles (place and size of a block) the first is of metadata, and the second of the index.
    _, _, position = _read_handle(footer, 0)
    start, size, _ = _read_handle(footer, position)
    # The entries of the index are the handles of the blocks, under their last keys.
    handles = _expect_bounds(read_entries(_read_block(data, start, size)))
    blocks = _read_blocks(data, handles)
    return _expect_bounds(chain.from_iterable(map(read_entries, blocks)))


def _expect_bounds(entries: Iterable[tuple[bytes, memoryview]]) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the entries; raise ValueError if they are more than a model has, or not in the order of their
    keys.
    """
    before, key_bytes = None, 0
    for count, (key, value) in enumerate(entries):
        key_bytes += len(key)
        if count >= MOST_NODES or key_bytes > _MOST_KEYS:
            raise ValueError(
                f"it has more than {MOST_NODES} entries, or more than {_MOST_KEYS} bytes of keys"
            )
        if before is not None and key <= before:
            raise ValueError("its keys are in no order")
        before = key
        yield key, value


def _read_blocks(data: memoryview, handles: Iterable[tuple[bytes, memoryview]]) -> Iterator[memoryview]:
    """Yield the contents of a table's blocks. Raise ValueError if two overlap."""
    end = 0
    for _, handle in handles:
        start, size, _ = _read_handle(handle, 0)
        if start < end:
            raise ValueError("its blocks overlap")
        end = start + size
        yield _read_block(data, start, size)


def _read_handle(data: memoryview, position: int) -> tuple[int, int, int]:
    """Return where a block begins, its size, and the place after both."""
    start, position = expect_varint(data, position)
    size, position = expect_varint(data, position)
    return start, size, position


def _read_block(data: memoryview, start: int, size: int) -> memoryview:
    """Return the content of a block; the method of its compression and its checksum follow it in the file.
    Raise ValueError if the checksum or the method is wrong.
    """
    block = data[start : start + size + _TRAILER_BYTES]
    if len(block) != size + _TRAILER_BYTES:
        raise ValueError("a block ends behind the file")
    if masked_crc32c(block[:-_NUMBER_BYTES]) != int.from_bytes(block[-_NUMBER_BYTES:], "little"):
        raise ValueError("a block's checksum is wrong")
    method = block[size]
    if method not in (_STORED, _SNAPPY):
        raise ValueError(f"a block is compressed by method {method}, expected none or Snappy")
    return memoryview(unpack(bytes(block[:size]))) if method == _SNAPPY else block[:size]


def read_entries(block: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the keys and values of a block. After them are the places where a key is whole, and their count,
    by which a key would be searched.
    """
    restarts = int.from_bytes(block[-_NUMBER_BYTES:], "little")
    end = len(block) - _NUMBER_BYTES * (restarts + 1)
    if len(block) < _NUMBER_BYTES or end < 0:
        raise ValueError("a block is too short")
    key, position = b"", 0
    while position < end:
        shared, position = expect_varint(block, position)
        new, position = expect_varint(block, position)
        length, position = expect_varint(block, position)
        if shared > len(key) or position + new + length > end:
            raise ValueError("an entry ends behind its block")
        # A key states only what differs from the key before it.
        key = key[:shared] + bytes(block[position : position + new])
        yield key, block[position + new : position + new + length]
        position += new + length
