"""MXNet's models, held to torch's own layers, and under `full` to MXNet itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import porter
from porter.authoring.new_recipe import new_recipe
from porter.base.errors import FileError
from porter.filegraph.file_graph import Foreign
from porter.formats.mxnet.symbol import read_symbol
from porter.formats.reading import read_checkpoint
from porter.formats.recognition import recognise
from porter.graph import LeakyRelu
from porter.recipe import load_recipe
from tests.support.mxnet_files import Line, params, symbol_of, write_mxnet
from tests.support.mxnet_runs import expect_given, needs_mxnet, write_gluon

NORM = ("gamma", "beta", "moving_mean", "moving_var")
HALF = {"kernel": (3, 3), "num_filter": 8, "stride": (2, 2), "pad": (1, 1)}
HIGH = {"axis": 1, "begin": 3, "end": 6}
DEPTHWISE = {"kernel": (3, 3), "num_filter": 8, "num_group": 8, "pad": (1, 1), "no_bias": True}
LINES: list[Line] = [
    ("centred", "_minus_scalar", {"scalar": 0.5}, ["data"]),
    ("conv", "Convolution", HALF, ["centred", "conv_weight", "conv_bias"]),
    ("norm", "BatchNorm", {"eps": 2e-5}, ["conv", *(f"norm_{role}" for role in NORM)]),
    ("act", "LeakyReLU", {"act_type": "prelu"}, ["norm", "act_gamma"]),
    ("most", "Pooling", {"kernel": (3, 3), "stride": (3, 3), "pool_type": "max",
        "pooling_convention": "full"}, ["act"]),
    ("mean", "Pooling", {"kernel": (3, 3), "pad": (1, 1), "pool_type": "avg"}, ["most"]),
    ("deep", "Convolution", DEPTHWISE, ["mean", "deep_weight"]),
    ("again", "BatchNorm", {"fix_gamma": False}, ["deep", *(f"again_{role}" for role in NORM)]),
    ("sum", "elemwise_add", {}, ["again", "mean"]),
    ("parts", "SliceChannel", {"num_outputs": 2}, ["sum"]),
    ("both", "Concat", {"dim": 1, "num_args": 2}, ["parts:1", "parts"]),
    ("drop", "Dropout", {"p": 0.5}, ["both"]),
    ("fc", "FullyConnected", {"num_hidden": 6}, ["drop", "fc_weight", "fc_bias"]),
    ("softmax", "SoftmaxOutput", {}, ["fc", "softmax_label"]),
]  # fmt: skip
SHAPES = {
    "conv_weight": (8, 3, 3, 3),
    "conv_bias": (8,),
    **{f"{norm}_{role}": (8,) for norm in ("norm", "again") for role in NORM},
    "act_gamma": (8,),
    "deep_weight": (8, 1, 3, 3),
    "fc_weight": (6, 8 * 4 * 5),
    "fc_bias": (6,),
}
SIZE = (21, 28)


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    found = {
        name: random.normal(0, 0.3 if len(shape) > 1 else 0.5, shape).astype(np.float32)
        for name, shape in SHAPES.items()
    }
    return {name: np.abs(array) + 0.2 if name.endswith("var") else array for name, array in found.items()}


def by_torch(images: torch.Tensor) -> torch.Tensor:
    """The same by torch's layers: the gamma of a norm is 1 unless `fix_gamma` is false, and a `full` pool
    rounds up.
    """
    held = {name: torch.from_numpy(array) for name, array in arrays().items()}

    def norm(x: torch.Tensor, name: str, gamma: torch.Tensor, epsilon: float) -> torch.Tensor:
        _, beta, mean, variance = (held[f"{name}_{role}"] for role in NORM)
        return F.batch_norm(x, mean, variance, gamma, beta, False, 0.0, epsilon)

    x = F.conv2d(images - 0.5, held["conv_weight"], held["conv_bias"], 2, 1)
    x = F.prelu(norm(x, "norm", torch.ones(8), 2e-5), held["act_gamma"])
    x = F.max_pool2d(x, 3, 3, ceil_mode=True)
    mean = F.avg_pool2d(x, 3, 1, 1)
    x = norm(F.conv2d(mean, held["deep_weight"], None, 1, 1, 1, 8), "again", held["again_gamma"], 1e-3) + mean
    x = torch.cat([x[:, 4:], x[:, :4]], 1)
    return F.linear(x.flatten(1), held["fc_weight"], held["fc_bias"])


@pytest.mark.parametrize(("version", "attrs"), [(0, "param"), (1, "attr"), (2, "attrs")])
def test_a_model_is_what_torch_computes(version: int, attrs: str, tmp_path: Path) -> None:
    lines = (
        LINES
        if version
        else [
            (name, op, stated, reads[:3] if op == "BatchNorm" else reads) for name, op, stated, reads in LINES
        ]
    )
    file = write_mxnet(tmp_path / "model", lines, arrays(), version, attrs)
    made = porter.convert(file, to="torch", input_size="21x28", out=tmp_path / "port")
    assert (
        made.verdict is not None
        and made.verdict.ok
        and made.verdict.proof.reference == "the file's own graph"
    )
    images = torch.randn(2, 3, *SIZE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found, wanted = porter.load(tmp_path / "port")(images), by_torch(images)
    assert torch.linalg.norm(found - wanted) <= 1e-5 * torch.linalg.norm(wanted)
    assert porter.verify(tmp_path / "port", weights=tmp_path / "model-0000.params").ok


def test_arrays_without_a_graph_are_read(tmp_path: Path) -> None:
    """As gluon's zoo has them."""
    (tmp_path / "resnet18_v1-a0666292.params").write_bytes(params(arrays()))
    checkpoint = read_checkpoint(tmp_path / "resnet18_v1-a0666292.params")
    assert (
        checkpoint.graph is None
        and {name: array.shape for name, array in checkpoint.tensors.items()} == SHAPES
    )


