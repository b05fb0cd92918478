"""Attacks on programs that load models, as they were published: none runs code, reads another file or takes
memory without bounds. Each is a file that a stranger could give, and ends in one error or in a port.
"""

from __future__ import annotations

import io
import json
import marshal
import os
import pickle
import resource
import tarfile
import zipfile
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import porter
from porter.base.errors import PorterError
from porter.files.archives import unpack
from porter.formats.reading import read_checkpoint

keras = pytest.importorskip("keras")

SECRET = np.arange(10.0, 27.0, dtype=np.float32)
"""What a file beside the attack holds, which is nobody's model."""
MARK = "ran"
"""The file that code in an attack makes."""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small network as .keras and .h5."""
    folder = tmp_path_factory.mktemp("network")
    image = keras.Input((6, 6, 3))
    value = keras.layers.Conv2D(2, 3, name="conv")(image)
    model = keras.Model(image, keras.layers.GlobalAveragePooling2D(name="pool")(value))
    model.save(folder / "model.keras")
    model.save(folder / "model.h5")
    return folder


def with_layer(source: Path, target: Path, layer: dict[str, Any]) -> Path:
    """A model whose pool's class and settings are another layer's."""

    def changed(text: str) -> str:
        config = json.loads(text)
        (pool,) = (each for each in config["config"]["layers"] if each["config"]["name"] == "pool")
        pool["config"] = {"name": "pool", **layer["config"]}
        pool |= {"module": layer["module"], "class_name": layer["class_name"], "registered_name": None}
        return json.dumps(config)

    if source.suffix == ".h5":
        target.write_bytes(source.read_bytes())
        with h5py.File(target, "r+") as file:
            file.attrs["model_config"] = changed(file.attrs["model_config"])
        return target
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, changed(content.decode()) if name == "config.json" else content)
    return target


def code() -> list[Any]:
    """A Lambda's function as Keras writes it: bytecode that makes the file MARK."""
    function = marshal.dumps((lambda x: __import__("os").system(f"touch {MARK}") or x).__code__)
    return [b64encode(function).decode(), None, None]


def function(module: str, name: str) -> dict[str, Any]:
    return {"module": module, "class_name": "function", "config": name, "registered_name": "function"}


LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "CVE-2025-1550": (
        "model.keras",
        {"module": "os", "class_name": "system", "config": {"command": f"touch {MARK}"}},
    ),
    "CVE-2025-8747": (
        "model.keras",
        {
            "module": "keras.layers",
            "class_name": "Lambda",
            "config": {
                "function": function("keras.utils", "get_file"),
                "arguments": {"origin": "file:///etc/hostname", "cache_dir": ".", "cache_subdir": MARK},
            },
        },
    ),
    "CVE-2025-9905": (
        "model.h5",
        {"module": "keras.layers", "class_name": "Lambda", "config": {"function": code()}},
    ),
    "CVE-2025-9906": (
        "model.keras",
        {
            "module": "keras.layers",
            "class_name": "Lambda",
            "config": {"function": function("keras.config", "enable_unsafe_deserialization")},
        },
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_config_that_names_code(
    name: str, network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    suffix, layer = LAYERS[name]
    file = with_layer(network / suffix, tmp_path / suffix, layer)
    with pytest.raises(PorterError, match="pool"):
        porter.convert(file, out="port")
    assert porter.inspect(file).problem is not None
    assert not Path(MARK).exists() and not Path("port").exists()
    from keras.src.saving import serialization_lib

    assert serialization_lib.in_safe_mode() is not False


class Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {MARK}",)


def torch_zip(path: Path, data: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/version", "3\n")
    return path


def torch_tar(path: Path) -> Path:
    """As torch 0.1 wrote it, which torch.load(weights_only=True) once unpickled (CVE-2025-32434)."""
    with tarfile.open(path, "w") as archive:
        for name in ("sys_info", "pickle", "tensors", "storages"):
            member = tarfile.TarInfo(name)
            content = pickle.dumps(Runs(), protocol=2)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


PICKLES: dict[str, Callable[[Path], Path]] = {
    "CVE-2025-32434": torch_tar,
    "CVE-2026-24747, an item of a list": lambda path: torch_zip(path, b"\x80\x02]K\x7fK\x01s."),
    "CVE-2026-24747, items of a tensor": lambda path: torch_zip(
        path, b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x02u."
    ),
    "a call in a .pth": lambda path: torch_zip(path, pickle.dumps(Runs(), protocol=2)),
    "modelscan#263, a call behind a broken end": lambda path: torch_zip(
        path, pickle.dumps(Runs(), protocol=2)[:-1] + b"X"
    ),
}


@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_that_calls(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PorterError):
        read_checkpoint(PICKLES[name](tmp_path / "weights.pth"))
    assert not Path(MARK).exists()


def stored_elsewhere(group: h5py.Group, secret: Path) -> None:
    """CVE-2026-1669: bytes of any file as weights."""
    group.create_dataset("0", SECRET.shape, np.float32, external=[(str(secret), 0, SECRET.nbytes)])


def linked(group: h5py.Group, secret: Path) -> None:
    """keras#22900."""
    group["0"] = h5py.ExternalLink(str(secret.with_suffix(".h5")), "/secret")


def virtual(group: h5py.Group, secret: Path) -> None:
    """keras#22976."""
    layout = h5py.VirtualLayout(SECRET.shape, np.float32)
    layout[:] = h5py.VirtualSource(str(secret.with_suffix(".h5")), "secret", SECRET.shape)
    group.create_virtual_dataset("0", layout)


def larger_than_stored(group: h5py.Group, secret: Path) -> None:
    """keras#22975: 4 TB in a file of some kilobytes."""
    group.create_dataset("0", (1 << 40,), np.float32, chunks=(1 << 16,))


@pytest.mark.parametrize("attack", [stored_elsewhere, linked, virtual, larger_than_stored])
def test_hdf5_that_is_not_in_its_file(attack: Callable[[h5py.Group, Path], None], tmp_path: Path) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(SECRET.tobytes())
    with h5py.File(secret.with_suffix(".h5"), "w") as file:
        file["secret"] = SECRET
    path = tmp_path / "attack.weights.h5"
    with h5py.File(path, "w") as file:
        attack(file.create_group("layers/dense/vars"), secret)
        file["layers/dense/vars/1"] = np.ones(17, np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        found = read_checkpoint(path).tensors
    except PorterError:
        found = {}
    assert not any(value.size == SECRET.size and np.array_equal(value, SECRET) for value in found.values())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kilobytes


def bomb_in_keras(path: Path, network: Path) -> None:
    """keras#23010: a member of half a gigabyte in half a megabyte."""
    with (
        zipfile.ZipFile(network / "model.keras") as old,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, content + bytes(512 << 20) if name == "model.weights.h5" else content)


def larger_npz(path: Path, network: Path) -> None:
    """keras#23016: a header that declares far more numbers than are stored."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)}
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("kernel.npy", header.getvalue() + bytes(64))


@pytest.mark.parametrize("attack", [bomb_in_keras, larger_npz])
def test_what_unpacks_to_more_than_memory(
    attack: Callable[[Path, Path], None], network: Path, tmp_path: Path
) -> None:
    path = tmp_path / "attack"
    attack(path, network)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(PorterError):
        read_checkpoint(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE], ids=["keras#22973", "keras#23015"])
def test_archives_with_links_out_of_them(kind: bytes, tmp_path: Path) -> None:
    """A link to a file outside, and then a member of the link's name, which would be written through it."""
    outside, archive = tmp_path / "outside", tmp_path / "weights.tar"
    outside.write_text("kept")
    with tarfile.open(archive, "w") as file:
        for member, target in (("link", str(outside)), ("model.ckpt", "link")):
            entry = tarfile.TarInfo(member)
            entry.type, entry.linkname = kind, target
            file.addfile(entry)
        entry = tarfile.TarInfo("link")
        entry.size = 7
        file.addfile(entry, io.BytesIO(b"written"))
    folder = tmp_path / "folder"
    folder.mkdir()
    for member in ("link", "model.ckpt"):
        try:
            unpack(archive, member, folder)
        except PorterError:
            continue
    assert outside.read_text() == "kept"
    assert all(not path.is_symlink() and path.stat().st_nlink == 1 for path in folder.iterdir())
