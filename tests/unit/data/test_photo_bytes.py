"""The bytes of photos, from files and from runs of bytes within them."""

import os
from pathlib import Path

import pytest

from porter.base.errors import FileError
from porter.data import photo_bytes
from porter.data.photo_bytes import read_bytes
from porter.data.photos import Bytes, Cell
from tests.support.data.layouts.making import table


def test_files_and_parts_of_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    assert read_bytes(Bytes(tmp_path / "a")) == b"0123456789"
    assert read_bytes(Bytes(tmp_path / "a", 4)) == b"456789"
    assert read_bytes(Bytes(tmp_path / "a", 4, 3)) == b"456"
    assert read_bytes(Bytes(tmp_path / "a", 10, 0)) == b""


def test_what_cannot_be_read_is_a_file_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    os.mkfifo(tmp_path / "pipe")
    for place, message in [
        (Bytes(tmp_path / "none"), "cannot be read: No such file"),
        (Bytes(tmp_path), "no regular file"),
        (Bytes(tmp_path / "pipe"), "no regular file"),
        (Bytes(tmp_path / "a", 4, 7), "7 bytes expected from byte 4 on, got 6"),
        (Bytes(tmp_path / "a", 11), "the photo has -1 bytes"),
        (Bytes(tmp_path / "a", 0, -1), "the photo has -1 bytes"),
        (Bytes(tmp_path / "a", 0, 1 << 40), "the photo has 1,099,511,627,776 bytes"),
    ]:
        with pytest.raises(FileError, match=message) as caught:
            read_bytes(place)
        assert caught.value.where == str(place.path)


def test_photos_out_of_bounds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photo_bytes, "MAX_BYTES", 5)
    (tmp_path / "a").write_bytes(b"012345")
    for place in (Bytes(tmp_path / "a"), Cell(table(tmp_path / "x.parquet", [(None, 1)]), 0, 0)):
        with pytest.raises(FileError, match="porter reads at most 5"):
            read_bytes(place)
