"""porter's own reader of HDF5, in the form that h5py writes by default: groups are symbol tables, and values
lie together.

The format is HDF5's File Format Specification, whose names for the parts are used here. Every address and
size is compared with the file's, and the parts that are read are counted, so that none leads round in
circles. What is left out (`UnknownPart`) is read by HDF5's own library (porter.formats.keras.hdf5_library),
whose process takes 0.2 s for the 570 groups and datasets of a ResNet50V2. This takes 15 ms of the second that
a conversion takes, and files are also recognised by it.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from porter.base.dtypes import storage_type
from porter.formats.keras import HDF5_MAGIC
from porter.formats.keras.hdf5_library import IN_ANOTHER_FILE
from porter.formats.keras.hdf5_objects import DatasetValues, Object, Texts, values_at

_NO_ADDRESS = (1 << 64) - 1
"""The address of what is not in the file."""
_MOST_PARTS = 1 << 21
"""Messages of headers, entries of tables and texts: a variable of a model takes some twenty."""
_PART_BYTES = 64
# Types of the messages in an object's header.
_DATASPACE, _LINK_INFO, _DATATYPE, _LINK, _EXTERNAL_FILES, _LAYOUT = 1, 2, 3, 6, 7, 8
_ATTRIBUTE, _CONTINUATION, _SYMBOL_TABLE, _ATTRIBUTE_INFO = 12, 16, 17, 21
_SHARED_FLAG = 2
"""A message with this flag is elsewhere in the file."""
_SOFT_LINK = 2
"""The cache type of an entry in a table that is a soft link."""
_CLASS_BITS = 15
"""The bits of a datatype's first byte that are its class; the others are its version."""
# Classes of a datatype.
_FIXED_POINT, _FLOAT, _STRING, _OPAQUE, _ENUM, _VARIABLE_LENGTH = 0, 1, 3, 5, 8, 9
_IEEE_FLOATS = {2: (10, 5, 0, 10, 15), 4: (23, 8, 0, 23, 127), 8: (52, 11, 0, 52, 1023)}
"""Where exponent and mantissa are in IEEE's floats, by their bytes: place and size of each, and the
exponent's bias.
"""
_CONTIGUOUS, _VIRTUAL = b"\3\1", b"\4\3"
"""Version and class of a layout message."""


class UnknownPart(Exception):
    """A part of HDF5 is not read here."""