def test_a_recipe_drafted_of_a_symbol_takes_its_file(tmp_path: Path) -> None:
    pooled: Line = ("pool", "Pooling", {"global_pool": True, "pool_type": "avg"}, ["norm"])
    dense: Line = ("head", "FullyConnected", {"num_hidden": 6}, ["pool", "head_weight", "fc_bias"])
    held = {**arrays(), "head_weight": arrays()["fc_weight"][:, :8]}
    file = write_mxnet(tmp_path / "model", [*LINES[:3], pooled, dense], held)
    new_recipe("mine", tmp_path / "mine.yaml", file, size=SIZE)
    made = porter.convert(
        "mine", "own", "torch", weights=file, out=tmp_path / "port", recipes=tmp_path, check=False
    )
    assert (
        made.port.record.variant == "mine"
        and load_recipe(tmp_path / "mine.yaml").zoos["own"].framework == "mxnet"
    )


def test_the_content_tells_the_format_and_each_file_needs_the_other(tmp_path: Path) -> None:
    file = write_mxnet(tmp_path / "model", LINES, arrays())
    beside = tmp_path / "model-0000.params"
    assert (recognise(file).name, recognise(beside).name) == ("mxnet-symbol", "mxnet")
    beside.unlink()
    with pytest.raises(FileError, match=r"arrays are in a \.params beside it: there is none"):
        read_checkpoint(file)


def test_arrays_beside_the_symbol_of_another_network_are_read_without_it(tmp_path: Path) -> None:
    held = {name: array for name, array in arrays().items() if name != "fc_weight"}
    checkpoint = read_checkpoint(write_mxnet(tmp_path / "model", LINES, held))
    lacking = "2 of its variables have no array in model-0000.params, expected one, the image"
    assert checkpoint.graph is None and checkpoint.notes == (
        f"read without the graph of model-symbol.json: {lacking}",
    )


