"""Torch7's models, held to OpenCV's reader of them in float32, and to porter's own engine in float64."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from torch.nn import functional as F

import porter
from porter.base.errors import FileError, MappingError
from porter.formats.reading import read_checkpoint
from porter.formats.recognition import recognise
from porter.formats.torch7.objects import LuaObject, read_objects
from porter.frameworks.numpy.engine import build_file
from tests.support.arrays import Array
from tests.support.torch7_files import Module, Sizes, write_torch7
from tests.unit.formats.torch7.test_read_layers import CASES

SIZE = (33, 38)
random = np.random.default_rng(0)


def array(*shape: int, scale: float = 0.3) -> Any:
    return random.normal(0, scale, shape).astype(np.float32)


def conv(
    taken: int,
    given: int,
    side: int,
    stride: int = 1,
    pad: int = 0,
    kind: str = "SpatialConvolution",
    **more: Any,
) -> Module:
    window = {"kW": side, "kH": side, "dW": stride, "dH": stride, "padW": pad, "padH": pad}
    shape = (
        (given, taken * side * side)
        if kind.endswith("MM")
        else (given, taken // more.get("groups", 1), side, side)
    )
    weight = array(*shape, scale=1 / side / np.sqrt(taken))
    return Module(
        kind, nInputPlane=taken, nOutputPlane=given, **window, weight=weight, bias=array(given), **more
    )


def norm(channels: int, kind: str = "SpatialBatchNormalization") -> Module:
    held = {"running_mean": array(channels), "running_var": np.abs(array(channels)) + 0.5}
    return Module(
        kind,
        eps=1e-3,
        momentum=0.1,
        affine=True,
        nDim=4,
        weight=array(channels) + 1,
        bias=array(channels),
        **held,
    )


def pool(kind: str, side: int, stride: int, pad: int = 0, ceil: bool = False, **more: Any) -> Module:
    window = {"kW": side, "kH": side, "dW": stride, "dH": stride, "padW": pad, "padH": pad}
    return Module(f"Spatial{kind}Pooling", **window, ceil_mode=ceil, **more)


def block(taken: int, given: int, stride: int) -> Module:
    """fb.resnet's: two convolutions beside a shortcut, in a table that is then added."""
    inner = [
        conv(taken, given, 3, stride, 1),
        norm(given),
        Module("ReLU", inplace=True),
        conv(given, given, 3, 1, 1),
        norm(given),
    ]
    straight = taken == given and stride == 1
    shortcut = (
        Module("Identity") if straight else Module("Sequential", conv(taken, given, 1, stride), norm(given))
    )
    table = Module("ConcatTable", Module("Sequential", *inner), shortcut)
    return Module("Sequential", table, Module("CAddTable", inplace=False), Module("ReLU", inplace=True))


def network() -> Module:
    branches = Module(
        "Concat",
        Module("Sequential", conv(16, 6, 1), Module("Tanh")),
        Module("Sequential", conv(16, 4, 3, 1, 1, "SpatialConvolutionMM"), Module("Sigmoid")),
        Module(
            "Sequential",
            pool("Max", 3, 1, 1),
            Module("SpatialCrossMapLRN", size=5, alpha=0.5, beta=0.75, k=1),
        ),
        dimension=2,
    )
    joined = Module(
        "ConcatTable", Module("Identity"), Module("Sequential", Module("MulConstant", constant_scalar=0.5))
    )
    side = {
        "nInputPlane": 26,
        "nOutputPlane": 8,
        "kW": 3,
        "kH": 3,
        "dW": 2,
        "dH": 2,
        "padW": 1,
        "padH": 1,
        "adjW": 1,
        "adjH": 0,
    }
    return Module(
        "Sequential",
        Module("SpatialZeroPadding", pad_l=2, pad_r=1, pad_t=0, pad_b=2),
        conv(3, 8, 5, 2, 2, "cudnn.SpatialConvolution", groups=1),
        norm(8, "cudnn.SpatialBatchNormalization"),
        Module("cudnn.ReLU", inplace=True),
        pool("Max", 3, 2, 1, True),
        Module("SpatialReflectionPadding", pad_l=1, pad_r=1, pad_t=2, pad_b=1),
        block(8, 16, 2),
        block(16, 16, 1),
        branches,
        Module("SpatialFullConvolution", **side, weight=array(26, 8, 3, 3), bias=array(8)),
        Module("PReLU", nOutputPlane=8, weight=np.abs(array(8))),
        Module("SpatialDropout", p=0.2),
        joined,
        Module("JoinTable", dimension=2, nInputDims=4),
        pool("Average", 3, 2, 1, True, count_include_pad=True, divide=True),
        Module("Padding", dim=1, pad=4, nInputDim=3, value=0, index=1),
        pool("Average", 3, 3, 1, False, count_include_pad=False, divide=True),
        Module("View", size=Sizes([-1]), numElements=1, numInputDims=3),
        Module("Dropout", p=0.5, v2=True),
        Module("Linear", weight=array(7, 180, scale=0.1), bias=array(7)),
        Module("LogSoftMax"),
    )


