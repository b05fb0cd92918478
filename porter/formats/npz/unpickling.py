"""The only unpickler: it makes arrays of numbers from a stranger's pickle and nothing else.

numpy pickles an array as a call of `_reconstruct` and then its state: shape, dtype, order and bytes (numpy/core/src/multiarray/
methods.c, `array_reduce`). Stand-ins replace the names that such a pickle needs, and only keep their arguments: nothing is called
before all of them are checked. Every other name is refused.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from porter.base.dtypes import Array
from porter.base.errors import FileError, first_line
from porter.formats.pickled import read_opcodes

_OPCODES = frozenset(
    (
        *("PROTO", "FRAME", "STOP", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "NONE", "NEWTRUE", "NEWFALSE"),
        *("MARK", "TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS"),
        *("BININT", "BININT1", "BININT2", "LONG1", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "SHORT_BINSTRING", "BINSTRING"),
        *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET"),
    )
)
"""The opcodes that arrays need in protocols 2 to 4, of Python 2 and 3. None hashes: a deeply nested tuple crashes Python."""
_MOST_AXES = 32
_NEXT = "where it was made, save it again: numpy.savez(FILE, **{name: array})"


def unpickle_arrays(stream: bytes, limit: int, where: str) -> list[Array]:
    """The arrays in a pickled one-dimensional object array, each copied and in this machine's byte order.

    Raises:
        FileError: it is damaged, has more than `limit` bytes of arrays, or pickles something else, which is named.
    """
    try:
        _expect_plain(stream, where)
        whole = _ArrayUnpickler(stream, where).load()
    except FileError:
        raise
    # A stranger's pickle may fail in every way that Python knows; none is a bug of porter's.
    except Exception as error:
        raise FileError(f"this pickle is cut short or damaged: {first_line(error)}", where=where, next="fetch it again") from None
    if not isinstance(whole, _Array) or not isinstance(whole.data, list) or whole.shape != (len(whole.data),):
        raise FileError("expected a pickled list of arrays", where=where, next=_NEXT)
    # Through the memo one array can be in the list any number of times, and each is copied.
    total = sum(len(part.data) for part in whole.data if isinstance(part, _Array) and isinstance(part.data, bytes))
    if total > limit:
        raise FileError(f"this pickle unpacks to {total} bytes, more than the {limit} its file can hold", where=where, next=_NEXT)
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
            return np.ndarray(shape, dtype, data, order="F" if fortran else "C").astype(dtype.newbyteorder("="))
    except (ValueError, OverflowError):  # one axis is 0 and another too long for numpy
        pass
    declared = "x".join(map(str, shape[:_MOST_AXES]))[:100]
    raise FileError(f"an array declares {declared} of {dtype} over {len(data)} bytes", where=where, next="fetch it again")


def _expect_plain(stream: bytes, where: str) -> None:
    """Reads the opcodes before any of them is run."""
    for name in read_opcodes(stream, where, _NEXT):
        if name not in _OPCODES:
            raise FileError(f"a pickle of arrays has no opcode {name}", where=where, next=_NEXT)


class _Dtype:
    """Replaces numpy.dtype: `dtype('f4', False, True)`, whose state begins with a version and the byte order."""

    def __init__(self, code: object, *_: object) -> None:
        self.code = _text(code)
        self.order = "="

    def __setstate__(self, state: tuple[object, ...]) -> None:
        self.order = _text(state[1])


class _Array:
    """Replaces an array, which is made empty and then gets (version, shape, dtype, order, content)."""

    def __init__(self, *_: object) -> None:
        self.shape: object = None
        self.dtype: object = None
        self.fortran: object = None
        self.data: object = None

    def __setstate__(self, state: tuple[object, ...]) -> None:
        _, self.shape, self.dtype, self.fortran, self.data = state


class _ArrayUnpickler(pickle.Unpickler):
    """Replaces numpy's names by stand-ins and refuses other names."""

    def __init__(self, stream: bytes, where: str) -> None:
        super().__init__(io.BytesIO(stream), encoding="bytes")  # Python 2's strings: the content of its arrays
        self._where = where
        self._left = len(stream)
        self._names: dict[str, Callable[..., object]] = {
            "numpy.core.multiarray._reconstruct": _Array,
            "numpy._core.multiarray._reconstruct": _Array,
            "numpy.ndarray": _Array,
            "numpy.dtype": _Dtype,
            "_codecs.encode": self._encode,
        }

    def find_class(self, module: str, name: str, /) -> Callable[..., object]:
        found = self._names.get(f"{module}.{name}")
        if found is None:
            wanted = f"{module}.{name}"[:100]
            raise FileError(f"the file pickles '{wanted}'; porter runs no code from files", where=self._where, next=_NEXT)
        return found

    def _encode(self, text: str, encoding: str) -> bytes:
        """Decodes bytes as Python 3 writes them in protocol 2 (pickle.py, `save_bytes`), in total no more than the pickle holds."""
        self._left -= len(text)
        if encoding != "latin1" or self._left < 0:
            raise FileError("this pickle encodes more text than it holds, or not as bytes", where=self._where, next=_NEXT)
        return text.encode("latin1")


def _numbers(array: object, where: str) -> Array:
    if not isinstance(array, _Array) or not isinstance(array.dtype, _Dtype):
        raise FileError(f"expected arrays in the pickled list, got {type(array).__name__}", where=where, next=_NEXT)
    dtype, shape, data = array.dtype, array.shape, array.data
    if not re.fullmatch("f[248]|[iu][1248]|b1", dtype.code) or dtype.order not in ("<", ">", "|", "="):
        raise FileError(f"expected arrays of numbers, got one of '{dtype.order}{dtype.code}'"[:150], where=where, next=_NEXT)
    if not isinstance(shape, tuple) or not all(isinstance(axis, int) for axis in shape) or not isinstance(data, bytes):
        raise FileError("an array in the pickled list has no shape or no bytes", where=where, next=_NEXT)
    return make_array(data, np.dtype(dtype.order + dtype.code), shape, array.fortran is True, where)


def _text(value: object) -> str:
    """Python 2 has bytes where Python 3 has text. Other values are refused: a few nested tuples, as text, can fill any memory."""
    if not isinstance(value, bytes | str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value.decode("ascii") if isinstance(value, bytes) else value
