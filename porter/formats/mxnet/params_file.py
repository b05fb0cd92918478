"""The arrays of a .params file, by name (src/ndarray/ndarray.cc, NDArray::Save and Load): read and
written.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.formats.cursor import Cursor
from porter.formats.limits import MOST_NODES, MOST_TENSOR_AXES
from porter.formats.mxnet import LIST_MAGIC

_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
"""The numbers that arrays of later versions begin with."""
_TYPES = ("<f4", "<f8", "<f2", "u1", "<i4", "i1", "<i8")
"""The types of numbers, in the order of mshadow's type flags."""


def read_arrays(data: bytes) -> NamedArrays:
    """Return the arrays by name, without the prefix that says whether a name is an argument's or an auxiliary
    state's (`arg:`, `aux:`).

    Args:
        data: the bytes of the file.

    Raises:
        ValueError: the file is damaged, or has sparse arrays, or arrays without names.
    """
    cursor = Cursor(data)
    cursor.skip(16)  # the magic number, and eight bytes that are reserved
    arrays = [_read_array(cursor) for _ in range(_read_count(cursor))]
    names = [cursor.cut(cursor.number("Q")).decode() for _ in range(_read_count(cursor))]
    if len(names) != len(arrays):
        raise ValueError(f"it has {len(arrays)} arrays and {len(names)} names")
    return {
        name.removeprefix("arg:").removeprefix("aux:"): array
        for name, array in zip(names, arrays, strict=True)
    }


def _read_count(cursor: Cursor) -> int:
    """Return a number of arrays or names. Raise ValueError for one that is larger than any model's."""
    count = cursor.number("Q")
    if count > MOST_NODES:
        raise ValueError(f"it has more than {MOST_NODES} arrays")
    return count


def _read_array(cursor: Cursor) -> Array:
    """Return the next array, of any version of the layout; an empty one for an array without axes, which
    MXNet never filled. The first version had no number of its own, and began with the number of axes.
    """
    first = cursor.number("I")
    if first in (_V2, _V3) and cursor.number("i"):  # the storage type, 0 for dense
        raise ValueError("it has sparse arrays")
    newer = first in (_V1, _V2, _V3)
    axes = cursor.number("I") if newer else first
    if axes > MOST_TENSOR_AXES:
        raise ValueError(f"an array has {axes} axes")
    shape = cursor.array("i8" if newer else "u4", axes).tolist()
    if not shape:
        return np.zeros(0, np.float32)
    _, _, type = cursor.array("i4", 3).tolist()  # after the device's type and number
    if not 0 <= type < len(_TYPES) or min(shape) < 0:
        raise ValueError("an array has a type or a size that MXNet does not know")
    return cursor.array(_TYPES[type], math.prod(shape)).reshape(shape)


def write_arrays(arrays: NamedArrays) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a .params with these arrays, in the layout of MXNet 1.0 and later. Each array has at
    least one axis, because the layout has no scalars.
    """
    yield struct.pack("<QQQ", LIST_MAGIC, 0, len(arrays))  # the 0 is reserved
    for array in arrays.values():
        kind = array.dtype.newbyteorder("<")
        dense = 0
        yield struct.pack(f"<IiI{array.ndim}q", _V2, dense, array.ndim, *array.shape)
        yield struct.pack("<iii", 1, 0, _TYPES.index(kind.str))  # in the memory of CPU 0
        yield np.ascontiguousarray(array, kind).data.cast("B")
    yield struct.pack("<Q", len(arrays))
    for name in arrays:
        yield struct.pack("<Q", len(name.encode())) + name.encode()
