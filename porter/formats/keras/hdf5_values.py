"""The values of an HDF5 file's datasets and attributes: numbers and texts."""

from __future__ import annotations

import math
import mmap
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from porter.base.dtypes import Array, storage_type
from porter.formats.keras.hdf5_objects import (
    DATASPACE,
    DATATYPE,
    EXTERNAL_FILES,
    FILTERS,
    LAYOUT,
    NOWHERE,
    Attribute,
    Image,
    Node,
    Unknown,
    leaves,
)

_FIXED, _FLOAT, _TEXT, _OPAQUE, _ENUM, _ANY_LENGTH = 0, 1, 3, 5, 8, 9
_CLASSES = (
    "integers",
    "floats",
    "times",
    "texts",
    "bits",
    "bytes",
    "compounds",
    "references",
    "enumerations",
    "texts of any length",
)
_FLOATS = {2: (10, 5, 0, 10, 15), 4: (23, 8, 0, 23, 127), 8: (52, 11, 0, 52, 1023)}
"""Where exponent and mantissa are in IEEE's floats, by their bytes: place and size of each, and the
exponent's bias.
"""
_COMPACT, _CONTIGUOUS, _CHUNKED, _VIRTUAL = 0, 1, 2, 3
_DEFLATE, _SHUFFLE, _FLETCHER32, _LZF = 1, 2, 3, 32000
_MOST_AXES = 32
_SMALL = 1 << 20
"""Bytes of a chunk that is always read: h5py chooses no larger one for a dataset that may grow."""


class Unreadable(Exception):
    """Says in words that follow its name why a dataset is refused, and what to do."""

    def __init__(self, message: str, next: str | None = None) -> None:
        super().__init__(message)
        self.message, self.next = message, next