def test_every_module_is_what_opencv_computes(tmp_path: Path) -> None:
    model = network()
    file = write_torch7(tmp_path / "model.t7", {"model": model, "epoch": 90})
    images = np.random.default_rng(1).normal(0, 1, (2, 3, *SIZE)).astype(np.float32)
    checkpoint = read_checkpoint(file, size=SIZE)
    with pytest.raises(
        MappingError,
        match=r"without the input's size, .*'20' \(a dense .*: the number of features depends on",
    ):
        porter.convert(file, to="torch", out=tmp_path / "port")
    assert recognise(file).name == "torch7" and checkpoint.notes == ()
    names = [str(place) for place in (2, 3, 5, 6, 9, 10, 11, 14, 15, 16, 17, 20, 21)]
    own: Mapping[str, Array] = build_file(checkpoint, "float64", SIZE)(images.astype(float), tuple(names))
    for place in map(int, names):
        part = write_torch7(tmp_path / "part.t7", Module("Sequential", *model.fields["modules"][:place]))
        other = cv2.dnn.readNetFromTorch(str(part))
        other.enableFusion(False)
        other.setInput(images)
        wanted = other.forward()
        assert own[str(place)].shape == wanted.shape, place
        assert np.linalg.norm(own[str(place)] - wanted) <= 1e-5 * np.linalg.norm(wanted), place
    made = porter.convert(file, to="torch", input_size="33x38", out=tmp_path / "port")
    assert made.port.record.activation == "log_softmax" and made.port.record.output == "logits"
    assert (
        made.verdict is not None
        and made.verdict.ok
        and made.verdict.proof.reference == "the file's own graph"
    )
    assert [node.path for node in made.port.graph.nodes][-1] == "layer_20"
    assert [warning.partition("squares: ")[2] for warning in made.warnings] == [
        "convert again with input_size=N"
    ]


def test_everything_is_what_torchfile_reads(tmp_path: Path) -> None:
    """Reader and engine both take what is in a file from the same code."""
    load = import_module("torchfile").load
    held = {"network": network(), "epoch": 90} | {
        name: case.held for name, case in CASES.items() if case.width == 8
    }
    file = write_torch7(tmp_path / "model.t7", held)
    theirs = load(str(file), use_list_heuristic=False, use_int_heuristic=False, utf8_decode_strings=True)
    expect_same(read_objects(file.read_bytes()), theirs)


def expect_same(found: Any, other: Any) -> None:
    if isinstance(found, LuaObject):
        assert found.kind == other.torch_typename().decode()
        found, other = found.fields, other._obj
    if isinstance(found, dict):
        assert found.keys() == other.keys()
        for name, value in found.items():
            expect_same(value, other[name])
    elif isinstance(found, np.ndarray):
        np.testing.assert_array_equal(found, other, strict=True)
    else:
        assert type(found) is type(other) and found == other


def preactivated(taken: int, given: int, stride: int) -> Module:
    """A wide residual network's: its norm and its ReLU stand before both ways."""
    inner = [
        conv(taken, given, 3, stride, 1),
        norm(given),
        Module("ReLU", inplace=True),
        Module("Dropout", p=0.3, v2=True),
    ]
    shortcut = Module("Identity") if taken == given else conv(taken, given, 1, stride)
    table = Module("ConcatTable", Module("Sequential", *inner, conv(given, given, 3, 1, 1)), shortcut)
    return Module(
        "Sequential", norm(taken), Module("ReLU", inplace=True), table, Module("CAddTable", inplace=True)
    )


