"""TensorFlow Lite's interpreter as a witness: what porter would read wrongly on both sides of the proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import CannotRun, Contradiction
from porter.formats.reading import read_checkpoint
from porter.formats.tensorflow import import_tensorflow
from porter.formats.tflite import model
from porter.formats.tflite.model import read_model
from porter.frameworks.tflite.witness import NAME, disagreement

tf = import_tensorflow()
SIZE = (9, 8)


def network() -> Any:
    random = np.random.default_rng(0)
    kernel, dense = (
        tf.constant(random.normal(0, 0.4, shape), tf.float32) for shape in ((3, 3, 3, 8), (8, 5))
    )

    @tf.function(input_signature=[tf.TensorSpec((1, *SIZE, 3), tf.float32)])
    def compute(image: Any) -> list[Any]:
        x = tf.nn.gelu(tf.nn.relu6(tf.nn.conv2d(image, kernel, 1, "SAME")) - 0.5)
        x = tf.maximum(x, 0.2) + tf.nn.leaky_relu(x, 0.1) * tf.nn.elu(x)
        return [tf.reduce_mean(x, [1, 2]) @ dense, tf.nn.softmax(tf.concat([x, -x], 3))]

    return compute


def written(path: Path, weights: str = "float32") -> Path:
    source = network()
    made = tf.lite.TFLiteConverter.from_concrete_functions([source.get_concrete_function()], tf.Module())
    made.optimizations = [] if weights == "float32" else [tf.lite.Optimize.DEFAULT]
    made.target_spec.supported_types = [tf.float16] if weights == "float16" else []
    path.write_bytes(made.convert())
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("lite") / "model.tflite")


def said(file: Path, whole: bool = True) -> str | None:
    return disagreement(read_checkpoint(file), SIZE, whole)


@pytest.mark.parametrize("weights", ["float16", "dynamic"])
def test_right_files_of_smaller_weights(weights: str, tmp_path: Path) -> None:
    assert said(written(tmp_path / "model.tflite", weights)) is None


def swapped(names: Any, one: str, other: str) -> Any:
    if isinstance(names, Mapping):
        return dict(zip(names, swapped(tuple(names.values()), one, other), strict=True))
    return tuple({one: other, other: one}.get(name, name) for name in names)


TABLES = {
    "an operator's number": ("_LATER", lambda: swapped(model._LATER, "GELU", "RELU_0_TO_1"), "GELU|RELU_0"),
    "two operators": ("_CODES", lambda: swapped(model._CODES, "MAXIMUM", "MINIMUM"), "MINIMUM"),
    "an activation": ("_ACTIVATIONS", lambda: swapped(model._ACTIVATIONS, "RELU", "RELU6"), "RELU"),
    "its place": ("_ACTIVATED", lambda: {**model._ACTIVATED, "CONV_2D": 4}, "CONV_2D"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_mistake_in_a_table_is_refused(name: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, wrong, op = TABLES[name]
    assert said(file) is None
    monkeypatch.setattr(model, table, wrong())
    found = said(file)
    assert found is not None and found.startswith("porter and TensorFlow Lite's interpreter disagree on '")
    assert any(f"({each}" in found for each in op.split("|"))


@pytest.mark.parametrize(("kind", "field"), [("i", 0), ("f", 0), ("B", 0)], ids=["axis", "slope", "kept"])
def test_an_option_that_is_read_wrongly_is_refused(
    kind: str, field: int, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An axis by one, a slope by 1 %, and a flag: both sides read them by `Operator.scalar`."""
    right = model.Operator.scalar

    def wrong(self: Any, place: int, given: str, default: Any = 0) -> Any:
        value = right(self, place, given, default)
        if (place, given) != (field, kind):
            return value
        return {"i": lambda: value - 1, "f": lambda: value * 1.01, "B": lambda: value ^ 1}[kind]()

    checkpoint = read_checkpoint(file)
    monkeypatch.setattr(model.Operator, "scalar", wrong)
    found = disagreement(checkpoint, SIZE, True)
    assert found is not None and "disagree on" in found


def test_the_proof_refuses_it_and_says_what_is_held(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = porter.convert(file, to="torch", out=tmp_path / "right")
    assert made.verdict is not None
    assert made.verdict.held == ("the file's operators and tensors: held to TensorFlow Lite's interpreter",)
    with monkeypatch.context() as wrong:
        wrong.setattr(model, "_LATER", swapped(model._LATER, "GELU", "SIGN"))
        with pytest.raises(Contradiction, match="porter and TensorFlow Lite's interpreter disagree"):
            porter.convert(file, to="torch", out=tmp_path / "wrong")
    monkeypatch.setattr("porter.frameworks.tflite.witness.find_spec", lambda name: None)
    made = porter.convert(file, to="torch", out=tmp_path / "without")
    assert made.verdict is not None and made.verdict.ok
    assert made.verdict.held == (
        "the file's operators and tensors: by porter's reading only, because neither tensorflow nor "
        "ai-edge-litert is installed",
    )


def test_outputs_that_porter_leaves_out(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = read_checkpoint(file).carried.output_names
    assert said(file) is None and len(names) == 2

    def shorter(data: bytes) -> Any:
        found = read_model(data)
        return replace(found, ends=found.ends[:1])

    monkeypatch.setattr("porter.formats.tflite.read.read_model", shorter)
    assert said(file) == f"{NAME} gives 2 outputs of the model, and porter reads 1"
    assert said(file, whole=False) is None


def test_what_porter_cannot_compute_from_the_interpreters_values(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("porter.frameworks.tflite.witness.IMAGE", "another input")
    found = said(file)
    assert found is not None and found.startswith("porter's engine cannot run the model from the values of ")


def test_what_the_interpreter_does_not_run(file: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(file)
    broken = tmp_path / "model.tflite"
    broken.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(CannotRun, match="TensorFlow Lite's interpreter cannot read it"):
        disagreement(replace(checkpoint, path=broken), SIZE, True)
