"""Layers that act in training only: a port lacks them, and says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx
import pytest
import torch
from keras import layers
from torch import nn

import porter
from porter.base.errors import PorterError
from porter.base.left_out import LeftOut
from porter.formats.reading import read_checkpoint
from porter.graph import Dropout
from porter.port import read_port
from tests.support.caffe_files import write_caffe
from tests.support.fixtures import Cli
from tests.support.frameworks.flax.generated import loaded
from tests.support.mxnet_files import Line, write_mxnet
from tests.support.ops import op_at
from tests.support.refusals import refused
from tests.support.torch7_files import Module, write_torch7

pytestmark = pytest.mark.usefixtures("in_double")


def flowers(folder: Path) -> Path:
    image = keras.Input((16, 16, 3))
    value = layers.RandomRotation(0.1, name="turned")(layers.RandomFlip("horizontal", name="flipped")(image))
    value = layers.GaussianNoise(0.25, name="noise")(
        layers.Conv2D(4, 3, activation="relu", name="stem")(value)
    )
    value = layers.SpatialDropout2D(0.1, name="maps")(layers.BatchNormalization(name="norm")(value))
    value = layers.Dropout(0.5, name="half")(layers.GlobalAveragePooling2D(name="pool")(value))
    keras.Model(image, layers.Dense(3, name="kinds")(value)).save(folder / "flowers.keras")
    return folder / "flowers.keras"


OF_FLOWERS = (
    LeftOut("flipped", "RandomFlip", None, "input"),
    LeftOut("turned", "RandomRotation", None, "input"),
    LeftOut("noise", "GaussianNoise", 0.25, "stem_relu"),
    LeftOut("maps", "SpatialDropout2D", 0.1, "norm"),
    LeftOut("half", "Dropout", 0.5, "pool"),
)


def test_convert_port_json_and_model_py_say_what_is_left_out(tmp_path: Path, cli: Cli) -> None:
    file = flowers(tmp_path)
    said = cli("convert", file, "--to", "torch", "--out", tmp_path / "port").out
    (line,) = (line for line in said.splitlines() if line.startswith("  left out "))
    assert "RandomFlip 'flipped' behind input" in line and "Dropout(0.5) 'half' behind pool" in line
    record = read_port(tmp_path / "port").record
    assert record.left_out == OF_FLOWERS
    assert json.loads((tmp_path / "port" / "port.json").read_text())["left_out"][4] == {
        "name": "half",
        "kind": "Dropout",
        "rate": 0.5,
        "after": "pool",
    }
    code = (tmp_path / "port" / "model.py").read_text()
    for place, words in (
        ("stem", "RandomFlip, RandomRotation"),
        ("norm", "SpatialDropout2D(0.1)"),
        ("pool", "Dropout(0.5)"),
    ):
        before, _, _ = code.partition(f"self.{place} =")
        assert words in before.rsplit("self.", 1)[-1].replace("\n        # ", " "), place
    # The code is the one that porter writes for the record, and what is left out goes on from port to port.
    assert not porter.verify(tmp_path / "port", weights=file, float64=True).notes
    again = porter.convert(tmp_path / "port", to="tf", out=tmp_path / "tf", check=False)
    told: Any = again.record()
    assert again.port.record.left_out == OF_FLOWERS and told["left_out"][0]["kind"] == "RandomFlip"


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.drop, self.maps, self.head = (
            nn.Conv2d(3, 4, 3),
            nn.Dropout(0.3),
            nn.Dropout2d(0.2),
            nn.Linear(4, 2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.drop(self.maps(self.stem(x)).mean((2, 3))))
        return found


def exported(folder: Path) -> Path:
    torch.export.save(
        torch.export.export(Network().eval(), (torch.zeros(1, 3, 8, 8),)), folder / "network.pt2"
    )
    return folder / "network.pt2"


def of_onnx(folder: Path) -> Path:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 3, 8, 8] x) => (float[N, 2] y) <float[4, 3, 3, 3] w, float[2, 4] k, float r = {0.3}>
    { a = Conv (x, w) b = GlobalAveragePool (a) c = Flatten (b) d = Dropout (c, r)
      y = Gemm <transB = 1> (d, k) }"""
    model = onnx.parser.parse_model(text)
    del model.graph.initializer[:]
    random = np.random.default_rng(0)
    stored = {"w": random.normal(size=(4, 3, 3, 3)), "k": random.normal(size=(2, 4)), "r": np.array(0.3)}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(held.astype(np.float32), name) for name, held in stored.items()
    )
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def of_caffe(folder: Path) -> Path:
    net = """input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
    layer { name: "stem" type: "Convolution" bottom: "data" top: "stem"
        convolution_param { num_output: 4 kernel_size: 3 } }
    layer { name: "drop" type: "Dropout" bottom: "stem" top: "stem" dropout_param { dropout_ratio: 0.3 } }
    layer { name: "fc" type: "InnerProduct" bottom: "stem" top: "fc"
        inner_product_param { num_output: 2 } }"""
    shapes = {"stem": ((4, 3, 3, 3), (4,)), "fc": ((2, 144), (2,))}
    return write_caffe(
        folder / "net", net, {name: [np.ones(shape, "f") for shape in held] for name, held in shapes.items()}
    )


