"""The values of torch's tensors: views of a file's bytes."""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from porter.base.dtypes import Array, storage_type
from porter.base.errors import FileError
from porter.formats.torch.objects import Storage, TorchTensor

Content = bytes | mmap.mmap
_DENSE = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)


class ByteRange(NamedTuple):
    """The first byte of a storage in its file, and its number of bytes."""

    start: int
    length: int


class StorageValues:
    """The values of a file's tensors.

    Args:
        content: the file, in memory or mapped.
        range_of: where a storage is; None if it is not there.
        order: of the bytes in a number, `little` or `big`.

    Attributes:
        _copies: bytes that were copied, by where they are and the size of a number.
        _left: bytes that may still be copied, together no more than the file has.
    """

    def __init__(
        self, path: Path, content: Content, range_of: Callable[[Storage], ByteRange | None], order: str
    ) -> None:
        self._path, self._content, self._range_of, self._order = path, content, range_of, order
        self._bytes = np.frombuffer(content, np.uint8)
        self._copies: dict[tuple[ByteRange, int], Array] = {}
        self._left = len(content)

    def array(self, name: str, tensor: TorchTensor) -> Array:
        """Return the tensor's own memory as an array, bit for bit.

        Raises:
            FileError: it is no dense tensor of real numbers, or the file lacks some of its values.
        """
        where = str(self._path)
        if tensor.storage is None:
            raise FileError(
                f"tensor '{name}' is {tensor.kind}; porter reads dense tensors",
                where=where,
                next="save it dense, as float",
            )
        if tensor.dtype not in _DENSE:
            raise FileError(
                f"tensor '{name}' is torch.{tensor.dtype}; porter reads {', '.join(_DENSE)}",
                where=where,
                next="save it as float",
            )
        kind, shape = storage_type(tensor.dtype), tensor.shape  # type: ignore[arg-type]
        storage = self._range_in_file(name, tensor.storage)
        # The place of the tensor's last number in its storage.
        last = tensor.offset + sum(
            (size - 1) * stride for size, stride in zip(shape, tensor.strides, strict=True)
        )
        empty = 0 in shape
        # With strides of zero, a few bytes can declare any size.
        if not empty and max(last + 1, math.prod(shape)) * kind.itemsize > storage.length:
            message = f"tensor '{name}' declares {str(shape)[:100]}, and its data has fewer bytes"
            raise FileError(message, where=where, next="save it contiguous")
        try:
            if empty:
                return np.zeros(shape, kind)
            buffer, start = self._buffer(storage, kind.itemsize)
            strides = tuple(stride * kind.itemsize for stride in tensor.strides)
            return np.ndarray(shape, kind, buffer, start + tensor.offset * kind.itemsize, strides)
        except (ValueError, OverflowError):
            # An axis or a stride beyond numpy's numbers, of one value or none.
            raise self._damaged(f"tensor '{name}' declares {str(shape)[:100]}") from None

    def _range_in_file(self, name: str, storage: Storage) -> ByteRange:
        """Return where the values of a tensor's storage are. Raise FileError for a file that lacks some."""
        whole_storage = self._range_of(storage)
        size = storage.item_bytes
        if whole_storage is None:
            raise self._damaged(f"this file lacks values of tensor '{name}'")
        start, length = whole_storage
        if start + length > len(self._content) or length < storage.total * size:
            raise self._damaged(f"this file lacks values of tensor '{name}'")
        return ByteRange(start + storage.start * size, storage.count * size)

    def _buffer(self, span: ByteRange, item: int) -> tuple[Array, int]:
        """Return an array of bytes, and where in it the values of `span` begin. It is the file itself, or a
        copy if this machine needs another order of bytes or another place in memory.

        Args:
            item: bytes of a number.
        """
        if self._order == sys.byteorder and (self._bytes.ctypes.data + span.start) % item == 0:
            return self._bytes, span.start
        if (span, item) not in self._copies:
            self._left -= span.length
            if self._left < 0:
                raise self._damaged("the storages of this file overlap")
            self._copies[span, item] = self._copy(span, item)
        return self._copies[span, item], 0

    def _copy(self, span: ByteRange, item: int) -> Array:
        """Return a copy of the bytes of `span`, whose numbers have this machine's order, because no view of
        them is possible.
        """
        if isinstance(self._content, bytes):
            copied = self._bytes[span.start : span.start + span.length].copy()
        else:  # its pages would stay in memory beside the copy
            copied = np.fromfile(self._path, np.uint8, span.length, offset=span.start)
        if self._order != sys.byteorder:
            whole_numbers = copied[: span.length // item * item].view(f"u{item}")
            whole_numbers.byteswap(inplace=True)
        return copied

    def _damaged(self, message: str) -> FileError:
        return FileError(message, where=self._path, next="fetch it again")
