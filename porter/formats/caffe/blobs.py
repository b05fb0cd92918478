"""The arrays of a .caffemodel, by layer: a NetParameter of caffe.proto, of which only these fields are read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from porter.base.dtypes import Array
from porter.formats.limits import MOST_NODES
from porter.formats.protobuf import expect_varint, fields


@dataclass(frozen=True)
class _Numbers:
    """Numbers of fields: of a layer, its name and its blobs."""

    name: int
    blobs: int


_LAYERS = {2: _Numbers(4, 6), 100: _Numbers(1, 7)}
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
    for number, layer in fields(memoryview(data)):
        if number not in _LAYERS or isinstance(layer, int):
            continue
        name, blobs = "", list[Array]()
        for part, value in fields(layer):
            if isinstance(value, int):
                continue
            if part == _LAYERS[number].name:
                name = bytes(value).decode()
            elif part == _LAYERS[number].blobs:
                blobs.append(_blob(value, name))
            if count + len(blobs) > MOST_NODES:
                raise ValueError(f"it has more than {MOST_NODES} blobs")
        count += len(blobs)
        if blobs:
            found[name] = blobs
    return found


def _blob(data: memoryview, name: str) -> Array:
    sizes, legacy, parts = list[int](), dict[int, int](), list[Array]()
    for number, value in fields(data):
        if isinstance(value, int):
            legacy |= {number: value} if number in _LEGACY else {}
        elif number == _SHAPE:
            stated = (size for part, axis in fields(value) if part == _DIM for size in _varints(axis))
            sizes = list(islice(stated, _MOST_AXES + 1))
        elif number in (_FLOATS, _DOUBLES) and len(value) % (width := 4 if number == _FLOATS else 8) == 0:
            parts.append(np.frombuffer(value, f"<f{width}"))
        if len(parts) > _MOST_PARTS or len(sizes) > _MOST_AXES:
            raise ValueError(f"a blob of '{name}' has too many parts")
    shape = tuple(sizes) if sizes or not legacy else tuple(legacy.get(number, 0) for number in _LEGACY)
    held = sum(part.size for part in parts)
    if held != math.prod(shape):
        raise ValueError(f"a blob of '{name}' has {held} numbers, not those of {'x'.join(map(str, shape)) or 'one'}")
    return (np.concatenate(parts) if len(parts) != 1 else parts[0]).reshape(shape)


def _varints(stated: int | memoryview) -> Iterator[int]:
    """One number, or several that are packed."""
    if isinstance(stated, int):
        yield stated
        return
    place = 0
    while place < len(stated):
        value, place = expect_varint(stated, place)
        yield value
