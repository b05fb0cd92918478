"""CRC32C (Castagnoli), which TensorFlow stores of every record, block and tensor; Python's `zlib` has another
polynomial.

A long message is folded first, so that 100 MB take some 40 ms. The polynomial divides x^5321 + x^3574 +
x^2491 + 1, and so the same in x^64: a word of eight bytes may be added, by exclusive or, to the words 1747,
2830 and 5321 behind it, and forgotten.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # files that are only looked at need no numpy
    import numpy as np
    from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
"""The polynomial of CRC-32C, whose highest power is the lowest bit."""
_ONES = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8
"""TensorFlow's kMaskDelta."""
_WORD = 8
_HOPS = (1747, 2830, 5321)
_STEP, _WINDOW = _HOPS[0], _HOPS[-1]
_MOST_STEPS = 64
_ROW = 256
"""Bytes that are looked up at once."""


def masked_crc32c(data: bytes | memoryview) -> int:
    """Compute the checksum of `data` in the form in which TensorFlow stores it (tsl/lib/hash/crc32c.h)."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _ONES


def crc32c(data: bytes | memoryview) -> int:
    """Return the CRC-32C checksum of `data`, computed by rows of `_ROW` bytes; short data byte by byte."""
    if len(data) < _ROW:
        return _advance_by_bytes(_ONES, bytes(data)) ^ _ONES
    import numpy as np

    message, state = np.frombuffer(data, np.uint8), _ONES
    if len(message) > _WORD * (_WINDOW + _STEP):
        # The fold has taken in the state of ones.
        message, state = _fold(message), 0
    table, (first, second, third, fourth) = _row_tables()
    # the bytes before the first whole row
    odd = len(message) % _ROW
    state = _advance_by_bytes(state, message[:odd].tobytes())
    rows = message[odd:].reshape(-1, _ROW)
    for row in np.bitwise_xor.reduce(table[np.arange(_ROW), rows], axis=1).tolist():
        state = (
            first[state & 255]
            ^ second[state >> 8 & 255]
            ^ third[state >> 16 & 255]
            ^ fourth[state >> 24]
            ^ row
        )
    return state ^ _ONES


def _advance_by_bytes(state: int, data: bytes) -> int:
    """Return the state of the checksum, 32 bits, after more data, byte by byte."""
    table = _byte_table()
    for byte in data:
        state = table[(state ^ byte) & 255] ^ state >> 8
    return state


def _fold(message: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a short message with the checksum of a long one: of at most `_WINDOW` and `_STEP` words, from
    the state 0 it leads to the state that `message` leads to from the state of ones.
    """
    import numpy as np

    carried = np.zeros(_WINDOW, np.uint64)  # what the words before leave in the next `_WINDOW` ones
    carried[:1] = _ONES
    while (steps := min(_MOST_STEPS, (len(message) // _WORD - _WINDOW) // _STEP)) > 0:
        words = np.zeros(steps * _STEP + _WINDOW, np.uint64)
        words[: steps * _STEP].view(np.uint8)[:] = message[: _WORD * steps * _STEP]
        words[:_WINDOW] ^= carried
        # The words of a step are added to others behind them: never to words of the same step.
        for start in range(0, steps * _STEP, _STEP):
            for hop in _HOPS:
                words[start + hop : start + hop + _STEP] ^= words[start : start + _STEP]
        carried, message = words[steps * _STEP :], message[_WORD * steps * _STEP :]
    rest = message.copy()
    rest[: _WORD * _WINDOW] ^= carried.view(np.uint8)
    return rest


@cache
def _byte_table() -> tuple[int, ...]:
    """Return, for each value of a byte, the state of the checksum that it leads to from the state 0."""
    values = list(range(256))
    for _ in range(8):
        values = [value >> 1 ^ _POLYNOMIAL * (value & 1) for value in values]
    return tuple(values)


@cache
def _row_tables() -> tuple[NDArray[np.uint32], tuple[list[int], ...]]:
    """Return, for each place in a row and each value of a byte there, what it adds to the state of the
    checksum at the row's end: as an array _ROW×256, and as lists for the first four places, into which the
    state before the row is added.
    """
    import numpy as np

    values = np.array(_byte_table(), np.uint32)
    rows = [values]
    for _ in range(_ROW - 1):
        # one place further from the end: the state after one more zero byte
        rows.append(values[rows[-1] & 255] ^ rows[-1] >> 8)
    table = np.stack(rows[::-1])
    return table, tuple(table[index].tolist() for index in range(4))