def by_name(nodes: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(node for node in nodes if node["name"] == name)


DAMAGED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a later input": (lambda nodes: nodes[1].update(inputs=[[5, 0, 0]]), "reads what comes after it"),
    "a list for a word": (
        lambda nodes: by_name(nodes, "most")["attrs"].update(global_pool=[]),
        "the model is damaged",
    ),
    "the image as a kernel": (
        lambda nodes: by_name(nodes, "conv")["inputs"].__setitem__(1, [0, 0, 0]),
        "needs the tensor 'data'",
    ),
    "a bias as a kernel": (lambda nodes: by_name(nodes, "conv")["inputs"].pop(1), "the model is damaged"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_symbol_is_one_error(name: str, tmp_path: Path) -> None:
    file, stated = write_mxnet(tmp_path / "model", LINES, arrays()), symbol_of(LINES)
    change, said = DAMAGED[name]
    change(stated["nodes"])
    file.write_text(json.dumps(stated))
    with pytest.raises(FileError, match=said):
        read_checkpoint(file)


def test_a_split_into_more_parts_than_there_are_is_not_counted_out(tmp_path: Path) -> None:
    lines = [
        (name, op, {"num_outputs": 1 << 40} if name == "parts" else stated, reads)
        for name, op, stated, reads in LINES
    ]
    graph = read_checkpoint(write_mxnet(tmp_path / "model", lines, arrays())).graph
    assert graph is not None and graph.by_name["parts"].op == Foreign(
        "SliceChannel of 8 cells into 1099511627776 parts"
    )


def test_operators_of_one_name_are_told_apart() -> None:
    """Also where another one has the name that tells them apart."""
    ops, names = ("null", "relu", "tanh", "sigmoid"), ("data", "same", "same:3", "same")
    nodes = [
        {"op": op, "name": name, "inputs": [[place - 1, 0, 0]] if place else []}
        for place, (op, name) in enumerate(zip(ops, names, strict=True))
    ]
    symbol = read_symbol(json.dumps({"nodes": nodes, "heads": [[3, 0, 0]]}).encode(), lambda name: False)
    assert [node.name for node in symbol.nodes] == ["same", "same:3", "same:3:3"] and symbol.ends == (
        ("same:3:3", 0),
    )


def test_a_prelu_may_have_one_slope(tmp_path: Path) -> None:
    """As MXNet takes it (src/operator/leaky_relu.cc)."""
    slope = np.full(1, 0.125, np.float32)
    graph = read_checkpoint(
        write_mxnet(tmp_path / "model", LINES[:4], {**arrays(), "act_gamma": slope})
    ).graph
    assert graph is not None and graph.by_name["act"].op == LeakyRelu(0.125)


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("cut", "SliceChannel", {"num_outputs": 2}, ["data"]), ("also", "relu", {}, ["cut:1"])),
        (
            ("cut", "slice_axis", {"axis": 1, "begin": 0, "end": 3}, ["data"]),
            ("also", "slice_axis", {"axis": 1, "begin": 3}, ["data"]),
        ),
        (
            ("cut", "slice_axis", {"axis": 1, "begin": 0, "end": 3}, ["data"]),
            ("also", "slice_axis", HIGH, ["data"]),
        ),
    ],
)
def test_what_reads_a_part_of_the_image_says_its_channels(first: Line, second: Line, tmp_path: Path) -> None:
    """A symbol states no channels, and what a first convolution takes is a part of them."""
    point = {"kernel": (1, 1), "num_filter": 4, "no_bias": True}
    convs: list[Line] = [
        ("one", "Convolution", point, ["cut", "k"]),
        ("two", "Convolution", point, ["also", "k"]),
    ]
    lines = [first, second, *convs, ("sum", "elemwise_add", {}, ["one", "two"])]
    kernel = np.random.default_rng(0).standard_normal((4, 3, 1, 1)).astype(np.float32)
    file = write_mxnet(tmp_path / "model", lines, {"k": kernel})
    made = porter.convert(file, to="torch", out=tmp_path / "port", input_size="any")
    assert made.verdict is not None and made.verdict.proof.proves and made.port.graph.channels == 6


ZOO = {
    # Their last map has one size.
    **dict.fromkeys(("alexnet", "densenet121", "squeezenet1.1", "vgg11_bn"), (224, 225)),
    "inceptionv3": (299,),
    **dict.fromkeys(("mobilenet0.25", "mobilenetv2_0.25", "resnet18_v1", "resnet18_v2"), (65, 224)),
}


@needs_mxnet
@pytest.mark.parametrize("name", ZOO)
def test_a_network_of_gluons_zoo_is_what_mxnet_computes(name: str, tmp_path: Path) -> None:
    for seen in write_gluon(name, tmp_path, *ZOO[name]):
        size = "x".join(map(str, seen.images.shape[2:]))
        for to in ("torch", "onnx", "tf") if seen.images.shape[2] == ZOO[name][0] else ("torch",):
            settings: dict[str, Any] = {"input_size": size, "out": tmp_path / to, "overwrite": True}
            made = porter.convert(tmp_path / "net-symbol.json", to=to, **settings)
            assert made.verdict is not None and made.verdict.ok
        expect_given(tmp_path / "torch", seen)


@pytest.mark.usefixtures("one_recipe")
def test_an_operator_may_be_called_as_the_second_value_of_another_one(tmp_path: Path) -> None:
    """`cut:1`, an operator, and the second value of `cut`: each is compared with itself."""
    shape: dict[str, Any] = {"kernel": (1, 1), "num_filter": 3, "no_bias": True}
    lines: list[Line] = [
        ("cut", "SliceChannel", {"num_outputs": 2}, ["data"]),
        ("one", "Convolution", shape, ["cut", "k"]),
        ("sum", "elemwise_add", {}, ["one", "cut:1"]),
    ]
    file = write_mxnet(
        tmp_path / "model", lines, {"k": np.random.default_rng(0).standard_normal((3, 3, 1, 1)).astype("f")}
    )
    file.write_text(file.read_text().replace('"one"', '"cut:1"'))
    made = porter.convert(file, to="torch", out=tmp_path / "port", input_size="any")
    assert made.verdict is not None and made.verdict.proof.proves
    assert len(made.verdict.proof.nodes) == 4 and not made.verdict.proof.uncompared
