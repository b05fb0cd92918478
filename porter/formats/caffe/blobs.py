"""The arrays of a .caffemodel, by layer: a NetParameter of caffe.proto, of which only these fields are read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from porter.base.dtypes import Array
from porter.formats.format import varint
from porter.formats.limits import MOST_NODES


@dataclass(frozen=True)
class _Fields:
    """Numbers of fields: of a layer, its name and its blobs."""

    name: int
    blobs: int


_LAYERS = {2: _Fields(4, 6), 100: _Fields(1, 7)}
"""By the field of the net: V1LayerParameter and LayerParameter."""
_SHAPE, _DIM, _FLOATS, _DOUBLES = 7, 1, 5, 8
_LEGACY = (1, 2, 3, 4)
"""num, channels, height, width: the shape of a blob before it had a field."""
_MOST_PARTS, _MOST_AXES = 1 << 12, 32
"""Of a blob's numbers, which Caffe writes as one."""


def read_blobs(data: bytes) -> dict[str, list[Array]]:
    """The blobs of each layer that has some, in their order.

    Raises:
        ValueError: the file is damaged, or a blob does not hold what it declares.
    """
    found, count = dict[str, list[Array]](), 0
    for number, first, last in _fields(data, 0, len(data)):
        fields = _LAYERS.get(number)
        if fields is None:
            continue
        name, blobs = "", list[Array]()
        for part, start, end in _fields(data, first, last):
            if part == fields.name:
                name = data[start:end].decode()
            elif part == fields.blobs:
                blobs.append(_blob(data, start, end, name))
            if count + len(blobs) > MOST_NODES:
                raise ValueError(f"it has more than {MOST_NODES} blobs")
        count += len(blobs)
        if blobs:
            found[name] = blobs
    return found


def _blob(data: bytes, first: int, last: int, name: str) -> Array:
    sizes, legacy, parts = list[int](), dict[int, int](), list[Array]()
    for number, start, end in _fields(data, first, last):
        if number == _SHAPE:
            spans = (span for part, *span in _fields(data, start, end) if part == _DIM)
            sizes = list(islice((size for span in spans for size in _varints(data, *span)), _MOST_AXES + 1))
        elif number in _LEGACY:
            legacy[number] = next(_varints(data, start, end), 0)
        elif number in (_FLOATS, _DOUBLES) and (end - start) % (width := 4 if number == _FLOATS else 8) == 0:
            parts.append(np.frombuffer(data, f"<f{width}", (end - start) // width, start))
        if len(parts) > _MOST_PARTS or len(sizes) > _MOST_AXES:
            raise ValueError(f"a blob of '{name}' has too many parts")
    shape = tuple(sizes) if sizes or not legacy else tuple(legacy.get(number, 0) for number in _LEGACY)
    held = sum(part.size for part in parts)
    if held != math.prod(shape):
        raise ValueError(f"a blob of '{name}' has {held} numbers, not those of {'x'.join(map(str, shape)) or 'one'}")
    return (np.concatenate(parts) if len(parts) != 1 else parts[0]).reshape(shape)


def _fields(data: bytes, offset: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The number of each field of a message, and where its content begins and ends."""
    while offset < end:
        key, offset = varint(data, offset)
        if key & 7 == 2:
            length, offset = varint(data, offset)
            last = offset + length
        elif key & 7 == 0:
            _, last = varint(data, offset)
        else:
            last = offset + {1: 8, 5: 4}.get(key & 7, end)
        if (not offset < last <= end and key & 7 != 2) or last > end:
            raise ValueError("it is cut short or damaged")
        yield key >> 3, offset, last
        offset = last


def _varints(data: bytes, offset: int, end: int) -> Iterator[int]:
    while offset < end:
        value, offset = varint(data, offset)
        yield value
