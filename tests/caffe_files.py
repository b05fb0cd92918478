"""Caffe models as Caffe writes them: a net as text, and its blobs as the messages of caffe.proto."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Blobs = Mapping[str, Sequence[NDArray[np.float32]]]


def write_caffe(path: Path, net: str, blobs: Blobs, legacy: bool = False) -> Path:
    """The net beside its weights; `legacy` as before Caffe's second format, with blobs of four axes. Gives the net's path."""
    path.with_suffix(".prototxt").write_text(net)
    layers = b"".join(_layer(name, arrays, legacy) for name, arrays in blobs.items())
    path.with_suffix(".caffemodel").write_bytes(_field(1, b"net") + layers)
    return path.with_suffix(".prototxt")


def _layer(name: str, arrays: Sequence[NDArray[np.float32]], legacy: bool) -> bytes:
    parts = [_field(4 if legacy else 1, name.encode()), *(_field(6 if legacy else 7, _blob(array, legacy)) for array in arrays)]
    return _field(2 if legacy else 100, b"".join(parts))


def _blob(array: NDArray[np.float32], legacy: bool) -> bytes:
    data = _field(5, array.astype("<f4").tobytes())
    if not legacy:
        return _field(7, _field(1, b"".join(map(_varint, array.shape)))) + data
    sizes = (*[1] * (4 - array.ndim), *array.shape)
    return b"".join(_varint(number << 3) + _varint(size) for number, size in enumerate(sizes, 1)) + data


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
