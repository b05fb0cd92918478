"""Models with channels first, held to what Keras computes for them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import porter
from porter.formats.keras import channels_first, graph
from porter.formats.keras.flow import Flow
from porter.frameworks.tf.keras_files import build
from porter.frameworks.tf.runtime import import_keras
from tests.support.arrays import Array

FIRST = {"data_format": "channels_first"}


def model(more: dict[str, Any] | None = None) -> Any:
    """No map has as many columns as channels: Keras 3.15 on TensorFlow then adds a bias along the columns."""
    keras = import_keras()
    layers = keras.layers
    image = keras.Input((3, 13, 18))
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu", name="stem", **FIRST)(image)
    x = layers.BatchNormalization(axis=1)(x)
    x = layers.Concatenate(axis=1)(
        [x, layers.Activation("tanh")(layers.DepthwiseConv2D(3, padding="same", **FIRST)(x))]
    )
    x = layers.ZeroPadding2D(((1, 0), (0, 1)), **FIRST)(layers.MaxPooling2D(3, 2, "same", **FIRST)(x))
    x = layers.Add()([x, layers.Softmax(axis=1)(x)])
    x = layers.UpSampling2D(2, **FIRST)(layers.SeparableConv2D(10, 3, **(more or FIRST))(x))
    parts = [layers.Flatten()(x), layers.Flatten(**FIRST)(x), layers.GlobalAveragePooling2D(**FIRST)(x)]
    made = keras.Model(
        image, layers.Dense(5)(layers.Concatenate()([layers.Dense(4)(part) for part in parts]))
    )
    random = np.random.default_rng(0)
    numbers = [random.normal(0, 0.3, variable.shape) for variable in made.weights]
    pairs = zip(made.weights, numbers, strict=True)
    made.set_weights(
        [np.abs(array) + 0.1 if "variance" in variable.path else array for variable, array in pairs]
    )
    return made


def test_a_model_is_what_keras_computes(tmp_path: Path) -> None:
    made, file = model(), tmp_path / "model.keras"
    made.save(file)
    images = np.random.default_rng(1).normal(0, 1, (2, 3, 13, 18)).astype(np.float32)
    wanted = np.asarray(made(images))
    port = porter.convert(file, to="torch", out=tmp_path / "port")
    assert port.verdict is not None and port.verdict.ok
    with torch.no_grad():
        found = porter.load(tmp_path / "port")(torch.from_numpy(images)).numpy()
    assert np.linalg.norm(found - wanted) <= 1e-5 * np.linalg.norm(wanted)


def as_torch_runs_it(file: Path, images: Array) -> Array:
    """What Keras on torch computes: on TensorFlow it lacks these layers on a CPU."""
    code = (
        "import sys, keras, numpy as np; _, file, given = sys.argv; "
        "np.save(given, keras.saving.load_model(file).predict(np.load(given)))"
    )
    given = file.with_suffix(".npy")
    np.save(given, images)
    environment = {**os.environ, "KERAS_BACKEND": "torch", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(
        [sys.executable, "-c", code, str(file), str(given)], check=True, env=environment, capture_output=True
    )
    found: Array = np.load(given)
    return found


def mixed(keras: Any) -> tuple[Any, Any]:
    """Convolutions with channels first in a model that has them last, and a dilated transposed one."""
    layers, image = keras.layers, keras.Input((9, 11, 3))
    x = layers.Conv2D(6, 3, strides=2, padding="same", activation="softmax", **FIRST)(image)
    x = layers.Conv2DTranspose(4, 3, strides=2, activation="relu", **FIRST)(
        layers.SeparableConv2D(5, 2, **FIRST)(x)
    )
    x = layers.Conv2DTranspose(5, 3, dilation_rate=2, padding="same")(layers.Permute((2, 3, 1))(x))
    return image, layers.Conv2DTranspose(3, (2, 3), dilation_rate=(3, 1), output_padding=0)(x)


def first_throughout(keras: Any) -> tuple[Any, Any]:
    """A softmax along the columns, which is none of channels."""
    layers, image = keras.layers, keras.Input((3, 8, 9))
    x = layers.Conv2D(4, 3, activation="softmax", **FIRST)(image)
    return image, layers.Flatten()(
        layers.BatchNormalization(axis=1)(layers.Conv2D(5, 3, strides=2, padding="same", **FIRST)(x))
    )


@pytest.mark.parametrize("make", [mixed, pytest.param(first_throughout, marks=pytest.mark.full)])
def test_layers_that_run_on_torch_only(make: Callable[[Any], tuple[Any, Any]], tmp_path: Path) -> None:
    made, file = import_keras().Model(*make(import_keras())), tmp_path / "model.keras"
    random = np.random.default_rng(2)
    for weight in made.weights:
        sign = random.choice([-1, 1], weight.shape) if "variance" not in weight.path else 1
        weight.assign(random.uniform(0.2, 1, weight.shape) * sign)
    made.save(file)
    images = random.normal(0, 1, (2, *made.input_shape[1:])).astype(np.float32)
    wanted = as_torch_runs_it(file, images)
    port = porter.convert(file, to="torch", out=tmp_path / "port")
    assert port.verdict is not None and port.verdict.ok
    given = images if make is first_throughout else images.transpose(0, 3, 1, 2)
    with torch.no_grad():
        found = porter.load(tmp_path / "port")(torch.from_numpy(np.ascontiguousarray(given))).numpy()
    found = found.transpose(0, 2, 3, 1) if found.ndim == 4 else found
    assert found.shape == wanted.shape and np.linalg.norm(found - wanted) <= 1e-5 * np.linalg.norm(wanted)


@pytest.mark.parametrize(
    ("make", "kind", "wrong"),
    [
        (lambda keras: model(), "Permute", {"dims": [1, 2, 3]}),  # a map is flattened with channels last
        (lambda keras: model(), "Softmax", {"axis": 1}),  # along the rows
        (lambda keras: keras.Model(*first_throughout(keras)), "Activation", {"activation": "linear"}),
    ],
)
def test_a_mistake_in_turning_is_not_shared_by_the_reference(
    make: Callable[[Any], Any],
    kind: str,
    wrong: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "model.keras"
    make(import_keras()).save(file)

    def wrongly(text: str | bytes, where: str) -> Flow | None:
        flow = channels_first.read_calls(text, where)
        assert flow is not None
        calls = [replace(call, arguments=wrong) if call.kind == kind else call for call in flow.calls]
        return replace(flow, calls=tuple(calls))

    for module in (graph, build):
        monkeypatch.setattr(module, "read_calls", wrongly)
    with pytest.raises(porter.CheckFailed):
        porter.convert(file, to="torch", out=tmp_path / "port")