@pytest.mark.full
@pytest.mark.parametrize("make", [block, preactivated])
@pytest.mark.parametrize("size", [(64, 64), (67, 75)])
def test_a_residual_network(make: Any, size: tuple[int, int], tmp_path: Path) -> None:
    stages = [
        make(taken, given, stride)
        for taken, given, stride in ((32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2))
    ]
    whole = Module("SpatialAdaptiveAveragePooling", W=1, H=1)
    ends = [
        norm(128),
        Module("ReLU"),
        whole,
        Module("View", size=Sizes([128]), numElements=128, numInputDims=3),
    ]
    first = [conv(3, 32, 7, 2, 3), norm(32), Module("ReLU"), pool("Max", 3, 2, 1)]
    head = Module("Linear", weight=array(10, 128), bias=array(10))
    file = write_torch7(tmp_path / "model.t7", Module("Sequential", *first, *stages, *ends, head))
    for to in ("torch", "onnx", "tf"):
        made = porter.convert(file, to=to, input_size=f"{size[0]}x{size[1]}", out=tmp_path / to)
        assert made.verdict is not None and made.verdict.ok
    # OpenCV lacks the pool of the whole map.
    other = cv2.dnn.readNetFromTorch(
        str(write_torch7(tmp_path / "part.t7", Module("Sequential", *first, *stages, *ends[:2])))
    )
    other.enableFusion(False)
    images = np.random.default_rng(1).normal(0, 1, (2, 3, *size)).astype(np.float32)
    other.setInput(images)
    own: Array = build_file(read_checkpoint(file, size=size), "float64", size)(images.astype(float), ("10",))[
        "10"
    ]
    assert np.linalg.norm(own - other.forward()) <= 1e-5 * np.linalg.norm(own)


def test_a_network_of_fast_neural_style_is_what_torch_computes(tmp_path: Path) -> None:
    """Residual blocks without pads, beside which the map is cut, with the statistics of each image."""
    gain, offset = array(6) + 1, array(6)
    alone = Module("InstanceNormalization", eps=1e-5, nOutput=6, weight=gain, bias=offset)
    ways = Module("ConcatTable", Module("Sequential", conv(6, 6, 3), alone), Module("ShaveImage", size=1))
    first = conv(3, 6, 3)
    model = Module(
        "Sequential", first, ways, Module("CAddTable"), Module("Tanh"), Module("TotalVariation", strength=0.1)
    )
    file = write_torch7(tmp_path / "model.t7", model)
    assert porter.convert(file, to="torch", input_size="12x15", out=tmp_path / "port").verdict.ok  # type: ignore[union-attr]
    images = torch.randn(2, 3, 12, 15, generator=torch.Generator().manual_seed(0))

    def convolved(x: torch.Tensor, module: Module) -> torch.Tensor:
        return F.conv2d(x, torch.from_numpy(module.fields["weight"]), torch.from_numpy(module.fields["bias"]))

    with torch.no_grad():
        x = convolved(images, first)
        normed = F.instance_norm(
            convolved(x, ways.fields["modules"][0].fields["modules"][0]), weight=torch.from_numpy(gain)
        )
        wanted = torch.tanh(normed + torch.from_numpy(offset).reshape(-1, 1, 1) + x[:, :, 1:-1, 1:-1])
        found = porter.load(tmp_path / "port")(images)
    assert torch.linalg.norm(found - wanted) <= 1e-5 * torch.linalg.norm(wanted)


def test_files_without_modules_and_as_text(tmp_path: Path) -> None:
    file = write_torch7(
        tmp_path / "params.t7", {"conv0": {"weight": array(2, 3)}, "lr": 0.1, "bias": array(2)}
    )
    found = read_checkpoint(file)
    assert found.graph is None and {name: held.shape for name, held in found.tensors.items()} == {
        "conv0/weight": (2, 3),
        "bias": (2,),
    }
    file.write_text("4\n1\n3\nV 1\n13\nnn.Sequential\n3\n2\n1\n")
    with pytest.raises(FileError, match="got a Torch7 file as text"):
        read_checkpoint(file)


def test_modules_that_hold_themselves_or_lack_numbers_are_one_error(tmp_path: Path) -> None:
    file = tmp_path / "model.t7"
    endless, unnumbered = Module("Sequential", Module("ReLU")), network()
    endless.fields["modules"].append(endless)
    unnumbered.fields["modules"][1].fields["nInputPlane"] = float("nan")
    for model in (endless, unnumbered):
        write_torch7(file, model)
        with pytest.raises(FileError, match=re.escape("the model is damaged: ")):
            read_checkpoint(file)
