"""Weights in several files, with the index that transformers writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from porter.base.errors import FileError
from porter.formats.reading import read_with_digests
from porter.source.place import file_at
from tests.support.arrays import Array

ARRAYS: dict[str, Array] = {
    "a.weight": np.ones((2, 3), np.float32),
    "a.bias": np.zeros(2, np.float16),
    "b.weight": np.arange(4, dtype=np.float32),
}
MAP = {"a.weight": "model-1.safetensors", "a.bias": "model-1.safetensors", "b.weight": "model-2.safetensors"}


def folder_of(folder: Path, weight_map: Any = None) -> Path:
    folder.mkdir(exist_ok=True)
    for name in {*MAP.values()}:
        save_file({tensor: ARRAYS[tensor] for tensor in ARRAYS if MAP[tensor] == name}, folder / name)
    (folder / "config.json").write_text("{}")
    index = folder / "model.safetensors.index.json"
    index.write_text(
        json.dumps({"metadata": {"total_size": 44}, "weight_map": MAP if weight_map is None else weight_map})
    )
    return index


def test_all_shards_are_read(tmp_path: Path) -> None:
    index = folder_of(tmp_path)
    assert file_at(tmp_path).path == index
    found = read_with_digests(index)
    assert found.format == "safetensors" and found.tensors.keys() == ARRAYS.keys()
    assert all(np.array_equal(found.tensors[name], array) for name, array in ARRAYS.items())
    assert {path.name for path in found.digests} == {index.name, *MAP.values()}


def test_shards_of_torch_are_read(tmp_path: Path) -> None:
    held = {"a.weight": "pytorch_model-1.bin", "b.weight": "pytorch_model-2.bin"}
    for tensor, name in held.items():
        torch.save({tensor: torch.from_numpy(ARRAYS[tensor])}, tmp_path / name)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": held}))
    found = read_with_digests(file_at(tmp_path).path)
    assert (found.format, found.dialect) == ("torch", "torch") and found.tensors.keys() == held.keys()


@pytest.mark.parametrize("folder", ["abc", "abc/encoder"])
def test_the_cache_of_hugging_face_has_links(folder: str, tmp_path: Path) -> None:
    blobs, place = tmp_path / "blobs", tmp_path / "snapshots" / folder
    folder_of(blobs)
    place.mkdir(parents=True)
    for file in blobs.iterdir():
        (place / file.name).symlink_to(file)
    assert read_with_digests(file_at(place).path).tensors.keys() == ARRAYS.keys()
    (tmp_path / "snapshots").rename(tmp_path / "others")
    with pytest.raises(FileError, match="is a link to another folder"):
        read_with_digests(file_at(tmp_path / "others" / folder).path)


CONTRADICTORY = {
    "a tensor that no shard has": {**MAP, "c.weight": "model-2.safetensors"},
    "a tensor of another shard": {**MAP, "a.bias": "model-2.safetensors"},
    "a tensor too few": {"a.weight": "model-1.safetensors", "b.weight": "model-2.safetensors"},
    "a shard that is not there": {**MAP, "b.weight": "model-3.safetensors"},
    "a path out of the folder": {**MAP, "b.weight": "../outside.safetensors"},
    "an absolute path": {**MAP, "b.weight": "/etc/passwd"},
    "the index itself": {**MAP, "b.weight": "model.safetensors.index.json"},
    "a name that no file can have": {**MAP, "b.weight": "a\0b"},
    "too many shards": {f"{number}.weight": f"{number}.safetensors" for number in range(1025)},
    "a list": [],
    "a number": {**MAP, "b.weight": 7},
    "nothing": {},
}


@pytest.mark.parametrize("case", CONTRADICTORY)
def test_what_index_and_shards_disagree_about_is_one_error(case: str, tmp_path: Path) -> None:
    save_file({"b.weight": ARRAYS["b.weight"]}, tmp_path / "outside.safetensors")
    with pytest.raises(FileError) as refused:
        read_with_digests(folder_of(tmp_path / "folder", CONTRADICTORY[case]))
    assert refused.value.next == "fetch the folder again, whole"


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    index = folder_of(tmp_path / "folder")
    (index.parent / "model-2.safetensors").rename(tmp_path / "outside.safetensors")
    (index.parent / "model-2.safetensors").symlink_to(tmp_path / "outside.safetensors")
    with pytest.raises(FileError, match="a link to another folder"):
        read_with_digests(index)