@dataclass(frozen=True)
class Values:
    """What a dataset's header says of its values.

    Attributes:
        dtype: as the file has them; None if they are no numbers, and `words` then says what they are.
        layout: its layout message.
        filters: how its chunks are packed, in the order in which they were.
    """

    node: Node
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic] | None
    words: str
    layout: bytes
    filters: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.item_bytes

    @property
    def item_bytes(self) -> int:
        return self.dtype.itemsize if self.dtype is not None else 1

    @property
    def unpacked_bytes(self) -> int:
        """What reading takes: its chunks are whole."""
        if not self.chunked:
            return self.nbytes
        return (
            math.prod(-(-size // step) * step for size, step in zip(self.shape, self.chunk(), strict=True))
            * self.item_bytes
        )

    @property
    def chunked(self) -> bool:
        return self.layout[1] == _CHUNKED

    def chunk(self) -> tuple[int, ...]:
        """The shape of its chunks."""
        rank = self.layout[2] - 1
        chunk = struct.unpack_from(f"<{rank}I", self.layout, 11)
        if rank != len(self.shape) or 0 in chunk:
            raise ValueError(f"'{self.node.name}' has chunks of {rank} axes")
        return tuple(chunk)


def values_of(node: Node) -> Values:
    """What a dataset holds.

    Raises:
        Unreadable: it is in another file, or packed by filters that porter does not read.
    """
    parts = [node.message(kind) for kind in (DATATYPE, DATASPACE, LAYOUT)]
    if parts[0] is None or parts[1] is None or parts[2] is None:
        raise ValueError(f"'{node.name}' lacks its type or its shape")
    datatype, dataspace, layout = parts[0], parts[1], parts[2]
    if EXTERNAL_FILES in node.messages or (layout[0], layout[1]) == (4, _VIRTUAL):
        raise Unreadable("keeps its values in another file; porter reads only this file")
    if layout[0] != 3:
        raise Unknown("other layouts")
    shape = _shape(dataspace)
    dtype, words = _number(datatype)
    packed = node.message(FILTERS)
    filters = tuple(_filters(packed)) if packed is not None else ()
    return Values(node, shape or (), dtype if shape is not None else None, words, layout, filters)


def texts_of(
    image: Image, attribute: Attribute
) -> tuple[tuple[int, ...], list[tuple[int, int] | bytes]] | None:
    """The shape of an attribute, and each of its texts or where it is; None if it holds no texts."""
    shape, kind = _shape(attribute.dataspace), attribute.datatype[0] & 15
    if shape is None:
        return None
    (size,) = struct.unpack_from("<I", attribute.datatype, 4)
    any_length = kind == _ANY_LENGTH and attribute.datatype[1] & 15 == 1
    if 0 in shape:
        return shape, []
    if not any_length and kind != _TEXT:
        return None
    count = math.prod(shape)
    if not 0 < count * size <= len(attribute.value):
        raise ValueError(f"an attribute of {count} texts has {len(attribute.value)} bytes")
    image.count(count)
    if not any_length:
        return shape, [attribute.value[at : at + size].rstrip(b"\0") for at in range(0, count * size, size)]
    places: list[tuple[int, int] | bytes] = []
    for at in range(0, count * 16, 16):
        length, collection, number = struct.unpack_from("<IQI", attribute.value, at)
        start, held = image.text_place(collection, number) if length else (0, 0)
        places.append((start, min(length, held)))
    return shape, places


def _shape(message: bytes) -> tuple[int, ...] | None:
    """A dataspace's; None if it holds nothing."""
    version, rank = message[0], message[1]
    if version not in (1, 2) or rank > _MOST_AXES:
        raise ValueError(f"a shape has {rank} axes, and version {version}")
    if version == 2 and message[3] == 2:
        return None
    return struct.unpack_from(f"<{rank}Q", message, 8 if version == 1 else 4)


def _number(message: bytes) -> tuple[np.dtype[np.generic] | None, str]:
    """The numpy type of numbers, and words for any type."""
    kind, flags, (size,) = message[0] & 15, message[1], struct.unpack_from("<I", message, 4)
    order = ">" if flags & 1 else "<"
    words = _CLASSES[kind] if kind < len(_CLASSES) else f"values of class {kind}"
    if kind == _FIXED and size in (1, 2, 4, 8) and struct.unpack_from("<HH", message, 8) == (0, 8 * size):
        return np.dtype(f"{order}{'i' if flags & 8 else 'u'}{size}"), words
    if kind == _FLOAT:
        offset, precision, *parts = struct.unpack_from("<HHBBBBI", message, 8)
        if flags & 64 == 0 and (offset, precision) == (0, 8 * size) and _FLOATS.get(size) == tuple(parts):
            return np.dtype(f"{order}f{size}"), words
    # HDF5 has no bfloat16: Keras writes it as two opaque bytes (keras/src/saving/saving_lib.py,
    # H5IOStore.__setitem__).
    if kind == _OPAQUE and size == 2:
        return storage_type("bfloat16"), words
    if kind == _ENUM and message[8] & 15 == _FIXED:
        base, _ = _number(message[8:])
        truths = (
            b"FALSE\0" in message and b"TRUE\0" in message and struct.unpack_from("<H", message, 1) == (2,)
        )
        return (np.dtype(bool) if truths and size == 1 else base), words
    return None, words


def _filters(message: bytes) -> Iterator[int]:
    version, count = message[0], message[1]
    if version not in (1, 2):
        raise ValueError(f"a list of filters has version {version}")
    at = 8 if version == 1 else 2
    for _ in range(count):
        (code,) = struct.unpack_from("<H", message, at)
        at += 2
        length = 0
        if version == 1 or code >= 256:
            (length,) = struct.unpack_from("<H", message, at)
            at += 2
        _, numbers = struct.unpack_from("<HH", message, at)
        at += 4 + (-(-length // 8) * 8 if version == 1 else length) + 4 * numbers
        at += 4 if version == 1 and numbers % 2 else 0
        yield code


def oversized(values: Values) -> str | None:
    """How a dataset's chunks take more memory than its values need, in words that follow its name; None where
    they do not.
    """
    if not values.chunked or values.dtype is None:
        return None
    size = math.prod(values.chunk()) * values.item_bytes
    if size > max(values.nbytes, _SMALL):
        return f"has chunks of {size} bytes, and {values.nbytes} bytes of values"
    if any(code in (_FLETCHER32, _LZF) for code in values.filters):
        raise Unknown("other filters")
    if values.filters not in ((), (_SHUFFLE,), (_DEFLATE,), (_SHUFFLE, _DEFLATE)):
        return "is packed by other filters than one of gzip or lzf"
    return None


def read_values(values: Values, dtype: np.dtype[np.generic]) -> Array:
    """A dataset's values: a view of the file where it keeps them together."""
    image, layout, shape = values.node.image, values.layout, values.shape
    if 0 in shape:
        return np.zeros(shape, dtype)
    if values.chunked:
        return _assembled(values, dtype)
    content: bytes | mmap.mmap = layout
    if layout[1] == _COMPACT:
        start, (length,) = 4, struct.unpack_from("<H", layout, 2)
    else:
        content = image.data
        start, length = struct.unpack_from("<QQ", layout, 2)
        if start == NOWHERE:
            raise Unreadable("has no values: it was never written")
    if length < values.nbytes or start + length > len(content):
        raise ValueError(f"'{values.node.name}' declares {values.nbytes} bytes, and its data has {length}")
    return np.frombuffer(content, dtype, math.prod(shape), start).reshape(shape)


def _assembled(values: Values, dtype: np.dtype[np.generic]) -> Array:
    chunk, image = values.chunk(), values.node.image
    (tree,) = struct.unpack_from("<Q", values.layout, 3)
    if tree == NOWHERE:
        raise Unreadable("has no values: it was never written")
    size = math.prod(chunk) * values.item_bytes
    found, seen, packed = np.empty(values.shape, dtype), set(), 0
    for key, start in leaves(image, tree, 1, 8 * len(chunk) + 16):
        length, skipped, *offsets = struct.unpack_from(f"<II{len(chunk)}Q", key)
        # Keras's own are smaller than what they unpack to, or as large.
        if length > 2 * size + _SMALL or tuple(offsets) in seen or any(map(int.__mod__, offsets, chunk)):
            raise ValueError(
                f"'{values.node.name}' has a chunk at {offsets} of {length} bytes, or has it twice"
            )
        seen.add(tuple(offsets))
        packed += length
        if packed > len(image.data):
            raise ValueError(f"the chunks of '{values.node.name}' lie over each other")
        part = np.frombuffer(_unpacked(values, image.cut(start, length), skipped, size), dtype).reshape(chunk)
        held = found[tuple(slice(offset, offset + step) for offset, step in zip(offsets, chunk, strict=True))]
        if held.size == 0:
            raise ValueError(f"'{values.node.name}' has a chunk at {offsets}, outside of it")
        held[...] = part[tuple(map(slice, held.shape))]
    if len(seen) < math.prod(-(-size // step) for size, step in zip(values.shape, chunk, strict=True)):
        raise Unreadable("lacks values: some of its chunks were never written")
    return found


def _unpacked(values: Values, packed: bytes, skipped: int, size: int) -> bytes:
    """A chunk's bytes, whose filters are undone from the last to the first, without those that it skips."""
    for place in reversed(range(len(values.filters))):
        if skipped >> place & 1:
            continue
        if values.filters[place] == _DEFLATE:
            inflater = zlib.decompressobj()
            packed = inflater.decompress(packed, size + 1)
            if len(packed) > size:
                raise Unreadable(
                    f"unpacks to more than its chunks of {size} bytes",
                    "save the weights again, without compression",
                )
            if not inflater.eof:
                raise ValueError("a chunk is cut short")
        elif values.item_bytes > 1:
            packed = np.frombuffer(packed, np.uint8, size).reshape(values.item_bytes, -1).T.tobytes()
    if len(packed) != size:
        raise ValueError(f"a chunk has {len(packed)} bytes, expected {size}")
    return packed
