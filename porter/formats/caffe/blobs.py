"""The arrays of a .caffemodel, by layer: a NetParameter of caffe.proto, read and written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from porter.base.dtypes import Array
from porter.formats.limits import MOST_NODES, MOST_TENSOR_AXES
from porter.formats.protobuf import expect_varint, iterate_fields

_NET_NAME, _LAYER = 1, 100
_NAME, _TYPE, _BOTTOM, _TOP, _BLOBS = 1, 2, 3, 4, 7
"""Fields of a LayerParameter."""
_FIELDS_OF_LAYER = {2: (4, 6), _LAYER: (_NAME, _BLOBS)}
"""The fields of a layer's name and of its blobs, by the field of the net that has the layer: a
V1LayerParameter or a LayerParameter.
"""
_SHAPE, _DIM, _FLOATS, _DOUBLES = 7, 1, 5, 8
"""Fields of a BlobProto, and the only field of its shape."""
_DELIMITED = 2
"""Protobuf's wire type of bytes and messages."""
_LEGACY_SHAPE = (1, 2, 3, 4)
"""num, channels, height, width: the shape of a blob before it had a field."""
_MOST_PARTS = 1 << 12
"""The most parts of a blob's numbers, which Caffe writes as one."""


def read_blobs(data: bytes) -> dict[str, list[Array]]:
    """Return the blobs of each layer that has some, in their order. A layer without blobs is left out.

    Raises:
        ValueError: the file is damaged, or a blob does not hold what it declares.
    """
    by_layer, count = dict[str, list[Array]](), 0
    for number, layer in iterate_fields(memoryview(data)):
        if number not in _FIELDS_OF_LAYER or isinstance(layer, int):
            continue
        name_field, blobs_field = _FIELDS_OF_LAYER[number]
        name = ""
        blobs = list[Array]()
        for part, value in iterate_fields(layer):
            if isinstance(value, int):
                continue
            if part == name_field:
                name = bytes(value).decode()
            elif part == blobs_field:
                blobs.append(_read_blob(value, name))
            if count + len(blobs) > MOST_NODES:
                raise ValueError(f"it has more than {MOST_NODES} blobs")
        count += len(blobs)
        if blobs:
            by_layer[name] = blobs
    return by_layer


def _read_blob(data: memoryview, name: str) -> Array:
    """Return a blob of a layer in its stored shape. Raise ValueError if its numbers are more or fewer."""
    shape, parts = _shape_and_parts(data, name)
    count = sum(part.size for part in parts)
    if count != math.prod(shape):
        raise ValueError(
            f"a blob of '{name}' has {count} numbers, not those of {'x'.join(map(str, shape)) or 'one'}"
        )
    # One part, as Caffe writes it, is not copied.
    return (np.concatenate(parts) if len(parts) != 1 else parts[0]).reshape(shape)


def _shape_and_parts(data: memoryview, name: str) -> tuple[tuple[int, ...], list[Array]]:
    """Return the sizes of a blob, and its numbers in the parts in which they are stored. A blob from before
    blobs had a field for their shape has four sizes; one without any is a single number.
    """
    sizes = list[int]()
    legacy = dict[int, int]()
    parts = list[Array]()
    for number, value in iterate_fields(data):
        if isinstance(value, int):
            if number in _LEGACY_SHAPE:
                legacy[number] = value
        elif number == _SHAPE:
            sizes = list(islice(_read_sizes(value), MOST_TENSOR_AXES + 1))
        elif number in (_FLOATS, _DOUBLES):
            width = 4 if number == _FLOATS else 8
            # A part of other bytes is left out, and the numbers are then fewer than the shape says.
            if len(value) % width == 0:
                parts.append(np.frombuffer(value, f"<f{width}"))
        if len(parts) > _MOST_PARTS or len(sizes) > MOST_TENSOR_AXES:
            raise ValueError(f"a blob of '{name}' has too many parts")
    if not sizes and legacy:
        sizes = [legacy.get(number, 0) for number in _LEGACY_SHAPE]
    return tuple(sizes), parts


def _read_sizes(shape: memoryview) -> Iterator[int]:
    """Yield the sizes in a blob's shape, in the order of its axes."""
    for number, axis in iterate_fields(shape):
        if number == _DIM:
            yield from _read_varints(axis)


def _read_varints(packed: int | memoryview) -> Iterator[int]:
    """Yield the one number that a field has, or the several that are packed in its bytes."""
    if isinstance(packed, int):
        yield packed
        return
    start = 0
    while start < len(packed):
        value, start = expect_varint(packed, start)
        yield value


def write_net(
    name: str, layers: Sequence[Mapping[str, Sequence[str]]], blobs: Sequence[Sequence[Array]]
) -> Iterator[bytes]:
    """Yield the parts of the message of a net, in their order, as Caffe writes it.

    Args:
        layers: the words of each: `name`, `type`, `bottom` and `top`.
        blobs: of each layer, float32 or float64.
        name: of the net.
    """
    numbers = {"name": _NAME, "type": _TYPE, "bottom": _BOTTOM, "top": _TOP}
    yield _write_field(_NET_NAME, name.encode())
    for words, arrays in zip(layers, blobs, strict=True):
        layer_parts = b"".join(
            _write_field(numbers[key], word.encode()) for key, several in words.items() for word in several
        )
        parts = [part for array in arrays for part in _write_blob(array)]
        yield _write_head(_LAYER, len(layer_parts) + sum(map(len, parts))) + layer_parts
        yield from parts


def _write_blob(array: Array) -> tuple[bytes, bytes]:
    """Return the head of a blob's message with its shape, and the bytes of its numbers."""
    number, kind = (_DOUBLES, "<f8") if array.dtype == np.float64 else (_FLOATS, "<f4")
    data = array.astype(kind, copy=False).tobytes()
    sizes = b"".join(map(_write_varint, array.shape))
    shape = _write_field(_SHAPE, _write_field(_DIM, sizes))
    heads = shape + _write_head(number, len(data))
    return _write_head(_BLOBS, len(heads) + len(data)) + heads, data


def _write_field(number: int, content: bytes) -> bytes:
    """Return a field of bytes: its head, and its content."""
    return _write_head(number, len(content)) + content


def _write_head(number: int, length: int) -> bytes:
    """Return the head of a field of bytes: its number with the wire type, and its length."""
    return _write_varint(number << 3 | _DELIMITED) + _write_varint(length)


def _write_varint(value: int) -> bytes:
    """Return a number as a varint: seven bits in each byte, the lowest first; all bytes but the last have
    their highest bit.
    """
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])
