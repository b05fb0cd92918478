"""The objects of an HDF5 file, as h5py writes them by default: groups by symbol tables or with few links, and
their attributes.

The format is HDF5's File Format Specification, whose names for the parts are used here. Every address and
size is compared with the file's, and the parts that are read are counted, so that none leads round in
circles. What is left out (`Unknown`) is read by HDF5's own library (porter.formats.keras.hdf5_copy).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

_MAGIC = b"\x89HDF\r\n\x1a\n"
NOWHERE = (1 << 64) - 1
"""The address of what is not in the file."""
_MOST_PARTS = 1 << 21
"""Messages of headers, entries of tables and texts: a variable of a model takes some twenty."""
_PART_BYTES = 64
_MOST_PATH = 500
DATASPACE, DATATYPE, EXTERNAL_FILES, LAYOUT, FILTERS = 1, 3, 7, 8, 11
_LINK_INFO, _LINK, _ATTRIBUTE, _CONTINUED, _TABLE, _ATTRIBUTE_INFO = 2, 6, 12, 16, 17, 21
_SHARED = 2
_SOFT, _EXTERNAL = 1, 64
_LINKS: dict[int, Literal["HardLink", "SoftLink", "ExternalLink"]] = {
    0: "HardLink",
    _SOFT: "SoftLink",
    _EXTERNAL: "ExternalLink",
}


class Unknown(Exception):
    """A part of HDF5 that is not read here."""


class Image:
    """The bytes of a file.

    Raises:
        ValueError: a part of it is damaged, or would take more than any weights do.
    """

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.data = data
        self._left = _MOST_PARTS
        self._texts: dict[int, dict[int, tuple[int, int]]] = {}

    def count(self, parts: int = 1, length: int = 0) -> None:
        """Counts parts that are read, and their bytes."""
        self._left -= parts + length // _PART_BYTES
        if self._left < 0:
            raise ValueError("its parts are more than any model has, or lead round in circles")

    def cut(self, at: int, length: int) -> bytes:
        if not 0 <= at <= at + length <= len(self.data):
            raise ValueError(f"{length} bytes at byte {at} are not in the file")
        return self.data[at : at + length]

    def unpack(self, form: str, at: int) -> tuple[Any, ...]:
        return struct.unpack(form, self.cut(at, struct.calcsize(form)))

    def signed(self, at: int, signature: bytes) -> None:
        if self.cut(at, len(signature)) != signature:
            raise ValueError(f"expected {signature.decode()} at byte {at}")

    def root(self) -> int:
        """The address of the root group's header, by the superblock."""
        self.signed(0, _MAGIC)
        version = self.cut(8, 1)[0]
        if version > 3:
            raise ValueError(f"its superblock has version {version}")
        if version > 1 or self.cut(13, 2) != b"\x08\x08":
            raise Unknown("later superblocks, and other sizes of addresses")
        base, _, end, _, _, header = self.unpack("<6Q", 24 + 4 * version)
        if base:
            raise Unknown("bytes before the file's own")
        if end > len(self.data):
            raise ValueError(f"it ends at byte {len(self.data)}, expected {end}")
        return int(header)

    def text_place(self, collection: int, number: int) -> tuple[int, int]:
        """Where a text of any length begins, and its length, by its place in a global heap."""
        if collection not in self._texts:
            self._texts[collection] = dict(self._collected(collection))
        if number not in self._texts[collection]:
            raise ValueError(f"text {number} is not in its collection at byte {collection}")
        return self._texts[collection][number]

    def _collected(self, start: int) -> Iterator[tuple[int, tuple[int, int]]]:
        self.signed(start, b"GCOL\x01")
        (length,) = self.unpack("<Q", start + 8)
        end, at = start + length, start + 16
        self.cut(start, 0 if end <= len(self.data) else length)
        while at + 16 <= end:
            self.count()
            number, _, _, size = self.unpack("<HHIQ", at)
            if number == 0:  # the space that is free
                return
            if at + 16 + size > end:
                raise ValueError(
                    f"a text of {size} bytes at byte {at} leaves its collection, which ends at byte {end}"
                )
            yield number, (at + 16, size)
            at += 16 + _aligned(size)


@dataclass(frozen=True)
class Attribute:
    """An attribute's datatype and dataspace messages, and its value's bytes."""

    datatype: bytes
    dataspace: bytes
    value: bytes


@dataclass(frozen=True)
class Node:
    """A group, or a dataset.

    Attributes:
        name: its path in the file, cut, for messages.
        messages: those of its header, by type and in order.
    """

    image: Image
    name: str
    address: int
    messages: dict[int, list[bytes]]

    @property
    def kind(self) -> str:
        if LAYOUT in self.messages:
            return "dataset"
        return "datatype" if DATATYPE in self.messages else "group"

    def child(self, name: str) -> Node:
        """The object of a hard link."""
        _, address = self.links[name]
        return open_node(self.image, address, f"{self.name.rstrip('/')}/{name}")

    @cached_property
    def links(self) -> dict[str, tuple[str, int]]:
        """The kind and the address of each link, in the order in which they were made if the file has that,
        else by name.
        """
        found: list[tuple[int, bytes, str, int]] = []
        if _TABLE in self.messages:
            tree, heap = struct.unpack_from("<QQ", self.messages[_TABLE][0])
            found += ((0, *link) for link in _table(self.image, tree, heap))
        for message in self.messages.get(_LINK_INFO, ()):
            (address,) = struct.unpack_from("<Q", message, 10 if message[1] & 1 else 2)
            if address != NOWHERE:
                raise Unknown("links in a heap")
        found += map(_link, self.messages.get(_LINK, ()))
        return {
            name.decode("utf-8", "surrogateescape"): (kind, address)
            for _, name, kind, address in sorted(found)
        }

    @cached_property
    def attributes(self) -> dict[str, Attribute]:
        for message in self.messages.get(_ATTRIBUTE_INFO, ()):
            (address,) = struct.unpack_from("<Q", message, 4 if message[1] & 1 else 2)
            if address != NOWHERE:
                raise Unknown("attributes in a heap")
        return dict(map(_attribute, self.messages.get(_ATTRIBUTE, ())))

    def message(self, kind: int) -> bytes | None:
        """The only message of a type; None if there is none."""
        found = self.messages.get(kind, [])
        if len(found) > 1:
            raise ValueError(f"'{self.name}' has {len(found)} messages of type {kind}")
        return found[0] if found else None


