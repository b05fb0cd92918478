from __future__ import annotations

import json
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from porter.files import digest
from porter.formats.reading import read_checkpoint
from porter.formats.recognition import recognise
from porter.formats.safetensors.tensors import write_safetensors
from tests.support.arrays import Array
from tests.support.refusals import unreadable

VALUES = {
    "b.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a.bias": np.array([1.5, np.nan], np.float32),
}


def write(path: Path, header: str, data: bytes = bytes(8)) -> Path:
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + data)
    return path


def test_every_tensor(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    save_file(VALUES, path, metadata={"format": "pt"})
    found = read_checkpoint(path)
    assert (found.format, found.dialect, found.notes) == ("safetensors", None, ())
    assert found.tensors.keys() == VALUES.keys()
    for name, value in VALUES.items():
        assert found.tensors[name].tobytes() == value.tobytes() and found.tensors[name].shape == value.shape


@pytest.mark.parametrize("padding", range(4))
def test_tensors_are_pages_of_the_file_where_these_are_aligned(tmp_path: Path, padding: int) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}) + " " * padding
    path = write(tmp_path / "a.safetensors", header, np.array([1, 2], np.float32).tobytes())
    found, whole = read_checkpoint(path).tensors["a"], path.read_bytes()
    assert found.tolist() == [1, 2] and found.flags.aligned and found.flags.owndata is False
    found[0] = 3
    assert path.read_bytes() == whole, "the file is not written to"


def test_every_bit_of_half_and_bfloat16(tmp_path: Path) -> None:
    path, patterns = tmp_path / "a.safetensors", np.arange(1 << 16, dtype=np.uint16)
    save_file({"half": patterns.view(np.float16), "brain": patterns.view(ml_dtypes.bfloat16)}, path)
    found = read_checkpoint(path).tensors
    assert found["half"].dtype == np.float16 and found["brain"].dtype == ml_dtypes.bfloat16
    for array in found.values():
        np.testing.assert_array_equal(array.view(np.uint16), patterns)


def test_a_file_has_the_packages_bytes_and_the_digest_is_its_own(tmp_path: Path) -> None:
    types = [
        np.dtype(name) for name in ("int64", "float64", "float32", "bfloat16", "float16", "uint8", "bool")
    ]
    arrays: dict[str, Array] = {
        f"{place}.{kind.name}": np.arange(6).astype(kind).reshape(2, 3)
        for place in ("gewöhnlich", "a")
        for kind in types
    }
    arrays |= {
        "turned": np.arange(24, dtype=np.float32).reshape(2, 3, 4).T,
        "scalar": np.array(7),
        "empty": np.zeros((0, 3)),
    }
    large = np.random.default_rng(0).standard_normal((700, 900), np.float32)  # written in several pieces
    arrays |= {"large": large.T, "row": large.reshape(1, -1)}
    ours, packages = tmp_path / "ours.safetensors", tmp_path / "packages.safetensors"
    sha256 = write_safetensors(ours, arrays)
    save_file({name: array.copy(order="C") for name, array in arrays.items()}, packages)
    assert ours.read_bytes() == packages.read_bytes() and sha256 == digest(ours)


def test_tensors_of_a_file_can_be_written_over_it(tmp_path: Path) -> None:
    """A map of a file that is cut short ends the process."""
    path = tmp_path / "a.safetensors"
    large = {"a": np.arange(1 << 20, dtype=np.float32)}
    write_safetensors(path, large)
    write_safetensors(path, read_checkpoint(path).tensors)
    assert np.array_equal(read_checkpoint(path).tensors["a"], large["a"])


def test_cut_short(tmp_path: Path) -> None:
    whole, cut = tmp_path / "a.safetensors", tmp_path / "cut.safetensors"
    save_file(VALUES, whole)
    data = whole.read_bytes()
    for length in range(1, len(data)):
        cut.write_bytes(data[:length])
        unreadable(cut)
    cut.write_bytes(data + b"\0")
    unreadable(cut, "damaged")


@pytest.mark.parametrize("length", [9, 50, 120])
def test_cut_short_is_still_called_safetensors(tmp_path: Path, length: int) -> None:
    whole = tmp_path / "a.safetensors"
    save_file(VALUES, whole)
    whole.write_bytes(whole.read_bytes()[:length])
    assert recognise(whole).name == "safetensors"


@pytest.mark.parametrize(
    "entries",
    [
        {"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 1 << 40]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}},
        {"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}},
        {"a": {}},
        {"a": 5},
        {name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for name in "ab"},
    ],
)
def test_headers_that_do_not_fit_the_file(tmp_path: Path, entries: dict[str, object]) -> None:
    unreadable(write(tmp_path / "a.safetensors", json.dumps(entries)), "damaged")


def test_a_name_twice(tmp_path: Path) -> None:
    first, second = (
        json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": place}})[1:-1]
        for place in ([0, 4], [4, 8])
    )
    unreadable(write(tmp_path / "a.safetensors", "{" + first + "," + second + "}"), "damaged")


def test_eight_bit_floats(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", '{"w":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}}')
    unreadable(path, "'w'", "F8_E4M3")


def test_no_tensors(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({}, path)
    unreadable(path, "no tensors")
