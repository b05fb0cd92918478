"""The safetensors format, which every framework shares: a JSON header and the bytes."""

from __future__ import annotations

import struct

from porter.formats.format import Content, Format, reader

_MOST_HEADER = 100_000_000
"""Safetensors' own limit on its header."""


def _is_safetensors(content: Content) -> bool:
    """Return whether a file has eight bytes of a header's length, then a JSON object. The reader checks the
    length.
    """
    head = content.head
    return len(head) > 8 and head[8:9] == b"{" and 2 <= struct.unpack("<Q", head[:8])[0] <= _MOST_HEADER


FORMATS = (
    Format(
        "safetensors",
        "a .safetensors",
        _is_safetensors,
        reader("porter.formats.safetensors.tensors", "read_safetensors"),
        parametrised=True,
    ),
)
