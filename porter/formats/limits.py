"""How much memory a weights file may ask for."""

from __future__ import annotations

_MOST_EXPANSION = 64
_NEVER_REFUSED = 64 << 20


def most_bytes(file_size: int) -> int:
    """Bytes of tensors that a file of `file_size` bytes may unpack or alias to.

    Deflate expands zeros, and so a bomb, 1032 times; a pruned network stays far below 64 times, and trained weights below 2.
    """
    return max(_NEVER_REFUSED, _MOST_EXPANSION * file_size)
