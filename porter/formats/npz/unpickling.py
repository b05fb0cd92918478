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
from porter.formats.limits import MOST_TENSOR_AXES
from porter.formats.pickled import Maker, PickledObject, Vocabulary, unpickle

_SAVE_AGAIN = "where it was made, save it again: numpy.savez(FILE, **{name: array})"


def unpickle_arrays(stream: bytes, limit: int, where: str) -> list[Array]:
    """Return the arrays in a pickled one-dimensional object array, each copied and in this machine's byte
    order.

    Raises:
        FileError: it is damaged, has more than `limit` bytes of arrays, or pickles something else, which is
            named.
    """
    vocabulary = Vocabulary(_EncodeBudget(stream).names(), _SAVE_AGAIN, text=False, most=len(stream))
    pickled, _ = unpickle(stream, vocabulary, where)
    not_a_list = FileError("expected a pickled list of arrays", where=where, next=_SAVE_AGAIN)
    if not isinstance(pickled, _PickledArray) or not isinstance(pickled.data, list):
        raise not_a_list
    # An object array of one axis holds its items as a list.
    if pickled.shape != (len(pickled.data),):
        raise not_a_list
    # Through the memo one array can be in the list any number of times, and each is copied.
    total = sum(
        len(part.data)
        for part in pickled.data
        if isinstance(part, _PickledArray) and isinstance(part.data, bytes)
    )
    if total > limit:
        raise FileError(
            f"this pickle unpacks to {total} bytes, more than the {limit} its file can hold",
            where=where,
            next=_SAVE_AGAIN,
        )
    return [_array_of_numbers(part, where) for part in pickled.data]


def make_array(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool, where: str) -> Array:
    """Return an array of numbers from its bytes, copied, in this machine's byte order.

    Args:
        fortran: whether the first axis is the innermost.

    Raises:
        FileError: type and shape need another number of bytes.
    """
    possible = len(shape) <= MOST_TENSOR_AXES and min(shape, default=0) >= 0
    # numpy is asked only for what has exactly these bytes.
    fits = possible and math.prod(shape) * dtype.itemsize == len(data) and dtype.itemsize > 0
    try:
        if fits:
            return np.ndarray(shape, dtype, data, order="F" if fortran else "C").astype(
                dtype.newbyteorder("=")
            )
    except (ValueError, OverflowError):  # one axis is 0 and another too long for numpy
        pass
    declared = "x".join(map(str, shape[:MOST_TENSOR_AXES]))[:100]
    raise FileError(
        f"an array declares {declared} of {dtype}, and its data has {len(data)} bytes",
        where=where,
        next="fetch it again",
    )


class _PickledDtype(PickledObject):
    """numpy.dtype: `dtype('f4', False, True)`, whose state begins with a version and the byte order."""

    def __init__(self, code: object, *_: object) -> None:
        self.code = _expect_text(code)
        self.order = "="

    def build(self, state: tuple[object, ...], /) -> None:
        self.order = _expect_text(state[1])


class _PickledArray(PickledObject):
    """An array, which is made empty and then gets (version, shape, dtype, order, content)."""

    shape: object = None
    dtype: object = None
    fortran: object = None
    data: object = None

    def build(self, state: tuple[object, ...], /) -> None:
        """Take the array's state: a version, which does not matter, and what `_PickledArray` has."""
        _, self.shape, self.dtype, self.fortran, self.data = state


class _EncodeBudget:
    """Decodes bytes as Python 3 writes them in protocol 2 (pickle.py, `save_bytes`), in total no more than
    the pickle holds.
    """

    def __init__(self, stream: bytes) -> None:
        self._left = len(stream)

    def names(self) -> dict[str, Maker]:
        """Return the functions that take the place of those which a pickle of arrays may name; numpy 2 has
        moved one of them.
        """
        made: dict[str, Maker] = {
            "numpy.ndarray": _PickledArray,
            "numpy.dtype": _PickledDtype,
            "_codecs.encode": self._encode,
        }
        return made | {f"numpy.{core}.multiarray._reconstruct": _PickledArray for core in ("core", "_core")}

    def _encode(self, text: str, encoding: str) -> bytes:
        """Return the bytes of a text, as `_codecs.encode` does; refuse more text than the pickle holds."""
        self._left -= len(text)
        if encoding != "latin1" or self._left < 0:
            raise ValueError("it encodes more text than it holds, or not as bytes")
        return text.encode("latin1")


def _array_of_numbers(array: object, where: str) -> Array:
    """Return an array of numbers from the pickled one. Raise FileError for anything else in its place."""
    if not isinstance(array, _PickledArray) or not isinstance(array.dtype, _PickledDtype):
        raise FileError(
            f"expected arrays in the pickled list, got {type(array).__name__}", where=where, next=_SAVE_AGAIN
        )
    dtype, shape, data = array.dtype, array.shape, array.data
    if not re.fullmatch("f[248]|[iu][1248]|b1", dtype.code) or dtype.order not in ("<", ">", "|", "="):
        raise FileError(
            f"expected arrays of numbers, got one of '{dtype.order}{dtype.code}'"[:150],
            where=where,
            next=_SAVE_AGAIN,
        )
    if (
        not isinstance(shape, tuple)
        or not all(isinstance(size, int) for size in shape)
        or not isinstance(data, bytes)
    ):
        raise FileError(
            "an array in the pickled list has no shape or no bytes", where=where, next=_SAVE_AGAIN
        )
    return make_array(data, np.dtype(dtype.order + dtype.code), shape, array.fortran is True, where)


def _expect_text(value: object) -> str:
    """Return a text, which Python 2 pickles as bytes. Raise TypeError for other values: a few nested tuples,
    as text, can fill any memory.
    """
    if not isinstance(value, bytes | str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value.decode("ascii") if isinstance(value, bytes) else value
