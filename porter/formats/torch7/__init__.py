"""Torch7's files (.t7): Lua's objects with nn's modules, as torch.save wrote them in binary."""

from __future__ import annotations

import re

from porter.formats.format import Content, Format, reader

_NAME = rb"(?:nn|cudnn|cunn|fbcunn|nnx|inn|torch|tds)\."
_OBJECT = rb"\x04\0\0\0.{4}(?:\x03\0\0\0V [0-9])?.{4}" + _NAME
_TABLE = rb"\x03\0\0\0\x01\0\0\0.{2}\0\0[\x01\x02]\0\0\0"
_BINARY = re.compile(_OBJECT + b"|" + _TABLE, re.DOTALL)


def _is_binary(content: Content) -> bool:
    """Return whether a file begins with an object of a class, or with a table whose first key is a number or
    a text.
    """
    return _BINARY.match(content.head) is not None


FORMATS = (
    Format(
        "torch7",
        "a Torch7 model (.t7)",
        _is_binary,
        reader("porter.formats.torch7.read", "read_torch7"),
        engine="numpy",
        rows="porter.formats.torch7.rows",
    ),
)
