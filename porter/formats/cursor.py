"""Numbers and bytes of a file, one after the other. Each read raises ValueError where the file ends before
its end.
"""

from __future__ import annotations

import struct

import numpy as np

from porter.base.dtypes import Array


class Cursor:
    """A place in a file's bytes, whose numbers are little-endian."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def skip(self, count: int) -> int:
        """Skip bytes, and return where they began."""
        if not 0 <= count <= len(self.data) - self.position:
            raise ValueError("it is cut short or damaged")
        self.position += count
        return self.position - count

    def cut(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        start = self.skip(count)
        return self.data[start : self.position]

    def number(self, kind: str) -> int:
        """Return the next whole number, of a type as `struct` names it."""
        form = f"<{kind}"
        number: int = struct.unpack_from(form, self.data, self.skip(struct.calcsize(form)))[0]
        return number

    def array(self, kind: str, count: int) -> Array:
        """Return the next `count` numbers of a numpy type, without a copy."""
        dtype = np.dtype(kind).newbyteorder("<")
        return np.frombuffer(self.data, dtype, count, self.skip(count * dtype.itemsize))
