"""Models of several inputs: two images, or an image and numbers that belong to it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import porter
from porter.authoring.new_recipe import new_recipe
from porter.base.errors import PorterError, UsageError

pytestmark = pytest.mark.usefixtures("in_double")


class Pair(nn.Module):
    """One tower for two images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.MaxPool2d(3, 2, 1), nn.Linear(8, 4)

    def tower(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(torch.relu(self.conv(x))).mean((2, 3))

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return self.head(self.tower(left) - 2 * self.tower(right))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    torch.manual_seed(0)
    network, folder = Pair().eval(), tmp_path_factory.mktemp("pair")
    images = torch.randn(2, 3, 32, 48), torch.randn(2, 3, 32, 48)
    open_axes = {0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
    axes = {name: {0: "N", 2: "H", 3: "W"} for name in ("left", "right")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(
            torch.export.export(network, images, dynamic_shapes=(open_axes, open_axes)), folder / "pair.pt2"
        )
        torch.onnx.export(
            network, images, folder / "pair.onnx", dynamo=False, input_names=[*axes], dynamic_axes=axes
        )
    return network, folder


def given(folder: Path, *inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What a port gives for float32 maps N x C x H x W and other values."""
    model, last = porter.load(folder), json.loads((folder / "port.json").read_text())["framework"] == "tf"
    if isinstance(model, nn.Module):
        with torch.inference_mode():
            return model(*map(torch.from_numpy, inputs)).numpy()
    if last:
        return np.asarray(model([each.transpose(0, 2, 3, 1) if each.ndim == 4 else each for each in inputs]))
    return np.asarray(model(*inputs))


@pytest.mark.parametrize("to", ["torch", "tf", "onnx"])
@pytest.mark.parametrize("file", ["pair.onnx", "pair.pt2"])
def test_two_images(pair: tuple[nn.Module, Path], file: str, to: str, tmp_path: Path) -> None:
    network, folder = pair
    made = porter.convert(folder / file, to=to, out=tmp_path / "port", input_size="any")
    assert made.port.record.proved and made.port.record.input.size is None
    left, right = (np.random.default_rng(seed).standard_normal((2, 3, 33, 40)).astype("f") for seed in (1, 2))
    with torch.inference_mode():
        wanted = network(torch.from_numpy(left), torch.from_numpy(right)).numpy()
    np.testing.assert_allclose(given(tmp_path / "port", left, right), wanted, rtol=1e-4, atol=1e-5)


def test_model_py_takes_them(pair: tuple[nn.Module, Path], tmp_path: Path) -> None:
    porter.convert(pair[1] / "pair.onnx", to="torch", out=tmp_path / "port", input_size=32, check=False)
    text = (tmp_path / "port" / "model.py").read_text()
    assert (
        text.startswith('"""Input: N x 3 x H x W, any size; right: N x 3 x H x W.')
        and "def forward(self, x, right):" in text
    )
    scope: dict[str, Any] = {"__file__": str(tmp_path / "port" / "model.py")}
    exec(compile(text, "model.py", "exec"), scope)
    left, right = torch.randn(2, 3, 20, 32), torch.randn(2, 3, 20, 32)
    with torch.inference_mode():
        torch.testing.assert_close(scope["load"]()(left, right), pair[0](left, right))


def test_swapped_inputs_are_another_function(pair: tuple[nn.Module, Path], tmp_path: Path) -> None:
    folder, file = tmp_path / "port", pair[1] / "pair.onnx"
    porter.convert(file, to="onnx", out=folder, input_size=32, check=False)
    record = json.loads((folder / "port.json").read_text())
    other = {"input": "right", "right": "input"}
    for node in record["graph"]["nodes"]:
        node["inputs"] = [other.get(path, path) for path in node["inputs"]]
    (folder / "port.json").write_text(json.dumps(record))
    assert not porter.verify(folder, weights=file).ok


def test_what_takes_one_input_says_so(pair: tuple[nn.Module, Path], tmp_path: Path) -> None:
    file = pair[1] / "pair.onnx"
    for to in ("caffe", "mxnet"):
        with pytest.raises(
            PorterError,
            match=r"right: porter writes nets of \w+ with one input .port it to torch, tf or onnx",
        ):
            porter.convert(file, to=to, out=tmp_path / to, input_size=32)
    porter.convert(file, to="torch", out=tmp_path / "port", input_size=32, check=False)
    with pytest.raises(
        UsageError,
        match=r"takes several inputs, and porter feeds photos only: input, right \(N x 3 x H x W\)",
    ):
        porter.predict(tmp_path / "port", [tmp_path / "photo.jpg"])
    with pytest.raises(UsageError, match="a recipe's graph has one input, and this model takes more"):
        new_recipe("own", tmp_path / "own.yaml", file)
    with pytest.raises(UsageError, match="the model takes 2 inputs, got 1"):
        porter.load(tmp_path / "port")(torch.zeros(1, 3, 32, 32))


@pytest.fixture(scope="module")
def with_numbers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A Keras model of numbers and an image, in this order."""
    tf, keras = pytest.importorskip("tensorflow"), pytest.importorskip("keras")
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    folder = tmp_path_factory.mktemp("numbers")
    keras.utils.set_random_seed(0)
    layers, numbers, image = (
        keras.layers,
        keras.Input((5,), name="numbers"),
        keras.Input((32, 32, 3), name="input"),
    )
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(8, 3, 2, "same", activation="relu")(image))
    x = layers.Concatenate()([x, layers.Dense(6, activation="tanh")(numbers)])
    model = keras.Model([numbers, image], layers.Dense(4)(x))
    model.save(folder / "numbers.keras")
    specs = [tf.TensorSpec(each.shape, each.dtype, each.name) for each in model.inputs]
    concrete = tf.function(lambda *inputs: model(list(inputs))).get_concrete_function(*specs)
    (folder / "numbers.pb").write_bytes(
        convert_variables_to_constants_v2(concrete).graph.as_graph_def().SerializeToString()
    )
    (folder / "numbers.tflite").write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    model.export(folder / "saved", verbose=False)
    return model, folder


@pytest.mark.parametrize(
    ("file", "to"),
    [
        ("numbers.keras", "torch"),
        ("numbers.keras", "tf"),
        ("numbers.pb", "onnx"),
        ("saved", "tf"),
        ("numbers.tflite", "torch"),
        ("numbers.tflite", "onnx"),
    ],
)
def test_an_image_and_numbers(with_numbers: tuple[Any, Path], file: str, to: str, tmp_path: Path) -> None:
    model, folder = with_numbers
    made = porter.convert(folder / file, to=to, out=tmp_path / "port")
    record = made.port.record
    assert record.proved and record.input_layouts == (record.input.layout, "NC")
    assert [each["axes"] for each in record.graph["further_inputs"]] == [[5]]
    rng = np.random.default_rng(0)
    image, numbers = rng.standard_normal((2, 3, 32, 32)).astype("f"), rng.standard_normal((2, 5)).astype("f")
    wanted = np.asarray(model([numbers, image.transpose(0, 2, 3, 1)]))
    np.testing.assert_allclose(given(tmp_path / "port", image, numbers), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("size", "to"), [((32, 48), "torch"), ((None, None), "onnx")])
def test_two_images_of_tensorflow_lite(size: tuple[int | None, int | None], to: str, tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    kernel = tf.constant(np.random.default_rng(0).normal(0, 0.3, (3, 3, 3, 4)), tf.float32)

    def pair(left: Any, right: Any) -> Any:
        first = tf.nn.relu(tf.nn.conv2d(left, kernel, 2, "SAME"))
        return tf.identity(
            tf.reduce_mean(first - 2 * tf.nn.relu(tf.nn.conv2d(right, kernel, 2, "SAME")), [1, 2]), "end"
        )

    def written(kind: Any) -> bytes:
        specs = [tf.TensorSpec((None, *size, 3), tf.float32, name="left"), kind]
        made = tf.function(
            lambda left, right: pair(left, tf.cast(right, tf.float32)), specs
        ).get_concrete_function()
        return bytes(tf.lite.TFLiteConverter.from_concrete_functions([made], tf.Module()).convert())

    file = tmp_path / "pair.tflite"
    file.write_bytes(written(tf.TensorSpec((None, *size, 3), tf.float32, name="right")))
    made = porter.convert(file, to=to, out=tmp_path / "port", input_size=None if size[0] else "any")
    assert made.port.record.proved
    maps = [np.random.default_rng(seed).standard_normal((2, 3, 32, 48)).astype("f") for seed in (1, 2)]
    wanted = pair(*(each.transpose(0, 2, 3, 1) for each in maps)).numpy()
    np.testing.assert_allclose(given(tmp_path / "port", *maps), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(given(tmp_path / "port", *maps[::-1]), wanted, rtol=1e-4, atol=1e-5)
    file.write_bytes(written(tf.TensorSpec((None, *size, 3), tf.int32, name="right")))
    with pytest.raises(PorterError, match="beside it only real numbers of stated sizes"):
        porter.convert(file, to=to, out=tmp_path / "other")


def test_two_networks_in_one_graph_are_not_one(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    with tf.Graph().as_default() as graph:
        for name in ("a", "b"):
            tf.nn.relu(tf.compat.v1.placeholder("float32", (None, 8, 8, 3), name=name), name=f"end_{name}")
    file = tmp_path / "two.pb"
    file.write_bytes(graph.as_graph_def().SerializeToString())
    with pytest.raises(PorterError, match="2 inputs, 'a', 'b'"):
        porter.convert(file, to="onnx", out=tmp_path / "port")
    made = porter.convert(file, to="onnx", out=tmp_path / "port", outputs=["end_b"])
    assert (
        made.port.record.graph["nodes"][0]["inputs"] == ["input"]
        and "further_inputs" not in made.port.record.graph
    )


def test_an_input_of_another_batch_is_none_of_each_image(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Mul", ["x", "scale"], ["y"])
    taken = [value("x", 1, ("N", 3, 8, 8)), value("scale", 1, (1, 3, 8, 8))]
    graph = onnx.helper.make_graph([node], "g", taken, [value("y", 1, ("N", 3, 8, 8))])
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9),
        tmp_path / "a.onnx",
    )
    with pytest.raises(PorterError, match="inputs of one batch are expected"):
        porter.convert(tmp_path / "a.onnx", to="torch", out=tmp_path / "port")
