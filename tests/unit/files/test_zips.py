"""Zip archives that are damaged, however Python's reader puts it."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from porter.base.errors import FileError
from porter.files.archives import unpack
from porter.files.zips import open_zip
from porter.formats.reading import read_checkpoint

NAMES = ("config.json", "metadata.json", "model.weights.h5")


def archive(path: Path, compression: int) -> bytearray:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name in NAMES:
            file.writestr(name, bytes(range(64)))
    return bytearray(path.read_bytes())


@pytest.mark.parametrize(
    "read", [read_checkpoint, lambda path: unpack(path, NAMES[-1], path.parent / "unpacked")]
)
@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_codecs_are_refused_before_they_run(
    read: Callable[[Path], object], compression: int, tmp_path: Path
) -> None:
    (tmp_path / "unpacked").mkdir()
    archive(tmp_path / "a.keras", compression)
    with pytest.raises(
        FileError, match=r"'config\.json' in this (\.keras )?archive is neither stored nor deflated"
    ):
        read(tmp_path / "a.keras")


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_any_damage_is_an_error_of_the_file(compression: int, tmp_path: Path) -> None:
    data = archive(tmp_path / "a.zip", compression)
    (tmp_path / "out").mkdir()
    refused = 0
    for place in range(len(data)):
        (tmp_path / "a.zip").write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        try:
            with open_zip(tmp_path / "a.zip", "zip archive") as file:
                for name in file.namelist():
                    file.read(name)
            unpack(tmp_path / "a.zip", NAMES[0], tmp_path / "out")
        except FileError:
            refused += 1
    assert refused > len(data) // 2
