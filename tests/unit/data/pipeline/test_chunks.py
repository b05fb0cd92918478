"""The file of a chunk gives back what was written, or says that it cannot."""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.data.pipeline.chunks import Chunk, DamagedChunk, read_chunk, write_chunk
from tests.support.arrays import Array


def chunk(dtype: Any) -> Chunk:
    random = np.random.default_rng(0)
    photos: list[Array] = [
        random.integers(0, 256, (rows, columns, 3)).astype(dtype) for rows, columns in ((4, 5), (7, 3))
    ]
    return Chunk((photos[0], "the file is truncated", photos[1]), lasting=False)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_it_gives_back_pixels_reasons_and_whether_it_lasts(tmp_path: Path, dtype: type) -> None:
    write_chunk(tmp_path / "chunk", chunk(dtype))
    found = read_chunk(tmp_path / "chunk")
    assert found.photos[1] == "the file is truncated"
    assert not found.lasting
    for one, other in zip(found.photos[::2], chunk(dtype).photos[::2], strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def test_views_are_written_as_they_look(tmp_path: Path) -> None:
    pixels = np.arange(2 * 3 * 3, dtype=np.float32).reshape(2, 3, 3)
    write_chunk(tmp_path / "chunk", Chunk((pixels[:, ::-1], pixels.astype(">f4"))))
    assert [np.asarray(photo).tolist() for photo in read_chunk(tmp_path / "chunk").photos] == [
        pixels[:, ::-1].tolist(),
        pixels.tolist(),
    ]


def test_a_chunk_of_nothing_but_failures(tmp_path: Path) -> None:
    write_chunk(tmp_path / "chunk", Chunk(("why", "warum, für immer")))
    assert read_chunk(tmp_path / "chunk") == Chunk(("why", "warum, für immer"))


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "chunk"
    write_chunk(path, chunk(np.uint8))
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamagedChunk):
            read_chunk(path)


def test_every_cut_and_a_byte_too_many_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "chunk"
    write_chunk(path, chunk(np.uint8))
    whole = path.read_bytes()
    for content in [*(whole[:length] for length in range(len(whole))), whole + b"\0"]:
        path.write_bytes(content)
        with pytest.raises(DamagedChunk):
            read_chunk(path)


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b"[]",
        b'{"dtype": "object", "photos": [], "lasting": true}',
        b'{"dtype": "uint8", "photos": [[-1, 2]], "lasting": true}',
        b'{"dtype": "uint8", "photos": [[0, 2]], "lasting": true}',
        b'{"dtype": "uint8", "photos": [[%d, 2]], "lasting": true}' % (1 << 70),
        b'{"dtype": "uint8", "photos": [[1, 2, 3]], "lasting": true}',
        b'{"dtype": "uint8", "photos": 7, "lasting": true}',
    ],
    ids=lambda header: header[:45].decode(),
)
def test_a_header_that_somebody_wrote_is_no_chunk(tmp_path: Path, header: bytes) -> None:
    body = header + bytes(12)
    (tmp_path / "chunk").write_bytes(
        b"porter pixels\n" + struct.pack("<II", zlib.crc32(body), len(header)) + body
    )
    with pytest.raises(DamagedChunk):
        read_chunk(tmp_path / "chunk")
