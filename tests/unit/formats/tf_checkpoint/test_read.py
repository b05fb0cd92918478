"""Checkpoints as TensorFlow 1 and 2 write them, named by any of their parts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.formats.reading import read_checkpoint
from porter.formats.recognition import recognise
from porter.formats.tf_checkpoint.model_tensors import ObjectTensor, model_names, training_state
from tests.support.arrays import Array
from tests.support.formats.tf_graph.file_graphs import tensorflow
from tests.support.refusals import unreadable

pytest.importorskip("tensorflow")

WEIGHTS: dict[str, Array] = {
    "net/conv/weights": np.random.default_rng(0).normal(size=(3, 3, 3, 4)).astype(np.float32),
    "net/conv/BatchNorm/moving_mean": np.arange(4, dtype=np.float64),
    "net/Adam": np.array([[1, 2], [3, 4]], np.float32),
}
OPTIMISERS: dict[str, Callable[[Any], Any]] = {
    "momentum": lambda train: train.MomentumOptimizer(0.1, 0.9),
    "rmsprop": lambda train: train.RMSPropOptimizer(0.1, momentum=0.9),
    "adam": lambda train: train.AdamOptimizer(),
    "adagrad": lambda train: train.AdagradOptimizer(0.1),
    "ftrl": lambda train: train.FtrlOptimizer(0.1),
}


def save(
    prefix: Path, version: int, optimiser: str | None = None, average: bool = False, sharded: bool = False
) -> None:
    """The weights, saved by TensorFlow 1's Saver beside a global step and what an optimiser keeps."""
    tf = tensorflow()
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        made = [
            v1.get_variable(name, initializer=tf.constant(array), use_resource=False)
            for name, array in WEIGHTS.items()
        ]
        v1.train.get_or_create_global_step()
        if optimiser:
            loss = sum(tf.reduce_sum(tf.cast(one, tf.float32) ** 2) for one in made[:1] + made[2:3])
            with v1.variable_scope("training"):
                OPTIMISERS[optimiser](v1.train).minimize(loss)
        if average:
            tf.compat.v1.train.ExponentialMovingAverage(0.9).apply(made[:1])
        with v1.Session() as session:
            session.run([one.initializer for one in made])
            session.run(v1.global_variables_initializer())
            v1.train.Saver(write_version=version, sharded=sharded).save(session, str(prefix))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("optimiser", [None, *OPTIMISERS])
def test_what_tensorflow_1_writes(tmp_path: Path, version: int, optimiser: str | None) -> None:
    """The model's tensors bit for bit; a layer that is called Adam is no slot."""
    save(tmp_path / "model.ckpt-7", version, optimiser)
    checkpoint = read_checkpoint(tmp_path / "model.ckpt-7")
    assert (
        checkpoint.format == f"tf-checkpoint-v{version}"
        and checkpoint.dialect == "tf"
        and checkpoint.graph is None
    )
    assert checkpoint.tensors.keys() == WEIGHTS.keys() and list(checkpoint.tensors) == sorted(WEIGHTS)
    for name, array in WEIGHTS.items():
        assert checkpoint.tensors[name].dtype == array.dtype
        np.testing.assert_array_equal(checkpoint.tensors[name], array)
    assert "ignored the training's state" in checkpoint.notes[0]


def test_moving_averages_stay(tmp_path: Path) -> None:
    save(tmp_path / "model.ckpt", 2, "rmsprop", average=True)
    names = read_checkpoint(tmp_path / "model.ckpt").tensors.keys()
    assert names == WEIGHTS.keys() | {"net/conv/weights/ExponentialMovingAverage"}


@pytest.mark.parametrize(
    "named", ["model.ckpt-7", "model.ckpt-7.index", "model.ckpt-7.data-00000-of-00001", "."]
)
def test_every_way_to_name_v2(tmp_path: Path, named: str) -> None:
    save(tmp_path / "model.ckpt-7", 2)
    checkpoint = read_checkpoint(tmp_path / named)
    assert recognise(tmp_path / named).name == "tf-checkpoint-v2" and checkpoint.path == tmp_path / named
    assert [file.name for file in checkpoint.files] == [
        "model.ckpt-7.index",
        "model.ckpt-7.data-00000-of-00001",
    ]
    assert checkpoint.tensors.keys() == WEIGHTS.keys()


