"""Folders of orbax, as its checkpointers write them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from porter.base.errors import FileError
from porter.formats.reading import read_checkpoint

ocp = pytest.importorskip("orbax.checkpoint")

KERNEL, HALF, MEAN = (
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.full(2, 0.5, ml_dtypes.bfloat16),
    np.ones(3, np.float32),
)
STATE = {
    "params": {"conv": {"kernel": KERNEL, "half": HALF}},
    "batch_stats": {"norm": {"mean": MEAN}},
    "step": 7,
    "name": "net",
    "opt_state": ({"mu": MEAN}, None),
}
LAYOUTS: Mapping[str, Mapping[str, bool]] = {
    "ocdbt": {"use_ocdbt": True},
    "zarr": {"use_ocdbt": False},
    "zarr3": {"use_ocdbt": True, "use_zarr3": True},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("orbax")
    for name, layout in LAYOUTS.items():
        ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**layout)).save(folder / name, STATE)
    return folder


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_and_numbers_are_read(layout: str, saved: Path) -> None:
    found = read_checkpoint(saved / layout)
    assert found.format == "orbax" and found.dialect == "jax" and saved / layout / "_METADATA" in found.files
    assert {*found.tensors} == {"params/conv/kernel", "params/conv/half", "batch_stats/norm/mean", "step"}
    np.testing.assert_array_equal(found.tensors["params/conv/kernel"], KERNEL)
    assert found.tensors["params/conv/half"].dtype == ml_dtypes.bfloat16 and found.tensors["step"].item() == 7
    assert found.notes == ("ignored the optimiser's state", "ignored name, which are not numbers")


def test_steps_of_a_manager(tmp_path: Path) -> None:
    from flax import nnx

    state = nnx.state(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        for step in (1, 2):
            manager.save(step, args=ocp.args.StandardSave(state))
    assert {*read_checkpoint(tmp_path / "run" / "2").tensors} == {"bias", "kernel"}
    with pytest.raises(FileError, match="several trees of arrays: 1/default, 2/default"):
        read_checkpoint(tmp_path / "run")


def older(folder: Path, tree: Mapping[str, Any]) -> Path:
    """A folder as orbax 0.2 wrote it: `checkpoint` has the tree, with the names of arrays in their places."""
    from flax import serialization

    for file in folder.glob("_*"):
        file.unlink()
    (folder / "checkpoint").write_bytes(serialization.msgpack_serialize(tree))
    return folder


def place(name: str) -> str:
    return f"PLACEHOLDER://{name}"


OLDER = {
    "params": {"conv": {"kernel": place("params.conv.kernel"), "half": place("params.conv.half")}},
    "batch_stats": {"norm": {"mean": MEAN}},
    "step": 7,
    "name": "net",
    "opt_state": {"0": {"mu": place("opt_state.0.mu")}, "1": None},
}


@pytest.mark.parametrize("layout", ["ocdbt", "zarr"])
@pytest.mark.parametrize("within", ["", "12/default"])
def test_a_folder_without_metadata_has_its_tree_in_a_file(
    layout: str, within: str, saved: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "older" / within
    shutil.copytree(saved / layout, folder)
    older(folder, OLDER)
    found, today = read_checkpoint(tmp_path / "older"), read_checkpoint(saved / layout)
    assert found.tensors.keys() == today.tensors.keys() and found.notes == today.notes
    for name, array in today.tensors.items():
        np.testing.assert_array_equal(found.tensors[name], array)


def test_the_file_of_the_tree_is_not_the_folder(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "zarr", tmp_path / "older")
    with pytest.raises(FileError, match="beside it in a folder of orbax") as refused:
        read_checkpoint(older(tmp_path / "older", OLDER) / "checkpoint")
    assert refused.value.next == f"name the folder {tmp_path / 'older'}"


@pytest.mark.parametrize("layout", ["ocdbt", "zarr"])
def test_arrays_without_a_tree_are_refused(layout: str, saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "arrays"
    shutil.copytree(saved / layout, folder)
    older(folder, {}).joinpath("checkpoint").unlink()
    with pytest.raises(FileError, match="without the structure of its arrays") as refused:
        read_checkpoint(folder)
    assert refused.value.next and "_METADATA" in refused.value.next


@pytest.mark.parametrize(
    "tree",
    [
        {"params": place("../zarr/step")},
        {"params": place("..")},
        {"params": place("")},
        {"params": place("params.other")},
    ],
)
def test_a_tree_cannot_name_what_is_not_in_its_folder(
    tree: Mapping[str, Any], saved: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "hostile"
    shutil.copytree(saved / "zarr", folder)
    with pytest.raises(FileError, match="this folder of orbax is damaged") as refused:
        read_checkpoint(older(folder, tree))
    assert refused.value.next and len(str(refused.value)) < 900


def _larger(folder: Path) -> None:
    path = folder / "params.conv.kernel" / ".zarray"
    stated = json.loads(path.read_text())
    path.write_text(json.dumps({**stated, "shape": [1 << 20, 1 << 20], "chunks": [1 << 20, 1 << 20]}))


def _named(*keys: Any) -> Any:
    def change(folder: Path) -> None:
        path = folder / "_METADATA"
        stated = json.loads(path.read_text())
        stated["tree_metadata"]["('step',)"]["key_metadata"] = [{"key": key, "key_type": 2} for key in keys]
        path.write_text(json.dumps(stated))

    return change


HOSTILE = {
    "an array of a terabyte": _larger,
    "a place outside": _named("../zarr/step"),
    "a place above": _named("", "", ""),
    "a number for a name": _named(3),
    "no name": _named(),
    "an array that is not there": _named("other"),
    "no tree": lambda folder: (folder / "_METADATA").write_text("[]"),
    "a cut array": lambda folder: (folder / "params.conv.kernel" / "0.0").write_bytes(b"\x28\xb5\x2f\xfd"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_folders_are_one_error(name: str, saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "hostile"
    shutil.copytree(saved / "zarr", folder)
    HOSTILE[name](folder)
    with pytest.raises(FileError, match="this folder of orbax is damaged") as refused:
        read_checkpoint(folder)
    assert refused.value.next and len(str(refused.value)) < 900
