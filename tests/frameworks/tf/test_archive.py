from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import h5py
import numpy as np
import pytest

from porter.errors import FileError
from porter.frameworks import tf
from porter.frameworks.tf.archive import read_archive
from porter.plan import ANY, make_plan
from tests.frameworks.tf.models import every_op, random_tensors


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, graph = tmp_path_factory.mktemp("port"), every_op()
    tf.write(folder, make_plan(graph, ANY, tf.CAPABILITIES), random_tensors(graph), {}, "float32")
    return folder / "model.keras"


def _changed(port: Path, path: Path, change: Callable[[h5py.File], None], compression: int = 0) -> Path:
    """A copy of the port with its HDF5 file changed."""
    with ZipFile(port) as source, ZipFile(path, "w", compression) as copy:
        content = io.BytesIO(source.read("model.weights.h5"))
        with h5py.File(content, "r+") as weights:
            change(weights)
        copy.writestr("config.json", source.read("config.json"))
        copy.writestr("model.weights.h5", content.getvalue())
    return path


def _replace(weights: h5py.File, make: Callable[[h5py.Group], None]) -> None:
    group = weights["layers/conv2d/vars"]
    del group["0"]
    make(group)


def test_reads_layers_by_name_and_variables_by_role(port: Path) -> None:
    found = read_archive(port)
    tensors = random_tensors(every_op())
    assert np.array_equal(found["logits/kernel"].T, tensors["logits"]["kernel"].astype(np.float32))
    assert {name for name in found if name.startswith("a_norm")} == {"a_norm/beta", "a_norm/moving_mean", "a_norm/moving_variance"}


def test_what_can_hide_more_than_its_bytes_or_another_file_is_refused(port: Path, tmp_path: Path) -> None:
    huge = (1 << 20, 1 << 20)
    changes: list[Callable[[h5py.Group], None]] = [
        lambda group: group.create_dataset("0", huge, np.float32),  # declared and never written
        lambda group: group.create_dataset("0", (64, 64), np.float32, chunks=(8, 8), compression="gzip"),
        lambda group: group.create_dataset("0", (8,), np.float32, external=[("elsewhere.raw", 0, 32)]),
        lambda group: group.__setitem__("0", h5py.ExternalLink("elsewhere.h5", "/layers")),
        lambda group: group.__setitem__("0", h5py.SoftLink("/layers/conv2d/vars/1")),
        lambda group: group.create_group("0"),
        lambda group: None,
    ]
    for change in changes:
        path = _changed(port, tmp_path / "changed.keras", lambda weights, change=change: _replace(weights, change))  # type: ignore[misc]
        with pytest.raises(FileError):
            read_archive(path)
    with pytest.raises(FileError, match="compressed"):
        read_archive(_changed(port, tmp_path / "deflated.keras", lambda weights: None, ZIP_DEFLATED))


def test_other_files_are_refused_by_name(port: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    with pytest.raises(FileError, match=r"model\.keras: there is no such file"):
        read_archive(path)
    with pytest.raises(FileError):
        read_archive(tmp_path)
    for config in (
        "[]",
        "{",
        json.dumps({"config": {"layers": [3]}}),
        json.dumps({"config": {"layers": [{"class_name": "Dense"}]}}),
    ):
        with ZipFile(port) as source, ZipFile(path, "w") as copy:
            copy.writestr("config.json", config)
            copy.writestr("model.weights.h5", source.read("model.weights.h5"))
        with pytest.raises(FileError, match=r"no readable \.keras file"):
            read_archive(path)


def test_damage_is_refused_or_harmless(port: Path, tmp_path: Path) -> None:
    whole, path, rng = port.read_bytes(), tmp_path / "model.keras", random.Random(0)
    for _ in range(60):
        path.write_bytes(whole[: rng.randrange(len(whole))])
        with pytest.raises(FileError):
            read_archive(path)
    with ZipFile(port) as archive:
        config, weights = archive.read("config.json"), archive.read("model.weights.h5")
    refused = 0
    for _ in range(200):
        damaged = bytearray(weights)
        for _ in range(20):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with ZipFile(path, "w") as copy:
            copy.writestr("config.json", config)
            copy.writestr("model.weights.h5", bytes(damaged))
        try:
            read_archive(path)
        except FileError:
            refused += 1
    assert refused > 0