@pytest.mark.parametrize(
    ("sharded", "named"),
    [
        (False, "model.ckpt-7"),
        (False, "."),
        (True, "."),
        (True, "model.ckpt-7"),
        (True, "model.ckpt-7-00000-of-00001"),
    ],
)
def test_every_way_to_name_v1(tmp_path: Path, sharded: bool, named: str) -> None:
    save(tmp_path / "model.ckpt-7", 1, sharded=sharded)
    assert recognise(tmp_path / named).name == "tf-checkpoint-v1"
    assert read_checkpoint(tmp_path / named).tensors.keys() == WEIGHTS.keys()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    save(folder / "model.ckpt-7", 2)
    return folder


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "copy")


def test_parts_that_are_missing_or_damaged(copied: Path) -> None:
    index, data = copied / "model.ckpt-7.index", copied / "model.ckpt-7.data-00000-of-00001"
    prefix = copied / "model.ckpt-7"
    assert "a TensorFlow .meta file" in unreadable(copied / "model.ckpt-7.meta")
    whole = data.read_bytes()
    data.write_bytes(whole[:-8])
    assert "declares" in unreadable(index, where=prefix)
    data.unlink()
    assert "expected model.ckpt-7.data-00000-of-00001" in unreadable(index, where=prefix)
    data.write_bytes(whole)
    table = index.read_bytes()
    index.write_bytes(table[:-20])
    assert "the checkpoint's index is cut short or damaged" in unreadable(prefix)
    index.write_bytes(table[:30] + bytes(len(table) - 38) + table[-8:])
    assert "cut short or damaged" in unreadable(index, where=prefix)
    index.unlink()
    assert "without its index" in unreadable(data, where=prefix)


def test_a_shard_too_few(copied: Path) -> None:
    (copied / "model.ckpt-7.data-00000-of-00001").rename(copied / "model.ckpt-7.data-00001-of-00002")
    assert "expected model.ckpt-7.data-00000-of-00002" in unreadable(copied)


def test_a_folder_that_leaves_it_open(copied: Path) -> None:
    """The latest of a state file counts, and only its name is read; without one, or where it is gone, the
    user chooses.
    """
    for path in list(copied.glob("model.ckpt-7.*")):
        shutil.copy(path, copied / path.name.replace("-7.", "-9."))
    state = copied / "checkpoint"
    state.write_text(
        'model_checkpoint_path: "/home/me/train/model.ckpt-9"\nall_model_checkpoint_paths: "model.ckpt-7"\n'
    )
    assert read_checkpoint(copied).files[0].name == "model.ckpt-9.index"
    state.write_text('model_checkpoint_path: "model.ckpt-8"\n')
    assert (
        "'model.ckpt-8' the latest, which is not there; the folder holds model.ckpt-7, model.ckpt-9"
        in unreadable(copied)
    )
    for nameless in (".", ""):
        shutil.copy(copied / "model.ckpt-9.index", copied.with_name(f"{copied.name}.index"))
        state.write_text(f'model_checkpoint_path: "{nameless}"\n')
        assert "the latest, which is not there" in unreadable(copied)
    state.write_text('model_checkpoint_path: "model.ckpt-7"\nmodel_checkpoint_path: "model.ckpt-9"\n')
    assert "names 2 latest checkpoints" in unreadable(copied)
    state.unlink()
    assert "several checkpoints: model.ckpt-7, model.ckpt-9" in unreadable(copied)
    older = [copied / f"model.ckpt-{step}.index" for step in range(1, 6)]
    for index in older:
        index.touch()
    assert "model.ckpt-4, model.ckpt-5, and 2 more" in unreadable(copied)
    for index in older:
        index.unlink()
    (copied / "model.ckpt-9.index").unlink()
    (copied / "model.ckpt-7").mkdir()  # a folder by the name of the prefix
    assert read_checkpoint(copied).files[0].name == "model.ckpt-7.index"
    for path in list(copied.glob("model.ckpt-7.*")):
        path.rename(copied / path.name.removeprefix("model.ckpt-7"))
    assert "a checkpoint without a name" in unreadable(copied)


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_what_tensorflow_2_writes(tmp_path: Path, package: str) -> None:
    """Object graphs: variables by their own names; optimiser, metrics and the save's counter are ignored."""
    tf, keras = tensorflow(), pytest.importorskip(package)
    layers = [
        keras.Input((4, 4, 3)),
        keras.layers.Conv2D(2, 3, name="Conv1"),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.5),
    ]
    x = layers[0]
    for layer in (*layers[1:], keras.layers.Dense(1, name="pred")):
        x = layer(x)
    model = keras.Model(layers[0], x)
    model.compile("adam", "mse", metrics=["mae"])
    model.fit(np.ones((2, 4, 4, 3)), np.ones((2, 1)), verbose=0)
    prefix = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "ckpt"))
    tensors = read_checkpoint(Path(prefix)).tensors
    assert tensors.keys() == {"Conv1/kernel", "Conv1/bias", "pred/kernel", "pred/bias"}
    np.testing.assert_array_equal(
        tensors["Conv1/kernel"], np.asarray(model.get_layer("Conv1").get_weights()[0])
    )


