"""Layers and modules that a network calls several times: a port has their tensors once, where its framework
can.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx
import pytest
import torch
from torch import nn

import porter
from porter.base.errors import GraphError
from porter.formats.mxnet.params_file import read_arrays
from porter.formats.safetensors.tensors import read_safetensors
from porter.graph import Conv, shapes
from porter.graph.record import from_record, to_record
from porter.padding import ANY
from porter.port import StoredPort
from tests.support.ops import op_at
from tests.support.torch_onnx import export_to_onnx

pytestmark = pytest.mark.usefixtures("in_double")

SIZE = 24


class Heads(nn.Module):
    """One head for maps of two sizes, as RetinaNet has it, and one layer before two norms."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.down = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1)
        self.head = nn.Sequential(
            nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.PReLU(8), nn.Conv2d(8, 4, 1)
        )
        self.conv, self.norm1, self.norm2 = nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fine = torch.relu(self.stem(x))
        coarse = torch.relu(self.down(fine))
        normed = self.norm1(self.conv(fine)).mean((2, 3)) + self.norm2(self.conv(coarse)).mean((2, 3))
        return torch.cat([self.head(fine).mean((2, 3)), self.head(coarse).mean((2, 3)), normed], 1)


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    torch.manual_seed(0)
    network, folder, images = Heads(), tmp_path_factory.mktemp("heads"), torch.randn(8, 3, SIZE, SIZE)
    for norm in network.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.momentum = None
            nn.init.normal_(norm.weight, 1, 0.2)
            nn.init.normal_(norm.bias, 0, 0.2)
    with torch.no_grad():
        network.train()(images)
    dynamic = ({0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(
            torch.export.export(network.eval(), (images,), dynamic_shapes=dynamic), folder / "heads.pt2"
        )
        axes = {"x": {0: "N", 2: "H", 3: "W"}}
        torch.onnx.export(
            network, (images,), folder / "heads.onnx", dynamo=False, input_names=["x"], dynamic_axes=axes
        )
    return network, folder


@pytest.fixture(scope="module")
def port(heads: tuple[nn.Module, Path]) -> StoredPort:
    folder = heads[1] / "torch"
    return porter.convert(heads[1] / "heads.pt2", to="torch", out=folder, input_size="any").port


def kernels(folder: Path, to: str) -> int:
    """How many kernels of convolutions a port's file has."""
    if to == "torch":
        return sum(
            array.ndim == 4 for array in read_safetensors(folder / "model.safetensors").tensors.values()
        )
    if to == "onnx":
        return sum(len(tensor.dims) == 4 for tensor in onnx.load(folder / "model.onnx").graph.initializer)
    if to == "mxnet":
        return sum(
            array.ndim == 4 for array in read_arrays((folder / "model-0000.params").read_bytes()).values()
        )
    return sum(
        len(weight.shape) == 4 for weight in keras.models.load_model(folder / "model.keras").trainable_weights
    )


@pytest.mark.parametrize(
    ("file", "to"),
    [("heads.onnx", "torch"), ("heads.pt2", "tf"), ("heads.pt2", "onnx"), ("heads.onnx", "mxnet")],
)
def test_a_port_has_their_tensors_once(
    heads: tuple[nn.Module, Path], file: str, to: str, tmp_path: Path
) -> None:
    made = porter.convert(heads[1] / file, to=to, out=tmp_path / "port", input_size=SIZE).port
    assert made.record.proved and not any("share" in note for note in made.record.source.notes)
    once = 5 if file == "heads.pt2" else 6  # the exporter folds both norms behind the one convolution
    assert kernels(tmp_path / "port", to) == once


def test_caffe_calls_them_by_one_name(heads: tuple[nn.Module, Path], tmp_path: Path) -> None:
    made = porter.convert(heads[1] / "heads.pt2", to="caffe", out=tmp_path / "port", input_size=SIZE).port
    layers = [
        line
        for line in (tmp_path / "port" / "model.prototxt").read_text().splitlines()
        if 'param { name: "' in line
    ]
    names = [re.findall(r'param { name: "([^"]+)" }', line) for line in layers]
    assert made.record.proved and len(names) == 12 and len({tuple(each) for each in names}) == 6


def test_torch_calls_one_module(heads: tuple[nn.Module, Path], port: StoredPort) -> None:
    text = (port.folder / "model.py").read_text()
    assert (
        text.count("self.head = ") == 1 and text.count("self.head(") == 2 and text.count("self.conv(") == 2
    ), text
    scope: dict[str, Any] = {"__file__": str(port.folder / "model.py")}
    exec(compile(text, "model.py", "exec"), scope)
    images = torch.randn(2, 3, 33, 28)
    with torch.inference_mode():
        wanted = heads[0](images)
        torch.testing.assert_close(scope["load"]()(images), wanted)
        torch.testing.assert_close(porter.load(port.folder)(images), wanted)


def test_what_was_trained_comes_home(port: StoredPort, tmp_path: Path) -> None:
    model = porter.load(port.folder)
    for tensor in model.parameters():
        tensor.data *= 1.1
    torch.save(model.state_dict(), tmp_path / "tuned.pth")
    made = porter.convert(port.folder, weights=tmp_path / "tuned.pth", to="onnx", out=tmp_path / "port")
    images = np.random.default_rng(0).standard_normal((2, 3, SIZE, SIZE)).astype("f")
    with torch.inference_mode():
        wanted = model(torch.from_numpy(images)).numpy()
    assert made.port.record.proved
    np.testing.assert_allclose(
        np.asarray(porter.load(tmp_path / "port")(images)), wanted, rtol=1e-4, atol=1e-5
    )


def test_a_norm_is_folded_where_it_follows_every_call(heads: tuple[nn.Module, Path], tmp_path: Path) -> None:
    made = porter.convert(
        heads[1] / "heads.pt2", to="torch", out=tmp_path / "port", input_size=SIZE, fold_bn=True
    ).port
    folded = made.record.folded
    assert made.record.proved and folded is not None and len(folded) == 2
    assert len({made.graph.by_path[path].holder for path in folded}) == 1 and not any(
        "norm1" in norm for norm in folded.values()
    )


def test_one_call_by_itself_is_no_other_layer(port: StoredPort) -> None:
    graph = port.graph
    call = next(node for node in graph.nodes if node.shares and isinstance(node.op, Conv))
    conv = op_at(graph, call.path)
    assert from_record(to_record(graph)) == graph
    for wrong in (
        replace(call, op=replace(conv, filters=conv.filters + 1)),
        replace(call, shares="nowhere"),
        replace(call, shares=call.path),
    ):
        nodes = tuple(wrong if node is call else node for node in graph.nodes)
        with pytest.raises(GraphError, match="no layer that could be called here too"):
            shapes(replace(graph, nodes=nodes), ANY)


def test_a_port_of_older_porter_has_copies(port: StoredPort) -> None:
    record = to_record(port.graph)
    for node in record["nodes"]:
        node.pop("shares", None)
    assert all(node.shares is None for node in from_record(record).nodes)


@pytest.mark.parametrize("dynamo", [False, True])
def test_norms_that_an_exporter_joins_are_layers_by_themselves(dynamo: bool, tmp_path: Path) -> None:
    """torch.onnx states the tensors of norms that were never trained once."""
    torch.manual_seed(0)
    shared = nn.Conv2d(8, 8, 1)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.Tanh(), nn.BatchNorm2d(8), shared, nn.Tanh(), nn.BatchNorm2d(8), shared
    ).eval()
    image, file = torch.randn(1, 3, SIZE, SIZE), tmp_path / "model.onnx"
    export_to_onnx(network, (image,), file, dynamo=dynamo, external_data=False)
    made = porter.convert(file, to="torch", out=tmp_path / "port").port
    assert made.record.proved and sorted(node.op_name for node in made.graph.nodes if node.shares) == ["conv"]
    assert any("a copy for each" in note for note in made.record.source.notes)


def of_keras(calls: Callable[[Any, Mapping[str, Any]], Any], path: Path) -> Path:
    keras.utils.set_random_seed(0)
    image, layers = keras.Input((SIZE, SIZE, 3)), keras.layers
    shared = {
        "same": layers.Conv2D(8, 3, padding="same", name="same"),
        "strided": layers.Conv2D(8, 3, strides=2, padding="same", name="strided"),
        "norm": layers.BatchNormalization(name="norm"),
        "dense": layers.Dense(5, name="dense"),
    }
    model = keras.Model(image, calls(layers.Conv2D(8, 3, padding="same", name="stem")(image), shared))
    for weight in model.weights:
        weight.assign(
            np.random.default_rng(len(weight.path)).uniform(0.4, 1.2, weight.shape)
            - 0.6 * (weight.name == "kernel")
        )
    model.save(path)
    return path


def in_turn(value: Any, shared: Mapping[str, Any]) -> Any:
    """A layer after itself, and a deep call of a layer that has a shallow one: Keras orders the layers by the
    deepest.
    """
    pooled = keras.layers.GlobalAveragePooling2D()
    deep = shared["norm"](shared["same"](keras.ops.relu(shared["same"](value))))
    return shared["dense"](pooled(deep)) + shared["dense"](
        keras.layers.GlobalMaxPooling2D()(shared["norm"](value))
    )


def of_two_sizes(value: Any, shared: Mapping[str, Any]) -> Any:
    """`same` pads even and odd maps in other ways, which torch states in its layers."""
    odd = keras.layers.Cropping2D(((0, 1), (0, 1)))(value)
    pooled = [keras.layers.GlobalAveragePooling2D()(shared["strided"](each)) for each in (value, odd)]
    return keras.layers.Concatenate()(pooled)


@pytest.mark.parametrize("to", ["torch", "tf"])
@pytest.mark.parametrize("form", ["keras", pytest.param("h5", marks=pytest.mark.full)])
def test_layers_of_keras(form: str, to: str, tmp_path: Path) -> None:
    made = porter.convert(of_keras(in_turn, tmp_path / f"model.{form}"), to=to, out=tmp_path / "port")
    assert made.port.record.proved and kernels(tmp_path / "port", to) == 2
    if to == "tf":
        nodes = {
            layer.name: len(layer._inbound_nodes)
            for layer in keras.models.load_model(tmp_path / "port" / "model.keras").layers
        }
        assert nodes["same"] == nodes["norm"] == nodes["dense"] == 2


@pytest.mark.parametrize(("to", "count"), [("torch", 3), ("tf", 2), ("onnx", 2)])
def test_a_call_that_is_padded_otherwise_is_a_copy(to: str, count: int, tmp_path: Path) -> None:
    made = porter.convert(of_keras(of_two_sizes, tmp_path / "model.keras"), to=to, out=tmp_path / "port")
    assert made.port.record.proved and kernels(tmp_path / "port", to) == count
    assert any("has a copy of the tensors of" in warning for warning in made.warnings) == (count == 3)
