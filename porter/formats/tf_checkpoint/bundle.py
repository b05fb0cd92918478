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
from porter.formats.tf_checkpoint.messages import Entry, Extents, MessageFields, read_entry, read_fields
from porter.formats.tf_checkpoint.table import read_table
from porter.formats.tf_checkpoint.tensors import DTYPES, CheckpointTensor, Slice, expect_places, view_numbers

_VERSION = 1
_CHECKSUM_BYTES = 4
_STRING = 7
"""types.proto: DT_STRING."""
_SLICE = b"\0"
"""The byte that keys of slices begin with."""
_HEADER_KEY = b""
# Fields of a BundleHeaderProto, and of the VersionDef in it (tensor_bundle.proto, versions.proto).
_SHARDS, _ENDIANNESS, _HEADER_VERSION, _LEAST_READER = 1, 2, 3, 2


def read_index(index: memoryview, count: int) -> dict[bytes, Entry]:
    """Return the entries of an index by their keys, without the header. Keys of slices begin with a zero.

    Args:
        count: how many shards the checkpoint has.

    Raises:
        ValueError: it is damaged, or of a version that porter does not read.
    """
    entries, slices = dict[bytes, Entry](), 0
    for key, value in read_table(index):
        if key == _HEADER_KEY:
            _expect_header(read_fields(value), count)
            continue
        entries[key] = entry = read_entry(value)
        slices += len(entry.slices)
        if slices > MOST_NODES:  # each has an entry of its own
            raise ValueError(f"its tensors have more than {MOST_NODES} slices")
    return entries


def _expect_header(header: MessageFields, count: int) -> None:
    """Raise ValueError if a header is not of `count` shards, of a little-endian machine, and of a known
    version.
    """
    shards = header.number(_SHARDS)
    if shards != count:
        raise ValueError(f"its index is of {shards} data files, and {count} are there")
    is_big_endian = header.number(_ENDIANNESS)
    version = read_fields(header.content(_HEADER_VERSION))
    if is_big_endian or version.number(_LEAST_READER) > _VERSION:
        raise ValueError("it is of a big-endian machine, or of a version that porter does not know")


def locate_tensors(
    entries: Mapping[bytes, Entry], shards: Sequence[memoryview]
) -> dict[str, CheckpointTensor | None]:
    """Return the tensors, not read yet; None for those that are not plain numbers. A tensor in slices has an
    entry for itself and one for each slice.

    Raises:
        ValueError: a slice is missing, or outside of its tensor.
    """
    tensors: dict[str, CheckpointTensor | None] = {}
    for key, entry in entries.items():
        if key.startswith(_SLICE):
            continue
        dtype = DTYPES.get(entry.type)
        # A tensor without slices is one slice of all axes, in the entry itself.
        extents = entry.slices or (((0, None),) * len(entry.shape),)
        parts = [entries.get(_slice_key(key, extent)) for extent in entry.slices] or [entry]
        slices = [
            Slice(expect_places(extent, entry.shape), partial(_read_numbers, part, shards))
            for extent, part in zip(extents, parts, strict=True)
            if part is not None and part.type == entry.type
        ]
        if len(slices) != len(parts):
            raise ValueError(f"a slice of '{key.decode()}' is missing")
        tensors[key.decode()] = None if dtype is None else CheckpointTensor(dtype, entry.shape, tuple(slices))
    return tensors


def read_text(entry: Entry, shards: Sequence[memoryview]) -> memoryview:
    """Return the only text of an entry: its length and the length's checksum stand before it.

    Raises:
        ValueError: it is damaged.
    """
    data = _entry_bytes(entry, shards)
    length, start = expect_varint(data, 0)
    text = data[start + _CHECKSUM_BYTES :]
    # The checksums are of the length as a number of fixed width, not as it is stored.
    length_bytes = length.to_bytes(4 if length < 1 << 32 else 8, "little")
    length_checksum = data[start : start + _CHECKSUM_BYTES]
    if entry.type != _STRING or entry.shape or len(text) != length:
        raise ValueError("it is no text of the length that it states")
    content = b"".join((length_bytes, length_checksum, text))
    is_length_intact = masked_crc32c(length_bytes) == int.from_bytes(length_checksum, "little")
    if not is_length_intact or masked_crc32c(content) != entry.checksum:
        raise ValueError("its checksum is wrong")
    return text


def _read_numbers(entry: Entry, shards: Sequence[memoryview]) -> Array:
    """Return the array of an entry, in one axis. Raise ValueError if its checksum or its size is another."""
    data = _entry_bytes(entry, shards)
    dtype = DTYPES[entry.type]
    if len(data) != math.prod(entry.shape) * dtype.itemsize:
        raise ValueError(f"it has {len(data)} bytes, expected {math.prod(entry.shape) * dtype.itemsize}")
    if masked_crc32c(data) != entry.checksum:
        raise ValueError("its checksum is wrong")
    return view_numbers(data, dtype)


def _entry_bytes(entry: Entry, shards: Sequence[memoryview]) -> memoryview:
    """Return the bytes of an entry; raise ValueError if its data file lacks some of them."""
    if entry.shard >= len(shards) or entry.start + entry.size > len(shards[entry.shard]):
        raise ValueError("it ends behind its data file")
    return shards[entry.shard][entry.start : entry.start + entry.size]


def _slice_key(key: bytes, extents: Extents) -> bytes:
    """Return the key of a slice in the index: its tensor's name, and where it begins and how long it is along
    each axis, in a code whose bytes sort as the values do (core/util/saved_tensor_slice_util.cc,
    tsl/lib/strings/ordered_code.cc).
    """
    # Ordered code escapes two bytes, and ends a text with a zero and a one.
    name = key.replace(b"\0", b"\0\xff").replace(b"\xff", b"\xff\0") + b"\0\1"
    numbers = (number for start, size in extents for number in (start, -1 if size is None else size))
    return b"".join((_SLICE, name, _encode_unsigned(len(extents)), *map(_encode_signed, numbers)))


def _encode_unsigned(number: int) -> bytes:
    """Return an unsigned integer in ordered code: the number of its bytes, and these."""
    width = (number.bit_length() + 7) // 8
    return bytes([width]) + number.to_bytes(width, "big")


def _encode_signed(number: int) -> bytes:
    """Return a signed integer in ordered code, whose bytes sort as it does: 1 is 0x81, and -1 is 0x7f. Of its
    8 * width bits the first are turned round, one for each byte.
    """
    width = (~number if number < 0 else number).bit_length() // 7 + 1
    bits = number & (1 << 8 * width) - 1
    first_bits = (1 << width) - 1 << 7 * width
    return (bits ^ first_bits).to_bytes(width, "big")