def test_variables_without_names_of_their_own(tmp_path: Path) -> None:
    tf = tensorflow()
    module = tf.Module()
    module.first, module.second = tf.Variable([1.0, 2.0]), tf.Variable([3.0])
    prefix = tf.train.Checkpoint(model=module).write(str(tmp_path / "ckpt"))
    assert read_checkpoint(Path(prefix)).tensors.keys() == {"model/first", "model/second"}


def test_variables_that_are_alike_are_all_read(tmp_path: Path) -> None:
    """Only what Keras's export writes again, under another path, is left out."""
    tf = tensorflow()
    layers = [tf.Module(), tf.Module()]
    for number, layer in enumerate(layers):
        layer.kernel, layer.bias = (
            tf.Variable([1.0, number], name="kernel"),
            tf.Variable([0.0, 0.0], name="bias"),
        )
    root = tf.Module()
    root.layers, root._all_variables = (
        layers,
        [tf.Variable([1.0, 0.0], name="kernel"), tf.Variable([2.0, 0.0], name="kernel")],
    )
    found = read_checkpoint(Path(tf.train.Checkpoint(root).write(str(tmp_path / "ckpt"))))
    assert found.tensors.keys() == {
        *(f"layers/{number}/{name}" for number in range(2) for name in ("kernel", "bias")),
        "_all_variables/1",
    }
    assert found.notes == ("ignored 1 second copies, such as '_all_variables/0/.ATTRIBUTES/VARIABLE_VALUE'",)


def test_slots_stand_beside_a_variable_of_their_shape() -> None:
    shapes = {
        "a/w": (2, 3),
        "a/w/Momentum": (2, 3),
        "opt/a/w/RMSProp_1": (2, 3),
        "a/w/Adam": (3,),
        "b/Ftrl": (2,),
        "a/beta1_power": (),
    }
    assert training_state(shapes) == {"a/w/Momentum", "opt/a/w/RMSProp_1", "a/beta1_power"}
    assert training_state({"m/mean": (4,), "m/mean/biased": (4,), "m/mean/local_step": ()}) == {
        "m/mean/biased",
        "m/mean/local_step",
    }


def test_names_that_are_not_unique_stay_keys() -> None:
    keys = ["layer-1/kernel/.ATTRIBUTES/VARIABLE_VALUE", "layer-2/kernel/.ATTRIBUTES/VARIABLE_VALUE"]
    assert list(model_names(keys, [ObjectTensor(key, "kernel") for key in keys]).values()) == [
        "layer-1/kernel",
        "layer-2/kernel",
    ]
    assert model_names(keys, [ObjectTensor(keys[0], "conv/kernel")])[keys[0]] == "conv/kernel"