class Hdf5Bytes:
    """Reads the bytes of a file.

    Raises:
        ValueError: a part of it is damaged, or would take more than any weights do.
    """

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.data = data
        self._parts_left = _MOST_PARTS
        self.object_at = cache(self._read_object)
        self._collection_at = cache(self._read_collection)

    def _count(self, parts: int = 1, length: int = 0) -> None:
        """Count parts that are read, and their bytes. Raise ValueError for more than any model has."""
        self._parts_left -= parts + length // _PART_BYTES
        if self._parts_left < 0:
            raise ValueError("its parts are more than any model has, or lead round in circles")

    def _slice(self, position: int, length: int) -> bytes:
        """Return `length` bytes from byte `position`; raise ValueError if they are not in the file."""
        if not 0 <= position <= position + length <= len(self.data):
            raise ValueError(f"{length} bytes at byte {position} are not in the file")
        return self.data[position : position + length]

    def _unpack(self, form: str, position: int) -> tuple[Any, ...]:
        return struct.unpack(form, self._slice(position, struct.calcsize(form)))

    def _expect_signature(self, position: int, signature: bytes) -> None:
        """Raise ValueError if the bytes at a place are not the signature of the part that is expected
        there.
        """
        if self._slice(position, len(signature)) != signature:
            raise ValueError(f"expected {signature!r} at byte {position}")

    def root(self) -> int:
        """Return the address of the root group's header, which the superblock states. Raise UnknownPart for a
        superblock that is not h5py's default.
        """
        self._expect_signature(0, HDF5_MAGIC)
        # The places of these fields in a superblock of version 0, whose addresses and lengths have 8 bytes.
        base, _, end, _, _, header = self._unpack("<6Q", 24)
        version, sizes_of_addresses = self._slice(8, 1), self._slice(13, 2)
        if version + sizes_of_addresses != b"\0\x08\x08" or base:
            raise UnknownPart("later superblocks, other sizes of addresses, and bytes before the file's own")
        if end > len(self.data):
            raise ValueError(f"it ends at byte {len(self.data)}, expected {end}")
        return int(header)

    def _read_object(self, address: int) -> Object:
        """Read the object at an address: a group with its links, or a dataset. Raise UnknownPart for messages
        that only later versions of the format have.
        """
        messages: dict[int, list[bytes]] = {}
        for kind, flags, content in self._read_messages(address):
            self._count(1, len(content))
            if flags & _SHARED_FLAG or kind in (_LINK_INFO, _LINK, _ATTRIBUTE_INFO):
                raise UnknownPart("shared messages, and groups and attributes of later versions")
            messages.setdefault(kind, []).append(content)
        links: Iterable[tuple[str, int | None]] = ()
        if _SYMBOL_TABLE in messages:
            links = self._read_links(*struct.unpack_from("<QQ", messages[_SYMBOL_TABLE][0]))
        return Object(
            dict(links),
            dict(map(self._read_attribute, messages.get(_ATTRIBUTE, ()))),
            self._locate_values(messages) if _LAYOUT in messages else None,
        )

    def _read_messages(self, address: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield an object header's messages: the type, flags and content of each. A message may lead to a
        further block of messages, which comes behind all others.
        """
        version, _, count, _, length = self._unpack("<BBHII", address)
        if version != 1:
            raise UnknownPart("headers of later versions")
        blocks = [(address + 16, length)]  # 12 bytes for these fields, filled up to 16
        while blocks and count:
            position, length = blocks.pop(0)
            end = position + length
            while position + 8 <= end and count:
                kind, size, flags = self._unpack("<HHB", position)
                content = self._slice(position + 8, size)
                position, count = position + 8 + size, count - 1
                if kind == _CONTINUATION:
                    self._count()
                    blocks.append(struct.unpack_from("<QQ", content))
                else:
                    yield kind, flags, content

    def _read_links(self, tree: int, heap: int) -> Iterator[tuple[str, int | None]]:
        """Yield the links of a group, each with its name and its address, None for a soft link: a B-tree's
        leaves are tables, whose names are in a local heap.
        """
        self._expect_signature(heap, b"HEAP")
        size, _, start = self._unpack("<QQQ", heap + 8)
        end_of_names = start + size
        if end_of_names > len(self.data):
            raise ValueError(f"the names at byte {start} end behind the file")
        for node in self._walk_leaves(tree):
            self._expect_signature(node, b"SNOD")
            (count,) = self._unpack("<H", node + 6)
            self._count(count)
            for entry in range(count):  # of 40 bytes, behind the table's 8
                offset, address, cached = self._unpack("<QQI", node + 8 + 40 * entry)
                end = self.data.find(b"\0", start + offset, end_of_names)
                if end < 0:
                    raise ValueError(f"a name at byte {start + offset} has no end")
                self._count(0, end - start - offset)
                name = self.data[start + offset : end].decode("utf-8", "surrogateescape")
                yield name, None if cached == _SOFT_LINK else address

    def _walk_leaves(self, address: int) -> Iterator[int]:
        """Yield the addresses in the leaves of a group's B-tree, in order."""
        waiting = [(address, -1)]
        while waiting:
            address, above = waiting.pop()
            self._expect_signature(address, b"TREE\0")
            level, count = self._unpack("<BH", address + 5)
            # Each level is one below that above it, so no node can lead back to itself.
            if above >= 0 and level != above - 1:
                raise ValueError(f"the tree at byte {address} has level {level}")
            self._count(count + 1)
            # Each child stands behind its key, the first one 32 bytes behind the node's beginning.
            children = [self._unpack("<Q", address + 32 + 16 * entry)[0] for entry in range(count)]
            if level:
                waiting += [(child, level) for child in reversed(children)]
            else:
                yield from children

    def _read_attribute(self, message: bytes) -> tuple[str, Texts | None]:
        """Return the name and the texts of an attribute; None in place of other values."""
        version, _, *lengths = struct.unpack_from("<BBHHH", message)
        if version != 1:
            raise UnknownPart("attributes of later versions")
        # Name, type and shape follow a head of 8 bytes, each filled up to a multiple of 8; the value is the
        # rest.
        position, parts = 8, []
        for length in lengths:
            parts.append(message[position : position + length])
            position += _round_up_to_8(length)
        name, datatype, dataspace = parts
        texts = self._read_texts(datatype, _read_shape(dataspace), message[position:])
        return name.rstrip(b"\0").decode("utf-8", "surrogateescape"), texts

    def _read_texts(self, datatype: bytes, shape: tuple[int, ...], value: bytes) -> Texts | None:
        """Return the texts of an attribute; None if its values are no texts."""
        kind = datatype[0] & _CLASS_BITS
        (size,) = struct.unpack_from("<I", datatype, 4)
        count = math.prod(shape)
        any_length = kind == _VARIABLE_LENGTH and datatype[1] & 15 == 1  # 1: a text, not a sequence
        if not count:
            return Texts(shape, ())
        if not any_length and kind != _STRING:
            return None
        if not 0 < count * size <= len(value):
            raise ValueError(f"an attribute of {count} texts has {len(value)} bytes")
        self._count(count)
        parts = (value[start : start + size] for start in range(0, count * size, size))
        return Texts(
            shape, tuple(self._read_text(part) if any_length else part.rstrip(b"\0") for part in parts)
        )

    def _read_text(self, reference: bytes) -> bytes | memoryview:
        """Return a text of any length; `reference` has its length and its place in a global heap."""
        length, collection, number = struct.unpack_from("<IQI", reference)
        if not length:
            return b""
        objects = self._collection_at(collection)
        if number not in objects:
            raise ValueError(f"text {number} is not in its collection at byte {collection}")
        return objects[number][:length]

    def _read_collection(self, start: int) -> Mapping[int, memoryview]:
        """Return the objects of a global heap, which holds texts of any length, by their numbers."""
        self._expect_signature(start, b"GCOL\x01")
        (length,) = self._unpack("<Q", start + 8)
        end, position = start + length, start + 16  # the collection's header and each object's have 16 bytes
        # This raises ValueError where the collection ends behind the file.
        self._slice(start, 0 if end <= len(self.data) else length)
        objects: dict[int, memoryview] = {}
        while position + 16 <= end:
            self._count()
            number, _, _, size = self._unpack("<HHIQ", position)
            if number == 0:  # the space that is free
                break
            if position + 16 + size > end:
                raise ValueError(
                    f"a text of {size} bytes at byte {position} leaves its collection, which ends at byte "
                    f"{end}"
                )
            objects[number] = memoryview(self.data)[position + 16 : position + 16 + size]
            position += 16 + _round_up_to_8(size)
        return objects

    def _locate_values(self, messages: Mapping[int, list[bytes]]) -> DatasetValues:
        """Return a dataset's values as a place in the file, or with the reason why they cannot be read. Raise
        UnknownPart for values in chunks.
        """
        # A dataset has one message of each of these kinds.
        (datatype,), (dataspace,), (layout,) = (
            messages.get(kind, []) for kind in (_DATATYPE, _DATASPACE, _LAYOUT)
        )
        lack = IN_ANOTHER_FILE if _EXTERNAL_FILES in messages or layout.startswith(_VIRTUAL) else None
        values = DatasetValues(_read_shape(dataspace), _numpy_type(datatype), 0, self.data, lack)
        kind = datatype[0] & _CLASS_BITS
        if lack is not None:
            return values_at(None, values, kind)
        if not layout.startswith(_CONTIGUOUS):
            raise UnknownPart("values in chunks")
        start, length = struct.unpack_from("<QQ", layout, 2)
        dataset = values_at(None if start == _NO_ADDRESS else start, values, kind)
        if length < dataset.nbytes:
            raise ValueError(f"a dataset declares {dataset.nbytes} bytes, and its data has {length}")
        return dataset


def _read_shape(message: bytes) -> tuple[int, ...]:
    """Return the shape that a dataspace states."""
    version, rank = struct.unpack_from("<BB", message)
    if version != 1:
        raise UnknownPart("dataspaces of later versions")
    return struct.unpack_from(f"<{rank}Q", message, 8)


def _numpy_type(message: bytes) -> np.dtype[np.generic] | None:
    """Return the numpy type of a dataset's values; None where they are no numbers. Raise UnknownPart for
    numbers that numpy has no type of.
    """
    kind = message[0] & _CLASS_BITS
    flags = message[1]
    (size,) = struct.unpack_from("<I", message, 4)
    if kind == _ENUM and message[8] & _CLASS_BITS == _FIXED_POINT:
        return np.dtype(bool) if _is_boolean(message) else _numpy_type(message[8:])
    # HDF5 has no bfloat16: Keras writes it as two opaque bytes (keras/src/saving/saving_lib.py,
    # H5IOStore.__setitem__).
    if kind == _OPAQUE and size == 2:
        return storage_type("bfloat16")
    if kind not in (_FIXED_POINT, _FLOAT):
        return None
    # A float also states where its exponent and its mantissa are, as `_IEEE_FLOATS` has them.
    offset, precision, *exponent_and_mantissa = struct.unpack_from(
        "<HHBBBBI" if kind == _FLOAT else "<HH", message, 8
    )
    if kind == _FIXED_POINT:
        is_known = size in (1, 2, 4, 8)
    else:
        is_ieee = _IEEE_FLOATS.get(size) == (*exponent_and_mantissa,)
        is_known = is_ieee and flags & 64 == 0  # 64: VAX's order of bytes
    # All bits of its bytes belong to the number.
    if not is_known or (offset, precision) != (0, 8 * size):
        raise UnknownPart("numbers that no processor has")
    is_signed, is_big_endian = flags & 8, flags & 1
    whole_letter = "i" if is_signed else "u"
    letter = "f" if kind == _FLOAT else whole_letter
    return np.dtype(f"{'>' if is_big_endian else '<'}{letter}{size}")


def _is_boolean(message: bytes) -> bool:
    """Return whether an enumeration has two values of one byte, which are called false and true."""
    (value_count,) = struct.unpack_from("<H", message, 1)
    (bytes_of_each,) = struct.unpack_from("<I", message, 4)
    has_names = b"FALSE\0" in message and b"TRUE\0" in message
    return has_names and (value_count, bytes_of_each) == (2, 1)


def _round_up_to_8(size: int) -> int:
    return -(-size // 8) * 8
