"""h5py as a witness of what porter reads in Keras's HDF5 files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import porter
from porter.base.errors import Contradiction, NotInstalled
from porter.formats.keras import hdf5, hdf5_bytes
from porter.formats.keras.hdf5_objects import values_at
from porter.formats.keras.witness import disagreement
from porter.formats.reading import read_checkpoint
from tests.support.frameworks.tf.small_models import functional

pytestmark = pytest.mark.usefixtures("in_double")

SIZE = (1, 1)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same network in each form of file, compiled, so that the files have an optimiser's state too."""
    folder, model = tmp_path_factory.mktemp("keras"), functional()
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    names = {"h5": "model.h5", "weights": "model.weights.h5", "keras": "model.keras"}
    found = {form: folder / name for form, name in names.items()}
    model.save(found["h5"])
    model.save(found["keras"])
    model.save_weights(found["weights"])
    return found


def swapped(message: bytes) -> Any:
    """A number's type with its bytes the other way round."""
    found = RIGHT(message)
    return found.newbyteorder() if found is not None else None


RIGHT: Any = hdf5_bytes._numpy_type


@pytest.mark.parametrize("form", ["h5", "weights", "keras"])
def test_bytes_the_other_way_round_are_refused(
    form: str, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = read_checkpoint(files[form])
    assert disagreement(checkpoint, SIZE, True) is None
    monkeypatch.setattr(hdf5_bytes, "_numpy_type", swapped)
    found = disagreement(checkpoint, SIZE, True)
    assert found is not None and found.startswith("porter and h5py read other values of '/")


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (hdf5_bytes, "_read_shape", lambda right: lambda message: right(message)[::-1]),
        (hdf5_bytes.Hdf5Bytes, "_read_links", lambda right: lambda *given: list(right(*given))[:-1]),
        (hdf5_bytes.Hdf5Bytes, "_read_text", lambda right: lambda *given: right(*given)[:-1]),
        (hdf5, "_array", lambda right: lambda values: right(values) * np.float32(1.001)),
    ],
)
def test_mistakes_are_refused(
    owner: Any, name: str, wrong: Any, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In shapes, in links, in texts, and in values at the right place."""
    checkpoint = read_checkpoint(files["h5"])
    monkeypatch.setattr(owner, name, wrong(getattr(owner, name)))
    assert disagreement(checkpoint, SIZE, True) is not None


def test_the_proof_refuses_it_and_says_what_is_held(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Numbers from the place behind each: with bytes the other way round, few networks give finite ones."""
    made = porter.convert(files["h5"], to="torch", out=tmp_path / "right")
    assert made.verdict is not None and made.verdict.held == ("the file's tensors: held to h5py",)
    monkeypatch.setattr(
        hdf5_bytes, "values_at", lambda start, *what, **lack: values_at(start + 4, *what, **lack)
    )
    with pytest.raises(Contradiction, match="porter and h5py read other values of '/"):
        porter.convert(files["h5"], to="torch", out=tmp_path / "wrong")


def test_files_of_every_type_of_numbers(tmp_path: Path) -> None:
    """In both orders of bytes, in chunks, and beside texts, which porter does not read."""
    path = tmp_path / "model.h5"
    kinds = (">f4", "<f8", "f2", ">i8", "u1", "?", "V2")
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [b"a"]
        group = file.create_group("a")
        group.attrs["weight_names"] = [f"a/w{place}:0".encode() for place in range(len(kinds))]
        for place, kind in enumerate(kinds):
            values = np.arange(12).reshape(3, 4) % 2
            stored = values.astype("u2").view(kind) if kind == "V2" else values.astype(kind)
            group.create_dataset(f"a/w{place}:0", data=stored, chunks=(2, 2) if place % 2 else None)
        group["text"] = "of a user's"
    assert disagreement(read_checkpoint(path), SIZE, True) is None


def test_without_h5py(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = read_checkpoint(files["h5"])
    monkeypatch.setattr("porter.base.package.find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match="h5py is not installed"):
        disagreement(checkpoint, SIZE, True)
