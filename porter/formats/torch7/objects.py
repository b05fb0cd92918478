"""Torch7's serialisation: Lua's objects, in the byte order of x86. What a file calls functions is passed
over, and never run.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from porter.base.dtypes import Array
from porter.formats.cursor import Cursor
from porter.formats.limits import most_bytes

_NIL, _NUMBER, _TEXT, _TABLE, _OBJECT, _BOOLEAN, _FUNCTION, *_FUNCTIONS = range(9)
"""Torch7's type numbers. The last two are of functions that may be read again by their number."""
_STORAGE_TYPES = {
    "Byte": "u1",
    "Char": "i1",
    "Short": "i2",
    "Int": "i4",
    "Long": "",
    "Half": "f2",
    "Float": "f4",
    "Double": "f8",
    "": "f4",
}
"""The types of storages, also on CUDA, where one without a kind has floats."""
_MOST_OBJECTS = 1 << 19
"""Far more than models have: Python takes some 200 bytes for each, and a file a tenth of that."""
_MOST_AXES = 16

Table = dict[Any, Any]


@dataclass(eq=False)
class LuaObject:
    """An object of a class; `kind` is its name, such as nn.ReLU."""

    kind: str
    fields: Table = field(default_factory=dict)


def read_objects(data: bytes) -> Any:
    """Return the object of a file: a number, a text, a table, an array or a LuaObject.

    Raises:
        ValueError: it is damaged. RecursionError: it is nested too deeply.
    """
    try:
        return _ObjectReader(data, 8).read()
    except (ValueError, RecursionError):
        with suppress(ValueError, RecursionError):
            return _ObjectReader(data, 4).read()  # of a machine whose numbers were shorter
        raise


def output_names(count: int) -> list[str]:
    """Return the names of a model's own values: in Lua its `output`, which is a table if there are
    several.
    """
    return ["output"] if count == 1 else [f"output {number} of {count}" for number in range(1, count + 1)]


class _ObjectReader(Cursor):
    """Reads the objects of a file one after the other; `width` is the bytes of the machine's long
    integers.
    """

    def __init__(self, data: bytes, width: int) -> None:
        super().__init__(data)
        self.long = f"i{width}"
        self.left = _MOST_OBJECTS
        self.budget = most_bytes(len(data))
        self.known: dict[int, Any] = {}

    def read(self) -> Any:
        """Return the next object: a number, a text, a boolean, a table, an array or a LuaObject; None for nil
        and for a function. One that was read before is returned again.
        """
        kind = self.number("i")
        self.left -= 1
        if self.left < 0:
            raise ValueError(f"it has more than {_MOST_OBJECTS} objects")
        if kind in (_TABLE, _OBJECT, *_FUNCTIONS):
            number = self.number("i")
            if number not in self.known:
                # It is None until it is filled, because it may refer to itself.
                self.known[number] = None
                self._fill(kind, number)
            return self.known[number]
        if kind not in (_NIL, _NUMBER, _TEXT, _BOOLEAN, _FUNCTION):
            raise ValueError(f"Lua has no type {kind}")
        if kind == _NUMBER:
            return self.array("f8", 1).item()
        if kind == _BOOLEAN:
            return self.number("i") == 1
        if kind == _TEXT:
            return self._text()
        if kind == _FUNCTION:
            self._function()
        return None

    def _fill(self, kind: int, number: int) -> None:
        """Read a table, a function or an object of a class, and keep it under its number: it may be read
        again within itself.
        """
        if kind == _TABLE:
            self.known[number] = table = Table()
            self._fill_table(table)
        elif kind in _FUNCTIONS:
            self._function()
        else:
            name = self._text()
            if name.startswith("V "):  # a version, before the class's name
                name = self._text()
            class_name = name.rpartition(".")[2]
            if name.startswith("torch.") and class_name.endswith("Storage"):
                self.known[number] = self._storage(class_name.removesuffix("Storage"))
            elif name.startswith("torch.") and class_name.endswith("Tensor"):
                self.known[number] = self._tensor()
            else:
                self.known[number] = thing = LuaObject(name)
                fields = self.read()
                thing.fields = fields if isinstance(fields, dict) else {}

    def _fill_table(self, table: Table) -> None:
        """Read the pairs of a table. Keys that are objects are left out with their values."""
        for _ in range(self.number("I")):
            key = self.read()
            value = self.read()
            if isinstance(key, str | float | bool):
                table[key] = value

    def _function(self) -> None:
        """Skip a function: its code and its upvalues."""
        self._text()
        self.read()

    def _storage(self, kind: str) -> Array:
        """Return the next storage, an array of one axis. Raise ValueError for a type that porter does not
        read.
        """
        dtype = _STORAGE_TYPES.get(kind.removeprefix("Cuda"))
        # Only CUDA's storage may be without a kind.
        if dtype is None or (not kind and dtype == "f4"):
            raise ValueError(f"a storage of {kind or 'no kind'}, which porter does not read")
        # A long integer has the width of the machine's.
        return self.array(dtype or self.long, self._long())

    def _tensor(self) -> Array:
        """Return the next tensor, a view of its storage; an empty array where it has none. Raise ValueError
        if it reaches beyond the storage.
        """
        axes = self.number("i")
        if not 0 <= axes <= _MOST_AXES:
            raise ValueError(f"a tensor of {axes} axes")
        sizes, strides = (self.array(self.long, axes).tolist() for _ in range(2))
        # Lua counts from 1.
        first = self._long() - 1
        storage = self.read()
        if storage is None or not axes:
            return np.zeros(0, np.float32)
        is_storage = isinstance(storage, np.ndarray) and storage.ndim == 1
        if not is_storage or min((*sizes, *strides), default=0) < 0 or first < 0:
            raise ValueError("a tensor without a storage")
        count = math.prod(sizes)
        self.budget -= count * storage.itemsize
        if self.budget < 0:
            raise ValueError("its tensors have more numbers than it can hold")
        last = first + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        if count and last >= storage.size:
            raise ValueError("a tensor reaches beyond its storage")
        if not count:
            return np.zeros(sizes, storage.dtype)
        steps = [stride * storage.itemsize for stride in strides]
        return np.lib.stride_tricks.as_strided(storage[first:], sizes, steps, writeable=False)

    def _long(self) -> int:
        """Return a number of the width that the machine's long had."""
        return int(self.array(self.long, 1).item())

    def _text(self) -> str:
        return self.cut(self.number("i")).decode("latin-1")