def of_mxnet(folder: Path) -> Path:
    lines: list[Line] = [
        ("stem", "Convolution", {"kernel": (3, 3), "num_filter": 4}, ["data", "w", "b"]),
        ("drop", "Dropout", {"p": 0.3}, ["stem"]),
        ("pool", "Pooling", {"kernel": (1, 1), "global_pool": True, "pool_type": "avg"}, ["drop"]),
    ]
    return write_mxnet(folder / "net", lines, {"w": np.ones((4, 3, 3, 3), "f"), "b": np.ones(4, "f")})


def of_torch7(folder: Path) -> Path:
    kernel, bias = np.ones((4, 3, 3, 3), "f"), np.ones(4, "f")
    sides = {"kW": 3, "kH": 3, "dW": 1, "dH": 1, "padW": 0, "padH": 0, "nInputPlane": 3, "nOutputPlane": 4}
    modules = (
        Module("SpatialConvolution", weight=kernel, bias=bias, **sides),
        Module("Dropout", p=0.3, v2=True),
        Module("ReLU"),
    )
    return write_torch7(folder / "net.t7", Module("Sequential", *modules))


CASES: dict[str, tuple[Callable[[Path], Path], dict[str, float | None]]] = {
    "torch.export": (exported, {"Dropout2d": 0.2, "Dropout": 0.3}),
    "onnx": (of_onnx, {"Dropout": 0.3}),
    "caffe": (of_caffe, {"Dropout": 0.3}),
    "mxnet": (of_mxnet, {"Dropout": 0.3}),
    "torch7": (of_torch7, {"Dropout": 0.3}),
}


@pytest.mark.parametrize("kind", CASES)
def test_other_formats_say_their_dropouts(kind: str, tmp_path: Path) -> None:
    write, wanted = CASES[kind]
    graph = read_checkpoint(write(tmp_path)).graph
    assert graph is not None
    assert {layer.kind: layer.rate and round(layer.rate, 6) for layer in graph.left_out} == wanted
    assert all(layer.after in graph.by_name for layer in graph.left_out)


def test_a_strangers_record_writes_no_code(tmp_path: Path) -> None:
    porter.convert(flowers(tmp_path), to="torch", out=tmp_path / "port", check=False)
    record: dict[str, Any] = json.loads((tmp_path / "port" / "port.json").read_text())
    record["left_out"][0]["kind"] = "Dropout\nimport os"
    (tmp_path / "port" / "port.json").write_text(json.dumps(record))
    with pytest.raises(PorterError, match="is not the name of a layer's class"):
        read_port(tmp_path / "port")


