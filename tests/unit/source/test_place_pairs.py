"""The graph of one file with the tensors of another, whatever the two are called."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers
from safetensors.numpy import save_file

import porter
from porter.formats.reading import read_checkpoint
from tests.support.arrays import Array
from tests.support.fixtures import Cli
from tests.support.refusals import refused


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of ports to caffe, mxnet and onnx under names that do not show which belong
    together.
    """
    folder = tmp_path_factory.mktemp("pairs")
    keras.utils.set_random_seed(0)
    image = keras.Input((16, 16, 3))
    value = layers.Conv2D(4, 3, padding="same", activation="relu", name="stem")(image)
    value = layers.GlobalAveragePooling2D(name="pool")(
        layers.Normalization(mean=[0.1] * 4, variance=[2.0] * 4)(value)
    )
    keras.Model(image, layers.Dense(3, name="kinds")(value)).save(folder / "small.keras")
    names = {
        "caffe": ("net.prototxt", "trained.caffemodel"),
        "mxnet": ("x-symbol.json", "y.params"),
        "onnx": ("model.onnx",),
    }
    for framework, found in names.items():
        porter.convert(folder / "small.keras", to=framework, out=folder / framework, check=False)
        files = {path.suffix: path for path in (folder / framework).iterdir()}
        for name in found:
            shutil.copy(files[Path(name).suffix], folder / name)
    for other in ("net.prototxt", "x-symbol.json", "y.params"):
        shutil.copy(folder / other, folder / f"other-{other}")
    return folder


def state(made: Path) -> dict[str, Array]:
    """Other tensors under the names of the ONNX model."""
    return {
        name: np.ascontiguousarray(np.multiply(array, 1.5))
        for name, array in read_checkpoint(made / "model.onnx").tensors.items()
    }


@pytest.mark.parametrize(
    ("graph", "weights"), [("net.prototxt", "trained.caffemodel"), ("x-symbol.json", "y.params")]
)
def test_two_files_of_a_model_are_named(
    graph: str, weights: str, made: Path, tmp_path: Path, cli: Cli
) -> None:
    ran = cli(
        "convert", made / graph, "--weights", made / weights, "--to", "torch", "--out", tmp_path / "port"
    )
    assert (
        ran.status == 0
        and f"the graph is that of {graph}" in ran.out
        and "same function as the file's own graph" in ran.out
    )
    source = porter.port.read_port(tmp_path / "port").record.source
    assert source.graph is not None and (source.file, source.graph.file) == (weights, graph)
    assert cli("verify", tmp_path / "port", "--weights", made / weights).status == 0


@pytest.mark.parametrize("name", ["model.ckpt", "model.ckpt.index"])
def test_an_onnx_model_takes_the_tensors_of_a_tensorflow_checkpoint(
    name: str, made: Path, tmp_path: Path, cli: Cli
) -> None:
    """Whose prefix is no file, and whose tensors are not in its index."""
    import tensorflow as tf

    for number in (1, 2):
        named = {name: array * number for name, array in state(made).items()}
        folder = tmp_path / str(number)
        folder.mkdir()
        tf.raw_ops.SaveV2(
            prefix=str(folder / "model.ckpt"),
            tensor_names=[*named],
            shape_and_slices=[""] * len(named),
            tensors=[*named.values()],
        )
    shutil.copy(made / "model.onnx", tmp_path / "model.onnx")
    ran = cli(
        "convert",
        tmp_path / "model.onnx",
        "--weights",
        tmp_path / "1" / name,
        "--to",
        "torch",
        "--out",
        tmp_path / "port",
    )
    assert ran.status == 0 and "same function as the file's own graph" in ran.out
    assert cli("verify", tmp_path / "port", "--weights", tmp_path / "1" / name, "--float64").status == 0
    assert cli("verify", tmp_path / "port", "--weights", tmp_path / "2" / name).status == 2


def test_an_onnx_model_takes_the_tensors_of_a_file_with_its_names(
    made: Path, tmp_path: Path, cli: Cli
) -> None:
    save_file(state(made), tmp_path / "new.safetensors")
    shutil.copy(made / "model.onnx", tmp_path / "model.onnx")
    given = ("--weights", tmp_path / "new.safetensors")
    ran = cli("convert", tmp_path / "model.onnx", *given, "--to", "torch", "--out", tmp_path / "port")
    assert ran.status == 0 and "float64: same function as the file's own graph" in ran.out
    kernel = porter.port.read_port(tmp_path / "port").tensors()["stem"]["kernel"]
    assert np.array_equal(kernel, state(made)["stem.weight"])
    assert cli("verify", tmp_path / "port", *given).status == 0
    (tmp_path / "model.onnx").unlink()
    refused(cli("verify", tmp_path / "port", *given), "put model.onnx beside new.safetensors")


Change = Callable[[dict[str, Array]], Mapping[str, Array]]
WRONG: Mapping[str, tuple[Change, str]] = {
    "less": (
        lambda all: {name: array for name, array in all.items() if name != "stem.bias"},
        "no tensor for the model's 'stem.bias'",
    ),
    "more": (lambda all: {**all, "more": np.ones(2, np.float32)}, "the model has no tensor 'more'"),
    "misshapen": (
        lambda all: {**all, "kinds.bias": np.ones(7, np.float32)},
        "has the shape (3,), this one (7,)",
    ),
    "finer": (lambda all: {**all, "kinds.bias": np.full(3, 0.1)}, "does not hold these numbers of float64"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_all_of_an_onnx_models_tensors_are_given_or_none(
    kind: str, made: Path, tmp_path: Path, cli: Cli
) -> None:
    change, said = WRONG[kind]
    save_file(dict(change(state(made))), tmp_path / "new.safetensors")
    ran = cli(
        "convert",
        made / "model.onnx",
        "--weights",
        tmp_path / "new.safetensors",
        "--to",
        "torch",
        "--out",
        tmp_path / "no",
    )
    refused(ran, "new.safetensors", said)


def test_other_pairs_are_refused_by_name(made: Path, cli: Cli) -> None:
    def ran(graph: str, weights: str) -> Any:
        return cli("convert", made / graph, "--weights", made / weights, "--to", "torch")

    refused(
        ran("net.prototxt", "y.params"),
        "expected a .caffemodel of Caffe beside a Caffe net (.prototxt), got MXNet's .params",
    )
    refused(ran("trained.caffemodel", "net.prototxt"), "a .caffemodel of Caffe has its own tensors")
    refused(ran("small.keras", "y.params"), "a .keras has its own tensors", "save the whole model")
