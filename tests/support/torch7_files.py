"""Torch7's files as torch.save writes them in binary: Lua's numbers, texts, tables and objects."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

KINDS = {
    "float32": "Float",
    "float64": "Double",
    "int64": "Long",
    "int32": "Int",
    "uint8": "Byte",
    "float16": "Half",
}


class Sizes(list[int]):
    """A storage of whole numbers, such as the sizes of a View."""


class Module:
    """An object of nn's."""

    def __init__(self, kind: str, *modules: Any, **fields: Any) -> None:
        self.kind = kind if "." in kind else f"nn.{kind}"
        self.fields = {**fields, "train": False, **({"modules": list(modules)} if modules else {})}


def write_torch7(path: Path, value: Any, width: int = 8) -> Path:
    """`width`: the bytes of a long of the machine that wrote it."""
    path.write_bytes(_Writer(width).written(value))
    return path


class _Writer:
    def __init__(self, width: int) -> None:
        self.width = width
        self.known: dict[int, tuple[int, Any]] = {}

    def written(self, value: Any) -> bytes:
        if value is None:
            return _int(0)
        if isinstance(value, bool):
            return _int(5) + _int(value)
        if isinstance(value, int | float):
            return _int(1) + struct.pack("<d", value)
        if isinstance(value, str):
            return _int(2) + _text(value)
        kind = 3 if isinstance(value, dict | list) and not isinstance(value, Sizes) else 4
        if id(value) in self.known:
            return _int(kind) + _int(self.known[id(value)][0])
        number = len(self.known) + 1
        self.known[id(value)] = (number, value)
        head = _int(kind) + _int(number)
        if kind == 3:
            pairs = dict(enumerate(value, 1)) if isinstance(value, list) else value
            return (
                head
                + _int(len(pairs))
                + b"".join(self.written(key) + self.written(each) for key, each in pairs.items())
            )
        if isinstance(value, Module):
            return head + _text("V 1") + _text(value.kind) + self.written(value.fields)
        if isinstance(value, Sizes):
            return head + _text("V 1") + _text("torch.LongStorage") + self.longs(len(value), *value)
        name = KINDS[str(value.dtype)]
        strides = [step // value.itemsize for step in value.strides]
        storage = self.known[id(value) + 1] = (len(self.known) + 1, value)
        stored = (
            _int(4)
            + _int(storage[0])
            + _text("V 1")
            + _text(f"torch.{name}Storage")
            + self.longs(value.size)
            + value.tobytes()
        )
        shape = _int(value.ndim) + self.longs(*value.shape) + self.longs(*strides)
        return head + _text("V 1") + _text(f"torch.{name}Tensor") + shape + self.longs(1) + stored

    def longs(self, *numbers: int) -> bytes:
        return np.asarray(numbers, f"<i{self.width}").tobytes()


def _int(number: int) -> bytes:
    return struct.pack("<i", number)


def _text(text: str) -> bytes:
    return _int(len(text)) + text.encode()
