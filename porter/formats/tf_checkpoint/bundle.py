"""A checkpoint of version 2: an index of entries, and shards with the bytes
(core/util/tensor_bundle/tensor_bundle.h).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from porter.base.dtypes import Array
from porter.files.crc32c import masked_crc32c
from porter.formats.limits import MOST_NODES
from porter.formats.protobuf import expect_varint
from porter.formats.tf_checkpoint.messages import Entry, Extents, entry_of, sorted_fields
from porter.formats.tf_checkpoint.table import read_table
from porter.formats.tf_checkpoint.tensors import DTYPES, CheckpointTensor, Slice, numbers_in, places_of

_VERSION = 1
_CHECKSUM, _STRING, _SLICE = 4, 7, b"\0"


def read_index(index: memoryview, count: int) -> dict[bytes, Entry]:
    """The entries of an index, whose checkpoint has `count` shards. Keys of slices begin with a zero.

    Raises:
        ValueError: it is damaged, or of a version that porter does not read.
    """
    entries, slices = dict[bytes, Entry](), 0
    for key, value in read_table(index):
        if key:
            entries[key] = entry = entry_of(value)
            slices += len(entry.slices)
            if slices > MOST_NODES:  # each has an entry of its own
                raise ValueError(f"its tensors have more than {MOST_NODES} slices")
            continue
        header = sorted_fields(value)
        if header.number(1) != count:
            raise ValueError(f"its index is of {header.number(1)} data files, and {count} are there")
        if header.number(2) or sorted_fields(header.content(3)).number(2) > _VERSION:
            raise ValueError("it is of a big-endian machine, or of a version that porter does not know")
    return entries


def tensors_of(
    entries: Mapping[bytes, Entry], shards: Sequence[memoryview]
) -> dict[str, CheckpointTensor | None]:
    """The tensors; None for those that are not plain numbers.

    Raises:
        ValueError: a slice is missing, or outside of its tensor.
    """
    tensors: dict[str, CheckpointTensor | None] = {}
    for key, entry in entries.items():
        if key.startswith(_SLICE):
            continue
        dtype = DTYPES.get(entry.type)
        extents = entry.slices or (((0, None),) * len(entry.shape),)
        stored = [entries.get(_slice_key(key, each)) for each in entry.slices] or [entry]
        slices = [
            Slice(places_of(each, entry.shape), partial(_numbers, part, shards))
            for each, part in zip(extents, stored, strict=True)
            if part is not None and part.type == entry.type
        ]
        if len(slices) != len(stored):
            raise ValueError(f"a slice of '{key.decode()}' is missing")
        tensors[key.decode()] = None if dtype is None else CheckpointTensor(dtype, entry.shape, tuple(slices))
    return tensors


def text_of(entry: Entry, shards: Sequence[memoryview]) -> memoryview:
    """The only text of an entry: its length and the length's checksum stand before it.

    Raises:
        ValueError: it is damaged.
    """
    data = _stored(entry, shards)
    length, start = expect_varint(data, 0)
    text = data[start + _CHECKSUM :]
    length_bytes = length.to_bytes(4 if length < 1 << 32 else 8, "little")
    before = data[start : start + _CHECKSUM]
    if entry.type != _STRING or entry.shape or len(text) != length:
        raise ValueError("it is no text of the length that it states")
    checksums = int.from_bytes(before, "little"), entry.checksum
    if (masked_crc32c(length_bytes), masked_crc32c(b"".join((length_bytes, before, text)))) != checksums:
        raise ValueError("its checksum is wrong")
    return text


def _numbers(entry: Entry, shards: Sequence[memoryview]) -> Array:
    """The array of an entry, after its checksum was compared."""
    data = _stored(entry, shards)
    dtype = DTYPES[entry.type]
    if len(data) != math.prod(entry.shape) * dtype.itemsize:
        raise ValueError(f"it has {len(data)} bytes, expected {math.prod(entry.shape) * dtype.itemsize}")
    if masked_crc32c(data) != entry.checksum:
        raise ValueError("its checksum is wrong")
    return numbers_in(data, dtype)


def _stored(entry: Entry, shards: Sequence[memoryview]) -> memoryview:
    if entry.shard >= len(shards) or entry.start + entry.size > len(shards[entry.shard]):
        raise ValueError("it ends behind its data file")
    return shards[entry.shard][entry.start : entry.start + entry.size]


def _slice_key(key: bytes, extents: Extents) -> bytes:
    """The key of a slice in ordered code (core/util/saved_tensor_slice_util.cc,
    tsl/lib/strings/ordered_code.cc).
    """
    name = key.replace(b"\0", b"\0\xff").replace(b"\xff", b"\xff\0") + b"\0\1"
    numbers = (number for start, size in extents for number in (start, -1 if size is None else size))
    return b"".join((_SLICE, name, _unsigned(len(extents)), *map(_ordered, numbers)))


def _unsigned(number: int) -> bytes:
    width = (number.bit_length() + 7) // 8
    return bytes([width]) + number.to_bytes(width, "big")


def _ordered(number: int) -> bytes:
    """A signed integer whose bytes sort as it does: of its 8 * width bits the first are turned round, one for
    each byte.
    """
    width = (~number if number < 0 else number).bit_length() // 7 + 1
    return ((number & (1 << 8 * width) - 1) ^ (1 << width) - 1 << 7 * width).to_bytes(width, "big")
