"""The message of a .caffemodel, as Caffe writes it: NetParameter of caffe.proto, with the layers and their blobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from porter.base.dtypes import Array

_NET_NAME, _NET_LAYER = 1, 100
_NAME, _TYPE, _BOTTOM, _TOP, _BLOBS = 1, 2, 3, 4, 7
_DATA, _SHAPE, _DOUBLE_DATA, _DIM = 5, 7, 8, 1


def net_message(name: str, layers: Sequence[Mapping[str, Sequence[str]]], blobs: Sequence[Sequence[Array]]) -> Iterator[bytes]:
    """The parts of the message, in their order.

    Args:
        layers: the words of each: `name`, `type`, `bottom` and `top`.
        blobs: of each layer, float32 or float64.
    """
    numbers = {"name": _NAME, "type": _TYPE, "bottom": _BOTTOM, "top": _TOP}
    yield _field(_NET_NAME, name.encode())
    for words, arrays in zip(layers, blobs, strict=True):
        stated = b"".join(_field(numbers[key], word.encode()) for key, several in words.items() for word in several)
        parts = [part for array in arrays for part in _blob(array)]
        yield _head(_NET_LAYER, len(stated) + sum(map(len, parts))) + stated
        yield from parts


def _blob(array: Array) -> tuple[bytes, bytes]:
    number, kind = (_DOUBLE_DATA, "<f8") if array.dtype == np.float64 else (_DATA, "<f4")
    data = array.astype(kind, copy=False).tobytes()
    stated = _field(_SHAPE, _field(_DIM, b"".join(map(_varint, array.shape)))) + _head(number, len(data))
    return _head(_BLOBS, len(stated) + len(data)) + stated, data


def _field(number: int, content: bytes) -> bytes:
    return _head(number, len(content)) + content


def _head(number: int, length: int) -> bytes:
    return _varint(number << 3 | 2) + _varint(length)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
