"""CRC-32C (Castagnoli), which TFRecord files have and zlib has not, some 100 MB a second in numpy.

A CRC is linear: that of a message is that of its parts, each moved on by what stands behind it. So the data is cut into pieces of
`_PIECE` bytes, whose sums are taken side by side, and joined in pairs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # files that are only looked at need no numpy
    import numpy as np
    from numpy.typing import NDArray

    Sums: TypeAlias = NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78
_PIECE = 64


def crc32c(data: bytes) -> int:
    """The checksum of some bytes."""
    if len(data) < _PIECE:
        state = 0xFFFFFFFF
        for byte in data:
            state = _table()[(state ^ byte) & 0xFF] ^ (state >> 8)
        return state ^ 0xFFFFFFFF
    import numpy as np

    pieces = 1 << max(0, (-(-len(data) // _PIECE) - 1).bit_length())
    padded = np.zeros(pieces * _PIECE, np.uint8)  # zeros in front change no sum that begins with 0
    padded[len(padded) - len(data) :] = np.frombuffer(data, np.uint8)
    padded[len(padded) - len(data) :][:4] ^= 0xFF  # the same as a sum that begins with ones
    columns = np.ascontiguousarray(padded.view("<u2").reshape(pieces, _PIECE // 2).T)
    table, sums = _by_pair(), np.zeros(pieces, np.uint32)
    for column in columns:
        sums = table[(sums & np.uint32(0xFFFF)) ^ column] ^ (sums >> np.uint32(16))
    doubled = 0
    while len(sums) > 1:
        sums = _moved(sums[::2], _moves(doubled)) ^ sums[1::2]
        doubled += 1
    return int(sums[0]) ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    """The checksum as TFRecord files store it."""
    found = crc32c(data)
    return ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(maxsize=1)
def _table() -> tuple[int, ...]:
    """What a byte makes of a sum, by its value."""
    values = list(range(256))
    for _ in range(8):
        values = [value >> 1 ^ _POLYNOMIAL * (value & 1) for value in values]
    return tuple(values)


@lru_cache(maxsize=1)
def _by_byte() -> Sums:
    import numpy as np

    return np.array(_table(), np.uint32)


@lru_cache(maxsize=1)
def _by_pair() -> Sums:
    """What two bytes make of a sum, by their value."""
    import numpy as np

    return _passed(_passed(np.arange(1 << 16, dtype=np.uint32)))


def _passed(sums: Sums) -> Sums:
    """Sums moved on by a byte of zeros."""
    import numpy as np

    moved: Sums = _by_byte()[sums & np.uint32(0xFF)] ^ (sums >> np.uint32(8))
    return moved


@lru_cache(maxsize=32)
def _moves(doubled: int) -> Sums:
    """What `_PIECE` * 2**doubled bytes of zeros make of sums, by each of their four bytes: 4 x 256."""
    import numpy as np

    if doubled:
        half = _moves(doubled - 1)
        return np.stack([_moved(row, half) for row in half])
    rows = np.arange(256, dtype=np.uint32) << (8 * np.arange(4, dtype=np.uint32))[:, None]
    for _ in range(_PIECE):
        rows = _passed(rows)
    return rows


def _moved(sums: Sums, moves: Sums) -> Sums:
    import numpy as np

    last = np.uint32(0xFF)
    first, second, third, fourth = (moves[place][(sums >> np.uint32(8 * place)) & last] for place in range(4))
    joined: Sums = first ^ second ^ third ^ fourth
    return joined