@pytest.mark.parametrize("framework", ["torch", "tf", pytest.param("flax", marks=pytest.mark.full)])
def test_dropouts_are_kept_where_a_port_is_trained_on(framework: str, tmp_path: Path, cli: Cli) -> None:
    file, folder = flowers(tmp_path), tmp_path / "port"
    made = porter.convert(file, to=framework, out=folder, keep_dropout=True, check=True)
    kept = {
        node.path: (node.op.rate, node.op.maps)
        for node in made.port.graph.nodes
        if isinstance(node.op, Dropout)
    }
    assert (
        kept == {"norm_dropout": (0.1, True), "pool_dropout": (0.5, False)}
        and made.port.record.check == "passed"
    )
    assert [layer.kind for layer in made.port.record.left_out] == [
        "RandomFlip",
        "RandomRotation",
        "GaussianNoise",
    ]
    assert not made.warnings
    assert porter.verify(folder, weights=file).ok
    image = np.random.default_rng(0).uniform(0, 255, (1, 16, 16, 3)).astype(np.float32)
    if framework == "tf":
        model = keras.models.load_model(folder / "model.keras")
        assert [layer.name for layer in model.layers if "Dropout" in type(layer).__name__] == ["maps", "half"]
        drawn = [np.asarray(model(image, training=True)) for _ in range(12)]
    elif framework == "flax":
        from flax import nnx

        networks: tuple[Any, ...] = (loaded(folder), porter.load(folder))
        for network in networks:
            drops = {
                path[-1]: each for path, each in nnx.iter_modules(network) if isinstance(each, nnx.Dropout)
            }
            assert {name: each.broadcast_dims for name, each in drops.items()} == {
                "norm_dropout": (1, 2),
                "pool_dropout": (),
            }
            assert np.array_equal(network(image), network(image))
            drops["pool_dropout"].deterministic = False
            drawn = [np.asarray(network(image)) for _ in range(12)]
    else:
        names: dict[str, Any] = {"__name__": "model", "__file__": str(folder / "model.py")}
        exec((folder / "model.py").read_text(), names)
        network = names["load"]()
        assert [
            type(module).__name__ for module in network.modules() if "Dropout" in type(module).__name__
        ] == [
            "Dropout2d",
            "Dropout",
        ]
        network.pool_dropout.train()
        drawn = [network(torch.from_numpy(image).permute(0, 3, 1, 2)).detach().numpy() for _ in range(12)]
    assert len({value.tobytes() for value in drawn}) > 1  # of a few features, two draws may be the same
    # A port that is only run keeps them in its record, from where they come back.
    porter.convert(folder, to="onnx", out=tmp_path / "onnx", check=False)
    back = porter.convert(tmp_path / "onnx", to="torch", out=tmp_path / "back", check=False).port
    assert {node.path for node in back.graph.nodes if isinstance(node.op, Dropout)} == kept.keys()
    refused(
        cli("convert", file, "--to", "onnx", "--keep-dropout"), "porter's models of onnx have no dropouts"
    )


def test_dropouts_that_have_no_place_are_warned_of(tmp_path: Path) -> None:
    image = keras.Input((8, 8, 3))
    value = layers.Conv2D(4, 3, name="stem")(image)
    value = layers.Add(name="sum")([value, layers.Dropout(0.5, name="half")(value)])
    keras.Model(
        image, layers.AlphaDropout(0.2, name="alpha")(layers.GlobalAveragePooling2D(name="pool")(value))
    ).save(tmp_path / "two.keras")
    made = porter.convert(tmp_path / "two.keras", to="torch", out=tmp_path / "port", keep_dropout=True)
    assert [warning.partition(": ")[2] for warning in made.warnings] == [
        "Dropout(0.5) 'half' is left out all the same: stem is read by other layers too, or is an output",
        "AlphaDropout(0.2) 'alpha' is left out all the same: a port keeps Dropout and SpatialDropout only",
    ]


@pytest.mark.parametrize(("rate", "said"), [(np.nan, None), (7.0, "its rate is 7, expected one from 0 to 1")])
def test_rates_that_are_none(rate: float, said: str | None, tmp_path: Path) -> None:
    model = onnx.load(of_onnx(tmp_path))
    (stored,) = (tensor for tensor in model.graph.initializer if tensor.name == "r")
    stored.CopyFrom(onnx.numpy_helper.from_array(np.array(rate, np.float32), "r"))
    onnx.save(model, tmp_path / "model.onnx")
    made = porter.convert(
        tmp_path / "model.onnx", to="torch", out=tmp_path / "port", keep_dropout=True, check=False
    )
    assert [layer.rate for layer in made.port.record.left_out] == [None if said is None else rate]
    assert any((said or "keeps Dropout") in warning for warning in made.warnings)


def test_a_variants_dropout_is_kept_behind_its_own_path(tmp_path: Path) -> None:
    from tests.support.finetuned_keras import make_finetuned

    file = make_finetuned("tutorial-h5", tmp_path).path
    made = porter.convert(file, to="torch", out=tmp_path / "port", keep_dropout=True, check=False)
    assert made.port.record.variant == "mobilenet_v1_0.25"
    (dropped,) = (node for node in made.port.graph.nodes if isinstance(node.op, Dropout))
    assert op_at(made.port.graph, dropped.path).rate == 0.2 and dropped.inputs == ("head/pool",)
    assert {layer.kind for layer in made.port.record.left_out} == {"RandomFlip", "RandomRotation"}