def open_node(image: Image, address: int, name: str) -> Node:
    """The object whose header is at `address`."""
    messages: dict[int, list[bytes]] = {}
    for kind, flags, content in _messages(image, address):
        image.count(1, len(content))
        if flags & _SHARED:
            raise Unknown("messages that objects share")
        messages.setdefault(kind, []).append(content)
    return Node(image, name[:_MOST_PATH], address, messages)


def _messages(image: Image, address: int) -> Iterator[tuple[int, int, bytes]]:
    """A header's messages: type, flags and content."""
    if image.cut(address, 4) == b"OHDR":
        raise Unknown("headers of version 2")
    version, _, count, _, length = image.unpack("<BBHII", address)
    if version != 1:
        raise ValueError(f"expected the header of an object at byte {address}")
    blocks = [(address + 16, length)]
    while blocks and count:
        at, length = blocks.pop(0)
        end = at + length
        while at + 8 <= end and count:
            kind, size, flags = image.unpack("<HHB", at)
            content = image.cut(at + 8, size)
            at, count = at + 8 + size, count - 1
            if kind == _CONTINUED:
                image.count()
                blocks.append(struct.unpack_from("<QQ", content))
            else:
                yield kind, flags, content


def _table(image: Image, tree: int, heap: int) -> Iterator[tuple[bytes, str, int]]:
    """The links of a group: a B-tree's leaves are tables, whose names are in a local heap."""
    image.signed(heap, b"HEAP")
    size, _, start = image.unpack("<QQQ", heap + 8)
    end_of_names = start + size
    if end_of_names > len(image.data):
        raise ValueError(f"the names at byte {start} end behind the file")
    for node in leaves(image, tree, 0, 8):
        image.signed(node[1], b"SNOD")
        (count,) = image.unpack("<H", node[1] + 6)
        image.count(count)
        for place in range(count):
            offset, address, cached = image.unpack("<QQI", node[1] + 8 + 40 * place)
            end = image.data.find(b"\0", start + offset, end_of_names)
            if end < 0:
                raise ValueError(f"a name at byte {start + offset} has no end")
            image.count(0, end - start - offset)
            yield image.data[start + offset : end], _LINKS[_SOFT if cached == 2 else 0], address


def leaves(image: Image, address: int, kind: int, key: int) -> Iterator[tuple[bytes, int]]:
    """The keys and the addresses in a B-tree of version 1, in order; a key has `key` bytes."""
    waiting = [(address, -1)]
    while waiting:
        address, above = waiting.pop()
        image.signed(address, b"TREE")
        stated, level, count = image.unpack("<BBH", address + 4)
        if stated != kind or (above >= 0 and level != above - 1):
            raise ValueError(f"the tree at byte {address} has level {level} and type {stated}")
        image.count(count + 1)
        entries = []
        for place in range(count):
            at = address + 24 + place * (key + 8)
            entries.append((image.cut(at, key), int(image.unpack("<Q", at + key)[0])))
        if level:
            waiting += [(child, level) for _, child in reversed(entries)]
        else:
            yield from entries


def _link(message: bytes) -> tuple[int, bytes, str, int]:
    """A link's place in the order in which links were made, its name, kind and address."""
    flags, at = message[1], 2
    kind = order = 0
    if flags & 8:
        kind, at = message[at], at + 1
    if flags & 4:
        (order,), at = struct.unpack_from("<Q", message, at), at + 8
    at += 1 if flags & 16 else 0
    width = 1 << (flags & 3)
    length, at = int.from_bytes(message[at : at + width], "little"), at + width
    if kind not in _LINKS:
        raise ValueError(f"a link has type {kind}")
    (address,) = struct.unpack_from("<Q", message, at + length) if kind == 0 else (0,)
    return order, message[at : at + length], _LINKS[kind], address


def _attribute(message: bytes) -> tuple[str, Attribute]:
    version, shared, *lengths = struct.unpack_from("<BBHHH", message)
    if version not in (1, 2, 3):
        raise ValueError(f"an attribute has version {version}")
    if version > 1 and shared:
        raise Unknown("attributes of shared types")
    at = 9 if version == 3 else 8
    parts = []
    for length in lengths:
        parts.append(message[at : at + length])
        at += _aligned(length) if version == 1 else length
    name, datatype, dataspace = parts
    return name.rstrip(b"\0").decode("utf-8", "surrogateescape"), Attribute(datatype, dataspace, message[at:])


def _aligned(size: int) -> int:
    return -(-size // 8) * 8
