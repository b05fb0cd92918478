"""Models with channels first, held to what Keras computes for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import porter
from porter.formats.reading import read_checkpoint
from porter.frameworks.tf.runtime import import_keras

FIRST = {"data_format": "channels_first"}


def model(more: dict[str, Any] | None = None) -> Any:
    """No map has as many columns as channels: Keras 3.15 on TensorFlow then adds a bias along the columns."""
    keras = import_keras()
    layers = keras.layers
    image = keras.Input((3, 13, 18))
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu", name="stem", **FIRST)(image)
    x = layers.BatchNormalization(axis=1)(x)
    x = layers.Concatenate(axis=1)([x, layers.Activation("tanh")(layers.DepthwiseConv2D(3, padding="same", **FIRST)(x))])
    x = layers.ZeroPadding2D(((1, 0), (0, 1)), **FIRST)(layers.MaxPooling2D(3, 2, "same", **FIRST)(x))
    x = layers.Add()([x, layers.Softmax(axis=1)(x)])
    x = layers.UpSampling2D(2, **FIRST)(layers.SeparableConv2D(10, 3, **(more or FIRST))(x))
    parts = [layers.Flatten()(x), layers.Flatten(**FIRST)(x), layers.GlobalAveragePooling2D(**FIRST)(x)]
    made = keras.Model(image, layers.Dense(5)(layers.Concatenate()([layers.Dense(4)(part) for part in parts])))
    random = np.random.default_rng(0)
    numbers = [random.normal(0, 0.3, variable.shape) for variable in made.weights]
    pairs = zip(made.weights, numbers, strict=True)
    made.set_weights([np.abs(array) + 0.1 if "variance" in variable.path else array for variable, array in pairs])
    return made


def test_a_model_is_what_keras_computes(tmp_path: Path) -> None:
    made, file = model(), tmp_path / "model.keras"
    made.save(file)
    images = np.random.default_rng(1).normal(0, 1, (2, 3, 13, 18)).astype(np.float32)
    wanted = np.asarray(made(images))
    port = porter.convert(file, destination="torch", out=tmp_path / "port")
    assert port.verdict is not None and port.verdict.ok
    with torch.no_grad():
        found = porter.load(tmp_path / "port")(torch.from_numpy(images)).numpy()
    assert np.linalg.norm(found - wanted) <= 1e-5 * np.linalg.norm(wanted)


def test_one_layer_with_channels_last_leaves_the_model_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "model.keras"
    model({"data_format": "channels_last", "padding": "same"}).save(file)
    graph = read_checkpoint(file).graph
    assert graph is not None and graph.foreign and "channels first" in graph.by_name["stem"].op.kind  # type: ignore[union-attr]


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_a_softmax_along_the_columns_is_not_one_of_channels(suffix: str, tmp_path: Path) -> None:
    keras = import_keras()
    image = keras.Input((3, 8, 9))
    x = keras.layers.Conv2D(4, 3, activation="softmax", name="stem", **FIRST)(image)
    keras.Model(image, x).save(tmp_path / f"model.{suffix}")
    graph = read_checkpoint(tmp_path / f"model.{suffix}").graph
    assert graph is not None and graph.foreign
