"""Formats are told by content, only the reader needed is imported, and what cannot be read is refused in one
line.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import save_file

from porter.base.errors import FileError
from porter.formats import unreadable
from porter.formats.reading import read_checkpoint
from porter.formats.recognition import FORMATS, READABLE, recognise
from porter.frameworks import DESTINATION_NAMES, ENGINE_NAMES
from porter.source.place import file_at

KERNEL = np.ones((3, 3, 3, 2), np.float32)


def keras_h5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = np.array([b"c"])
        file.create_group("c").attrs["weight_names"] = np.array([b"c/kernel:0"])
        file["c/c/kernel:0"] = KERNEL


def weights_h5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["layers/conv2d/vars/0"] = KERNEL


def keras_archive(path: Path) -> None:
    weights_h5(path)
    layers = [{"class_name": "Conv2D", "config": {"name": "c", "use_bias": False}}]
    config = json.dumps({"class_name": "Sequential", "config": {"layers": layers}})
    weights = path.read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", config)
        archive.writestr("model.weights.h5", weights)


def safetensors(path: Path) -> None:
    save_file({"c.weight": KERNEL}, path)


def torch_archive(path: Path) -> None:
    import torch

    torch.save({"c.weight": torch.ones(2)}, path)


def npz(path: Path) -> None:
    with path.open("wb") as stream:
        np.savez(stream, names=["c/weights:0"], values=KERNEL[np.newaxis])


MAKERS = {
    "keras-h5": keras_h5,
    "keras-weights-h5": weights_h5,
    "keras": keras_archive,
    "safetensors": safetensors,
    "torch": torch_archive,
    "npz": npz,
}


@pytest.mark.parametrize("suffix", ["", ".txt", ".pth", ".h5", ".safetensors", ".keras"])
@pytest.mark.parametrize("format", MAKERS)
def test_the_suffix_does_not_matter(tmp_path: Path, format: str, suffix: str) -> None:
    path = tmp_path / f"weights{suffix}"
    MAKERS[format](path)
    assert recognise(path).name == format and FORMATS[format].read is not None
    assert read_checkpoint(path).format == format


@pytest.mark.parametrize("format", MAKERS)
def test_reading_imports_no_framework(tmp_path: Path, format: str) -> None:
    path = tmp_path / "weights"
    MAKERS[format](path)
    code = (
        "import sys; from pathlib import Path; from porter.formats.reading import read_checkpoint; "
        "read_checkpoint(Path(sys.argv[1])); print(*{'torch', 'tensorflow', 'keras', 'jax', 'h5py'} & "
        "sys.modules.keys())"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [] and ran.stderr == ""


def message(path: Path) -> str:
    with pytest.raises(FileError) as caught:
        read_checkpoint(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


def node(name: bytes, op: bytes) -> bytes:
    inner = b"\n" + bytes([len(name)]) + name + b"\x12" + bytes([len(op)]) + op
    return b"\n" + bytes([len(inner)]) + inner


WHEEL, ZIP = ["a.py", "a-1.dist-info/WHEEL"], ["a.h5", "readme.txt"]
CONTENTS = {
    "empty": b"",
    "image": b"\xff\xd8\xff\xe0\x00\x10JFIF",
    "text": "Plain text, with an é.\n".encode() * 300,
    "html": b"<!DOCTYPE html>\n<html><body>404</body></html>",
    "git-lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
    "compressed": b"\x1f\x8b\x08\x00" + bytes(20),
    "gguf": b"GGUF\x03\x00\x00\x00",
    "npy": b"\x93NUMPY\x01\x00",
    "meta-graph": b"\x0a\x08\x12\x06\x0a\x04\x0a\x02Op" + b"\x12\x02\x0a\x00",
    # The first bytes of what CNTK 2.7 wrote.
    "cntk": b"\x08\x02\x12\x11\n\x07version\x12\x06\x08\x02\x10\x03(\x03\x12\x1f\n\x04type",
    "graph-text": b'# saved\nnode {\n  name: "input"\n  op: "Placeholder"\n}\n',
    "saved-model-text": b"saved_model_schema_version: 1\nmeta_graphs {\n}\n",
    "coreml": b"\x08\x04\x12\x09\n\x07\n\x05image\xa2\x1f\x00",
    "dlib": b"\x01\x01\x01\x0dloss_metric_2\x01\x02",
    "keras-pickle": pickle.dumps({"keras.src.models.functional": 1}, protocol=4),
    "pickle": pickle.dumps({"a": [1, 2]}, protocol=4),
    "unknown": bytes(range(250, 256)) * 50,
}


@pytest.mark.parametrize("format", CONTENTS)
def test_other_formats_are_named(tmp_path: Path, format: str) -> None:
    path = tmp_path / "weights.h5"
    path.write_bytes(CONTENTS[format])
    assert recognise(path).name == format
    found = FORMATS[format]
    assert f"expected weights, got {found.what}" in message(path)
    assert (found.advice or "says which files porter reads") in message(path)


def test_folders_and_parts_are_named(tmp_path: Path) -> None:
    assert "an empty folder" in message(tmp_path)
    (tmp_path / "notes.txt").write_text("plain")
    assert "got a folder (name the weights file in it)" in message(tmp_path)
    npz(tmp_path / "net.npz")
    safetensors(tmp_path / "model-00001-of-00002.safetensors")
    assert "got a folder (name the weights file in it: net.npz)" in message(tmp_path)
    said = message(tmp_path / "model-00001-of-00002.safetensors")
    assert "one of several files" in said and ".index.json" in said
    safetensors(tmp_path / "model-00001-of-00001.safetensors")
    assert read_checkpoint(tmp_path / "model-00001-of-00001.safetensors").tensors
    (tmp_path / "model_index.json").write_text("{}")
    assert "a pipeline of diffusers" in message(tmp_path)


def test_a_preset_of_keras_hub_has_two_files_of_tensors(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{\n    "module": "keras_hub.src.models.resnet.resnet_backbone",\n    "config": {}}'
    )
    weights_h5(tmp_path / "model.weights.h5")
    assert file_at(tmp_path).path == tmp_path
    tensors = read_checkpoint(tmp_path).tensors
    assert tensors.keys() == read_checkpoint(tmp_path / "model.weights.h5").tensors.keys()
    weights_h5(tmp_path / "task.weights.h5")
    assert read_checkpoint(tmp_path).tensors.keys() == {*tensors, *(f"task/{name}" for name in tensors)}
    (tmp_path / "model.weights.h5").unlink()
    assert "neither model.weights.h5 nor model.weights.json" in message(tmp_path)


def test_a_package_of_coreml_and_shapes_of_dlib_are_named(tmp_path: Path) -> None:
    package, shapes = tmp_path / "net.mlpackage", tmp_path / "shapes.dat"
    (package / "Data" / "com.apple.CoreML").mkdir(parents=True)
    (package / "Manifest.json").write_text("{}")
    shapes.write_bytes(b"\x01\x01\x81\x88\x81\x01\x02")
    assert (recognise(package).name, recognise(shapes).name) == ("coreml", "dlib")
    assert "name the file that it was made from" in message(package)


@pytest.mark.parametrize(("format", "names"), [("wheel", WHEEL), ("zip", ZIP)])
def test_other_archives_are_named(tmp_path: Path, format: str, names: list[str]) -> None:
    path = tmp_path / "weights.keras"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    assert recognise(path).name == format
    assert FORMATS[format].what in message(path)
    path.write_bytes(path.read_bytes()[:-5])
    assert recognise(path).name == "zip-cut"
    assert "cut short" in message(path)


def test_real_exports(tmp_path: Path) -> None:
    """What TensorFlow itself writes, against the few bytes that tell it apart."""
    tf = pytest.importorskip("tensorflow")
    variable = tf.Module()
    variable.w = tf.Variable([1.0, 2.0])
    prefix = tf.train.Checkpoint(model=variable).write(str(tmp_path / "ckpt"))
    tf.saved_model.save(variable, str(tmp_path / "saved"))
    graph = tf.Graph()
    with graph.as_default():
        tf.constant(np.ones(5000, np.float32), name="weights")
    (tmp_path / "frozen.pb").write_bytes(graph.as_graph_def().SerializeToString())
    assert recognise(Path(prefix)).name == "tf-checkpoint-v2"
    assert recognise(tmp_path / "ckpt.index").name == "tf-checkpoint-v2"
    assert recognise(tmp_path / "saved").name == "saved-model"
    assert recognise(tmp_path / "saved" / "saved_model.pb").name == "saved-model"
    assert recognise(tmp_path / "frozen.pb").name == "frozen-graph"


TABLES = {
    "tf-checkpoint-v1": b"\x00\x00\x40\x0a\x3e" + bytes(40),
    "tf-checkpoint-v2": b"\x00\x00\x06\x08\x01" + bytes(40),
}
FOREIGN = {
    **{format: head + struct.pack("<Q", 0xDB4775248B80FB57) for format, head in TABLES.items()},
    "frozen-graph": node(b"input", b"Placeholder") + node(b"conv/weights", b"Const")[:-1],
    "saved-model": b"\x08\x01\x12\x0a" + bytes(10),
}


@pytest.mark.parametrize("format", FOREIGN)
def test_damaged_files_of_tensorflow(tmp_path: Path, format: str) -> None:
    """Known by their first bytes, and refused by TensorFlow's own reader."""
    pytest.importorskip("tensorflow")
    path = tmp_path / "weights.h5"
    path.write_bytes(FOREIGN[format])
    assert recognise(path).name == format and FORMATS[format].read is not None
    message(path)


def test_every_format_is_declared_once_and_says_what_reads_it_or_what_to_do(tmp_path: Path) -> None:
    """Nothing unknown is taken for PyTorch's: a format without a reader of its own is refused by its own
    name.
    """
    names = [format.name for format in (*unreadable.SHARDS, *READABLE, *unreadable.FORMATS)]
    assert sorted(names) == sorted(FORMATS)
    assert all((format.read is None) == (format not in READABLE) for format in FORMATS.values())
    assert all(format.advice is None for format in READABLE)
    for format in FORMATS.values():
        assert format.framework in (None, *DESTINATION_NAMES) and format.engine in (None, *ENGINE_NAMES)


def test_no_file(tmp_path: Path) -> None:
    assert "there is no such file" in message(tmp_path / "missing.h5")


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    assert "without the weights that it is about" in message(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are a Unix thing")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "expected a file" in message(tmp_path / "pipe")


@pytest.mark.parametrize("format", MAKERS)
def test_files_of_one_byte_less(tmp_path: Path, format: str) -> None:
    path, cut = tmp_path / "whole", tmp_path / "cut"
    MAKERS[format](path)
    whole = path.read_bytes()
    for length in (1, 7, 8, 9, 40, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:length])
        message(cut)
