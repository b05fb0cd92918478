"""The arrays in numpy's pickles.

numpy pickles an array as a call of `_reconstruct` and then its state: shape, dtype, order and bytes
(numpy/core/src/multiarray/ methods.c, `array_reduce`). Stand-ins take the place of the objects that such a
pickle makes, and all of them are checked before an array is made.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from porter.base.dtypes import Array
from porter.base.errors import FileError
from porter.formats.pickled import Made, Maker, Vocabulary, unpickle

_MOST_AXES = 32
_NEXT = "where it was made, save it again: numpy.savez(FILE, **{name: array})"


def unpickle_arrays(stream: bytes, limit: int, where: str) -> list[Array]:
    """The arrays in a pickled one-dimensional object array, each copied and in this machine's byte order.

    Raises:
        FileError: it is damaged, has more than `limit` bytes of arrays, or pickles something else, which is
            named.
    """
    whole, _ = unpickle(
        stream, Vocabulary(_Encoder(stream).names(), _NEXT, text=False, most=len(stream)), where
    )
    if not isinstance(whole, _Array) or not isinstance(whole.data, list) or whole.shape != (len(whole.data),):
        raise FileError("expected a pickled list of arrays", where=where, next=_NEXT)
    # Through the memo one array can be in the list any number of times, and each is copied.
    total = sum(
        len(part.data) for part in whole.data if isinstance(part, _Array) and isinstance(part.data, bytes)
    )
    if total > limit:
        raise FileError(
            f"this pickle unpacks to {total} bytes, more than the {limit} its file can hold",
            where=where,
            next=_NEXT,
        )
    return [_numbers(part, where) for part in whole.data]


def make_array(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool, where: str) -> Array:
    """An array of numbers from its bytes, copied, in this machine's byte order.

    Raises:
        FileError: type and shape need another number of bytes.
    """
    possible = len(shape) <= _MOST_AXES and min(shape, default=0) >= 0
    fits = possible and math.prod(shape) * dtype.itemsize == len(data) and dtype.itemsize > 0
    try:
        if fits:
            return np.ndarray(shape, dtype, data, order="F" if fortran else "C").astype(
                dtype.newbyteorder("=")
            )
    except (ValueError, OverflowError):  # one axis is 0 and another too long for numpy
        pass
    declared = "x".join(map(str, shape[:_MOST_AXES]))[:100]
    raise FileError(
        f"an array declares {declared} of {dtype}, and its data has {len(data)} bytes",
        where=where,
        next="fetch it again",
    )


class _Dtype(Made):
    """numpy.dtype: `dtype('f4', False, True)`, whose state begins with a version and the byte order."""

    def __init__(self, code: object, *_: object) -> None:
        self.code = _text(code)
        self.order = "="

    def build(self, state: tuple[object, ...], /) -> None:
        self.order = _text(state[1])


class _Array(Made):
    """An array, which is made empty and then gets (version, shape, dtype, order, content)."""

    shape: object = None
    dtype: object = None
    fortran: object = None
    data: object = None

    def build(self, state: tuple[object, ...], /) -> None:
        _, self.shape, self.dtype, self.fortran, self.data = state


class _Encoder:
    """Decodes bytes as Python 3 writes them in protocol 2 (pickle.py, `save_bytes`), in total no more than
    the pickle holds.
    """

    def __init__(self, stream: bytes) -> None:
        self._left = len(stream)

    def names(self) -> dict[str, Maker]:
        """What a pickle of arrays may name."""
        made: dict[str, Maker] = {
            "numpy.ndarray": _Array,
            "numpy.dtype": _Dtype,
            "_codecs.encode": self._encode,
        }
        return made | {f"numpy.{core}.multiarray._reconstruct": _Array for core in ("core", "_core")}

    def _encode(self, text: str, encoding: str) -> bytes:
        self._left -= len(text)
        if encoding != "latin1" or self._left < 0:
            raise ValueError("it encodes more text than it holds, or not as bytes")
        return text.encode("latin1")


def _numbers(array: object, where: str) -> Array:
    """An array of numbers from what was pickled of it."""
    if not isinstance(array, _Array) or not isinstance(array.dtype, _Dtype):
        raise FileError(
            f"expected arrays in the pickled list, got {type(array).__name__}", where=where, next=_NEXT
        )
    dtype, shape, data = array.dtype, array.shape, array.data
    if not re.fullmatch("f[248]|[iu][1248]|b1", dtype.code) or dtype.order not in ("<", ">", "|", "="):
        raise FileError(
            f"expected arrays of numbers, got one of '{dtype.order}{dtype.code}'"[:150],
            where=where,
            next=_NEXT,
        )
    if (
        not isinstance(shape, tuple)
        or not all(isinstance(axis, int) for axis in shape)
        or not isinstance(data, bytes)
    ):
        raise FileError("an array in the pickled list has no shape or no bytes", where=where, next=_NEXT)
    return make_array(data, np.dtype(dtype.order + dtype.code), shape, array.fortran is True, where)


def _text(value: object) -> str:
    """Python 2 has bytes where Python 3 has text. Other values are refused: a few nested tuples, as text, can
    fill any memory.
    """
    if not isinstance(value, bytes | str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value.decode("ascii") if isinstance(value, bytes) else value
