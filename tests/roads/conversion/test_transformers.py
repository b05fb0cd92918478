"""Transformers and detectors of Keras and TensorFlow without a recipe: to every destination, and back from
what porter wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import PorterError
from porter.filegraph.tensors.attention import AttentionScores
from porter.filegraph.tensors.einsum import Equation, Kernel
from porter.filegraph.tensors.several import attention
from porter.filegraph.tensors.tensor import Tensor
from porter.formats.keras import attention as keras_attention
from porter.frameworks.tf.runtime import import_keras

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.usefixtures("one_recipe", "in_double")
SIDE, CHANNELS = 24, 9


@pytest.fixture(scope="module")
def model() -> Any:
    """Tokens of patches with positions, attention whose heads are as many as the channels of each, and boxes
    over two maps.
    """
    keras = import_keras()
    layers, ops = keras.layers, keras.ops
    keras.utils.set_random_seed(2)
    image = keras.Input((SIDE, SIDE, 3))
    patches = layers.Conv2D(CHANNELS, 8, strides=8)(image)
    tokens = layers.Reshape((-1, CHANNELS))(patches) + np.random.default_rng(1).normal(
        size=(9, CHANNELS)
    ).astype("float32")
    normal = layers.LayerNormalization(epsilon=1e-6)(tokens)
    tokens = layers.Add()([tokens, layers.MultiHeadAttention(3, 3, name="attention")(normal, normal)])
    tokens = layers.Add()([tokens, layers.Dense(CHANNELS)(layers.Dense(18, activation="gelu")(tokens))])
    wide = layers.Conv2D(8, 3, strides=4, padding="same", activation="relu")(image)
    boxes = [
        layers.Reshape((-1, 1, 4))(layers.Conv2D(8, 1)(each)) for each in (wide, layers.MaxPooling2D(2)(wide))
    ]
    found = ops.squeeze(layers.Concatenate(axis=1)(boxes), axis=2)
    made = keras.Model(image, [layers.GlobalAveragePooling1D()(tokens), ops.transpose(found, (0, 2, 1))])
    random = np.random.default_rng(3)
    for weight in made.weights:
        weight.assign(random.normal(1 if "gamma" in weight.path else 0, 0.3, weight.shape))
    return made


def written(model: Any, form: str, folder: Path) -> Path:
    if form == "saved-model":
        model.export(folder / "model", verbose=False)
        return folder / "model"
    model.save(folder / f"model.{form}")
    return folder / f"model.{form}"


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.parametrize(
    ("form", "destination"),
    [
        ("keras", "torch"),
        ("h5", "onnx"),
        ("saved-model", "tf"),
        # A form and a destination that CI has in other pairs.
        *(
            pytest.param(*pair, marks=pytest.mark.full)
            for pair in (("keras", "onnx"), ("keras", "tf"), ("saved-model", "torch"))
        ),
    ],
)
def test_there_and_back(form: str, destination: str, model: Any, tmp_path: Path) -> None:
    made = porter.convert(written(model, form, tmp_path), to=destination, out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.ok and made.verdict.proof.logits.rel_l2 <= 1e-12
    if destination != "tf":
        return
    for further in ("torch", "onnx"):
        again = porter.convert(tmp_path / "port" / "model.keras", to=further, out=tmp_path / further)
        assert again.verdict is not None and again.verdict.ok and again.verdict.proof.logits.rel_l2 <= 1e-12


def test_the_port_gives_what_keras_gives(model: Any, tmp_path: Path) -> None:
    porter.convert(written(model, "keras", tmp_path), to="onnx", out=tmp_path / "port", check=False)
    image = np.random.default_rng(5).normal(size=(2, SIDE, SIDE, 3)).astype("float32")
    for ours, theirs in zip(
        porter.load(tmp_path / "port")(image.transpose(0, 3, 1, 2)), model(image), strict=True
    ):
        assert ours.shape == theirs.shape and np.allclose(ours, theirs, atol=1e-4)


Planted = Callable[[pytest.MonkeyPatch], None]


def _keys_for_queries(patch: pytest.MonkeyPatch) -> None:
    right, other = keras_attention._apply_part, {"query": "key", "key": "query"}

    def wrong(layer: Any, part: str, x: Tensor, equation: Equation) -> Tensor:
        return right(layer, other.get(part, part), x, equation)

    patch.setattr(keras_attention, "_apply_part", wrong)


def _heads_for_channels(patch: pytest.MonkeyPatch) -> None:
    right = Tensor.with_kernel

    def wrong(x: Tensor, equation: Equation, kernel: Kernel) -> Tensor:
        return right(x, Equation(*(axes.replace("chd", "cdh") for axes in equation)), kernel)

    patch.setattr(Tensor, "with_kernel", wrong)


def _heads_in_another_order(patch: pytest.MonkeyPatch) -> None:
    def wrong(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention(query, key, value.transpose([0, 2, 1, 3]).reshape(value.sizes))

    patch.setattr(keras_attention, "attention", wrong)


def _no_scale(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keras_attention, "attention", partial(attention, scores=AttentionScores(scale=1.0)))


@pytest.mark.parametrize(
    "plant", [_keys_for_queries, _heads_for_channels, _heads_in_another_order, _no_scale]
)
def test_a_mistake_in_an_attention_is_refused(
    plant: Planted, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(model, "keras", tmp_path)
    plant(monkeypatch)
    with pytest.raises(
        PorterError, match="the port is not the source's function: attention is the first node that differs"
    ):
        porter.convert(path, to="torch", out=tmp_path / "port")
    assert not (tmp_path / "port").exists()


OWN_CODE = """
import keras

def model():
    layers = keras.layers
    image = keras.Input((8, 6, 3))
    windows = layers.Reshape((4, 2, 6, 3), name="windows")(layers.Conv2D(3, 1, name="conv")(image))
    turned = layers.Permute((1, 3, 2, 4), name="turned")(windows)
    moved = layers.Permute((3, 1, 2), name="moved")(layers.Reshape((4, 12, 3), name="cells")(turned))
    return keras.Model(image, [moved, layers.Dense(2, name="dense")(moved)])
"""


def test_arrays_of_a_users_own_code(tmp_path: Path) -> None:
    """Four axes of a Keras model are a map only where the source says so."""
    (tmp_path / "code.py").write_text(OWN_CODE)
    scope: dict[str, Any] = {}
    exec(OWN_CODE, scope)
    scope["model"]().save(tmp_path / "model.keras")
    made = porter.convert(
        tmp_path / "model.keras", out=tmp_path / "port", reference=f"{tmp_path / 'code.py'}:model"
    )
    assert made.verdict is not None and made.verdict.ok and made.verdict.user_proof is not None
    assert made.verdict.user_proof.parities and all(parity.ok for parity in made.verdict.user_proof.parities)
