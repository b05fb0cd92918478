"""CRC-32C against its published values and a table of bytes."""

import random

import pytest

from porter.files.crc32c import crc32c, masked_crc32c


def one_by_one(data: bytes) -> int:
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ 0x82F63B78 * (state & 1)
    return state ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_published_values(data: bytes, checksum: int) -> None:
    """RFC 3720, B.4."""
    assert crc32c(data) == checksum


def test_every_length_is_summed_as_byte_by_byte() -> None:
    data = random.Random(0).randbytes(150_001)
    folded = 8 * (5321 + 1747)  # so long messages are folded
    for length in [*range(200), 255, 256, 257, 1023, 1024, 1025, folded, folded + 1, folded + 9, len(data)]:
        assert crc32c(data[:length]) == one_by_one(data[:length]), length
    assert crc32c(bytes(2_000_000) + data) != crc32c(bytes(2_000_001) + data)


def test_the_mask_is_tensorflows() -> None:
    """The first bytes of any TFRecord file whose first record has 1 byte."""
    assert (
        masked_crc32c((1).to_bytes(8, "little"))
        == (((found := crc32c((1).to_bytes(8, "little"))) >> 15 | found << 17 & 0xFFFFFFFF) + 0xA282EAD8)
        & 0xFFFFFFFF
    )
