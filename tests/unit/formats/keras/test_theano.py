"""What Keras ran on Theano: other pads than TensorFlow's for the same config, kernels turned around, filters
first in Keras 1.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from shutil import copyfile
from typing import Any

import h5py
import numpy as np
import pytest

import porter
from porter.base.dtypes import Dtype
from porter.base.errors import CheckFailed, Contradiction, FileError
from porter.filegraph.file_graph import FileGraph
from porter.formats.keras import read_h5, theano
from porter.formats.keras.graph import read_graph
from porter.formats.reading import read_checkpoint
from porter.graph import Conv, MaxPool
from porter.padding import LOWEST, Convention, Window
from tests.support.checkout import ROOT
from tests.unit.formats.keras.test_graph import Json, conv, functional, kernels, layer, said, source
from tests.unit.formats.keras.test_read_h5 import write_legacy

NAMES, RECORDED = ("keras1", "keras2"), Path(__file__).with_name("theano")
PYTHONS = [
    Path(os.environ.get(f"PORTER_KERAS{n}_PYTHON", ROOT / f"build/keras{n}/bin/python")) for n in (1, 2)
]


def windows(config: Json) -> list[Any]:
    graph = read_graph(
        json.dumps(functional(source(), config)), kernels("it"), "model.h5", {"backend": "theano"}
    )
    assert isinstance(graph, FileGraph)
    return list(said(graph).values())


@pytest.mark.parametrize("stride", [1, 2])
def test_same_of_a_convolution(stride: int) -> None:
    """Half the window before the map, where TensorFlow's odd cell is behind it."""
    found = windows(conv("it", "in", padding="same", strides=[stride, stride]))
    same = Convention("same") if stride == 1 else Convention("explicit", (1, 1, 1, 1))
    assert found == [Conv(4, Window((3, 3), (stride, stride)), same)]


@pytest.mark.parametrize(
    ("size", "stride", "before"), [(2, 2, 1), (3, 2, 1), (4, 2, 3), (5, 2, 3), (5, 1, 3), (3, 1, None)]
)
def test_same_of_a_pool(size: int, stride: int, before: int | None) -> None:
    window, stated = (
        Window((size, size), (stride, stride)),
        {"pool_size": [size, size], "strides": [stride, stride]},
    )
    found = windows(layer("MaxPooling2D", "it", "in", padding="same", **stated))
    pads = None if before is None else (before, size - 1 - before)
    same = Convention("same", fill=LOWEST) if pads is None else Convention("explicit", (*pads, *pads), LOWEST)
    assert found == [MaxPool(window, same)]


@pytest.mark.parametrize(
    ("kind", "stated"),
    [
        ("AveragePooling2D", {"pool_size": [3, 3], "strides": [2, 2]}),
        ("Conv2DTranspose", {"filters": 4, "kernel_size": [3, 3]}),
    ],
)
def test_what_keras_cannot_say_otherwise_is_refused(kind: str, stated: dict[str, Any]) -> None:
    (found,) = windows(layer(kind, "it", "in", padding="same", **stated))
    assert found.kind == f"{kind} by Theano's same"


def test_keras_1_has_to_say_what_it_ran_on(tmp_path: Path) -> None:
    config = functional(
        source(3, 8, 8), conv("c", "in", padding="same", dim_ordering="th", nb_filter=4, nb_row=3, nb_col=3)
    )
    kernel = np.random.default_rng(0).normal(0, 1, (4, 3, 3, 3)).astype(np.float32)
    path = write_legacy(tmp_path / "a.h5", {"c": {"c_W": kernel}}, under="model_weights")
    with h5py.File(path, "a") as file:
        file.attrs.update(model_config=json.dumps(config), keras_version=b"1.2.2")
    with pytest.raises(FileError, match=r"not whether it ran on Theano.*attrs\['backend'\]"):
        read_checkpoint(path)
    for backend, wanted in ((b"tensorflow", kernel), (b"theano", kernel[..., ::-1, ::-1])):
        with h5py.File(path, "a") as file:
            file["model_weights"].attrs["backend"] = backend
        found = read_checkpoint(path)
        np.testing.assert_array_equal(found.tensors["c/kernel"], wanted.transpose(2, 3, 1, 0))
        assert found.graph is not None and not found.graph.foreign


def recorded(name: str, folder: Path) -> Path:
    """One of the models of tests/support/keras_on_theano.py, beside what it gave."""
    for suffix in (".h5", ".npz"):
        copyfile(RECORDED / f"{name}{suffix}", folder / f"{name}{suffix}")
    return saying_theano(folder / f"{name}.h5")


def saying_theano(file: Path) -> Path:
    """A file that says what Keras ran on, which Keras 1 does not."""
    with h5py.File(file, "a") as opened:
        opened["model_weights"].attrs["backend"] = b"theano"
    return file


def expect_theanos(file: Path, out: Path) -> None:
    made = porter.convert(file, to="torch", out=out)
    with np.load(file.with_suffix(".npz")) as stored:
        known = dict(stored)
    engine, output = made.port.destination.ENGINE, made.port.graph.output
    assert made.verdict is not None and made.verdict.ok
    limits: dict[Dtype, float] = {"float32": 1e-5, "float64": 1e-10}
    for dtype in (dtype for dtype in limits if dtype in known):
        wanted = known[dtype]
        given = engine.run(made.port.build(dtype), known["images"].astype(dtype), [output])[output]
        assert np.linalg.norm(given - wanted) <= limits[dtype] * np.linalg.norm(wanted), (file.name, dtype)


@pytest.mark.parametrize("name", NAMES)
def test_ports_compute_what_theano_did(name: str, tmp_path: Path) -> None:
    expect_theanos(recorded(name, tmp_path), tmp_path / "port")


@pytest.mark.parametrize(
    ("module", "function", "wrong", "says"),
    [
        (theano, "_pad_before", lambda kind, extent: (extent - 1) // 2, "differs"),
        (read_h5, "_turn_kernels", lambda file, tensors: tensors, "porter and h5py read other values"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_a_mistake_of_the_reader_is_refused(
    module: Any,
    function: str,
    wrong: Any,
    says: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, function, wrong)
    with pytest.raises((CheckFailed, Contradiction), match=says):
        porter.convert(recorded(name, tmp_path), to="torch", out=tmp_path / "port")


@pytest.mark.full
@pytest.mark.parametrize("python", PYTHONS)
def test_ports_compute_what_theano_does(python: Path, tmp_path: Path) -> None:
    if not python.exists():
        pytest.skip("no Python 3.7 with Keras on Theano: CONTRIBUTING.md says how to have one")
    subprocess.run(
        [python, ROOT / "tests/support/keras_on_theano.py", tmp_path], check=True, capture_output=True
    )
    for file in sorted(tmp_path.glob("*.h5")):
        expect_theanos(saying_theano(file), tmp_path / file.stem)
