"""Arrays of structs in MATLAB files, well-formed and broken."""

from pathlib import Path

import numpy as np
import pytest

from porter.data.layouts import matfile
from porter.data.layouts.matfile import read_structs
from porter.errors import FileError
from tests.data.layouts.making import mat

ROWS: list[dict[str, int | str]] = [
    {"id": 1, "wnid": "n02119789", "words": "kit fox, Vulpes macrotis"},
    {"id": 300, "wnid": "n02100735", "words": "x"},
    {"id": 0, "wnid": "n02110185", "words": ""},
]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("packed", [True, False])
def test_the_wanted_fields_of_every_struct_are_read(order: str, packed: bool, tmp_path: Path) -> None:
    (tmp_path / "meta.mat").write_bytes(mat("synsets", ROWS, order, packed))
    assert read_structs(tmp_path / "meta.mat", "synsets", ["id", "wnid"]) == [
        {"id": row["id"], "wnid": row["wnid"]} for row in ROWS
    ]


@pytest.mark.parametrize("packed", [True, False])
def test_files_of_scipy_are_read_as_scipy_reads_them(packed: bool, tmp_path: Path) -> None:
    io = pytest.importorskip("scipy.io")
    table = np.array(
        [(7, "n1", [1, 2, 3], 0.5, "größer"), (-70_000, "n22", [], 2.0, "")],
        dtype=[("id", "O"), ("wnid", "O"), ("children", "O"), ("share", "O"), ("words", "O")],
    )
    io.savemat(tmp_path / "meta.mat", {"other": np.eye(3), "synsets": table}, do_compression=packed)
    assert read_structs(tmp_path / "meta.mat", "synsets", ["id", "wnid", "children", "share", "words"]) == [
        {"id": 7, "wnid": "n1", "children": None, "share": 0.5, "words": "größer"},
        {"id": -70_000, "wnid": "n22", "children": None, "share": 2.0, "words": ""},
    ]


def test_every_truncation_is_a_file_error(tmp_path: Path) -> None:
    for packed in (True, False):
        whole = mat("synsets", ROWS, packed=packed)
        for length in range(0, len(whole) - 8, 7):
            (tmp_path / "cut.mat").write_bytes(whole[:length])
            with pytest.raises(FileError):
                read_structs(tmp_path / "cut.mat", "synsets", ["id", "wnid"])


def test_damage_gives_a_file_error_or_values(tmp_path: Path) -> None:
    whole = mat("synsets", ROWS, packed=False)
    random = np.random.default_rng(0)
    for position in range(124, len(whole), 2):
        damaged = bytearray(whole)
        damaged[position] ^= int(random.integers(1, 256))
        (tmp_path / "cut.mat").write_bytes(damaged)
        try:
            rows = read_structs(tmp_path / "cut.mat", "synsets", ["id", "wnid"])
        except FileError:
            continue
        assert all(isinstance(value, int | float | str | None) for row in rows for value in row.values())


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meta.mat").write_bytes(mat("synsets", [{"id": 1, "wnid": "x" * 5000}]))
    monkeypatch.setattr(matfile, "_MAX_UNPACKED", 5000)
    with pytest.raises(FileError, match="more than 5,000 bytes when unpacked"):
        read_structs(tmp_path / "meta.mat", "synsets", ["id"])
    monkeypatch.setattr(matfile, "_MAX_FILE", 50)
    with pytest.raises(FileError, match="at most 50 bytes"):
        read_structs(tmp_path / "meta.mat", "synsets", ["id"])


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "meta.mat").write_bytes(mat("synsets", ROWS))
    with pytest.raises(FileError, match="no struct array 'others'"):
        read_structs(tmp_path / "meta.mat", "others", ["id"])
    with pytest.raises(FileError, match="no field gloss"):
        read_structs(tmp_path / "meta.mat", "synsets", ["id", "gloss"])
    (tmp_path / "meta.mat").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))  # MATLAB 7.3
    with pytest.raises(FileError, match="no such header"):
        read_structs(tmp_path / "meta.mat", "synsets", ["id"])
