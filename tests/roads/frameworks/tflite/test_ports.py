"""Ports for TensorFlow Lite as people use them: proved, run, read again, and refused where they are wrong."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import porter
from porter.base.errors import CheckFailed, UsageError
from porter.frameworks.tflite import FILE, port_files
from porter.frameworks.tflite.conversion import convert, expect_rounding, has_rounded_weights
from porter.frameworks.tflite.destination import DESTINATION as framework
from porter.frameworks.tflite.running import LiteModel
from porter.graph import INPUT, Affine, Conv, Dense, GlobalAvgPool, Graph, HardSigmoid, Node, Softplus
from porter.graph.plan import make_plan
from porter.padding import ANY, Convention, Window
from tests.support.frameworks.every_op import images, tensors_of
from tests.support.frameworks.torch.graphs import Writer, resnet_v2
from tests.support.oracle import evaluate
from tests.support.random_graphs import difference

GRAPH = resnet_v2((1, 1))
SIZE = (33, 32)
ONE_BY_ONE = Conv(4, Window((1, 1)), Convention())


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of Keras's with its graph, of a depthwise unit and a head."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    unit = [layers.DepthwiseConv2D(3, 2, "same"), layers.BatchNormalization(), layers.ReLU(6.0)]
    head = [layers.GlobalAveragePooling2D(), layers.Dense(10)]
    network = keras.Sequential([keras.Input((*SIZE, 3)), layers.Conv2D(8, 3), *unit, *head])
    network.save(path := tmp_path_factory.mktemp("weights") / "network.keras")
    return path


@pytest.mark.usefixtures("one_recipe")
def test_a_cap_that_the_converter_loses_is_refused_though_no_image_reaches_it(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorflow.lite.tools import flatbuffer_utils

    right = porter.convert(weights, to="tflite", out=tmp_path / "right", input_size=SIZE).verdict
    assert right is not None
    counts = {parity.dtype: parity.cut for parity in right.parities}
    assert counts["float32"] is not None and counts["float32"].inside == ()
    assert counts["float32"].joined  # the norm and the cap are inside the convolution

    def without_caps(*given: Any) -> bytes:
        model = flatbuffer_utils.convert_bytearray_to_object(bytearray(convert(*given)))
        for operator in model.subgraphs[0].operators:
            if getattr(operator.builtinOptions, "fusedActivationFunction", 0) == 3:  # RELU6
                operator.builtinOptions.fusedActivationFunction = 1
        return bytes(flatbuffer_utils.convert_object_to_bytearray(model))

    monkeypatch.setattr(port_files, "convert", without_caps)
    with pytest.raises(CheckFailed, match="random inputs of its own") as refused:
        porter.convert(weights, to="tflite", out=tmp_path / "wrong", input_size=SIZE)
    assert "re_lu" in str(refused.value)


@pytest.fixture(scope="module")
def made(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return porter.convert(weights, to="tflite", out=tmp_path_factory.mktemp("made") / "port")


def test_open_sizes_and_batches() -> None:
    plan, tensors = make_plan(GRAPH, ANY, framework.CAPABILITIES), tensors_of(GRAPH)
    content = convert(plan, tensors)
    for size, count in [((33, 32), 1), ((48, 64), 2)]:
        wanted = evaluate(GRAPH, tensors, images(size)[:count])
        for delegated in (True, False):
            found = LiteModel(plan, content, delegated).values(images(size)[:count], [*wanted])
            assert {
                "stem/conv",
                "stem/pool",
                "stage1/unit1/relu1",
                "stage2/unit1/out",
                "head/pool",
            } <= found.keys()
            assert max(difference(value, wanted[path]) for path, value in found.items()) <= 1e-6


@pytest.mark.parametrize("size", [(16, 17), (18, 19)])
def test_same_with_a_stride_larger_than_the_kernel(size: tuple[int, int]) -> None:
    """XNNPACK computes garbage for it: the file says VALID, behind a pad layer where pads are needed."""
    wide = [
        Node(f"wide{at}", Conv(6, Window(kernel, (4, 4)), Convention("same"), groups=groups), (INPUT,))
        for at, (groups, kernel) in enumerate([(1, (3, 3)), (1, (2, 3)), (3, (3, 3))])
    ]
    ends = [Node(f"end{at}", ONE_BY_ONE, (node.path,)) for at, node in enumerate(wide)]
    graph = Graph((*wide, *ends), 3, "end0", further=("end1", "end2"))
    tensors = tensors_of(graph)
    plan = make_plan(graph, size, framework.CAPABILITIES)
    found = LiteModel(plan, convert(plan, tensors)).values(images(size), graph.outputs)
    wanted = evaluate(graph, tensors, images(size))
    assert max(difference(found[path], wanted[path]) for path in graph.outputs) <= 1e-6


def test_values_that_the_converter_changes() -> None:
    """A softplus is finite above 88, where exp is not. A convolution that is multiplied by -1 at once is the
    negative one in the file, under its own name.
    """
    nodes = (
        Node("conv", ONE_BY_ONE, (INPUT,)),
        Node("negative", Affine((-1.0,), (0.0,)), ("conv",)),
        Node("softplus", Softplus(), ("negative",)),
        Node("end", Affine((-1.0,), (0.0,)), ("softplus",)),
    )
    graph = Graph(nodes, 3, "end")
    tensors, fed = tensors_of(graph), 1000 * images((5, 6))
    wanted = evaluate(graph, tensors, fed)
    assert wanted["softplus"].max() > 200
    plan = make_plan(graph, ANY, framework.CAPABILITIES)
    found = LiteModel(plan, convert(plan, tensors)).values(fed, [*wanted])
    assert "end" in found and max(difference(value, wanted[path]) for path, value in found.items()) <= 1e-6


def test_a_port_is_proved_run_and_read_again(made: Any, weights: Path, tmp_path: Path) -> None:
    assert made.verdict.ok and made.verdict.proof.proves and made.port.record.input.layout == "NHWC"
    # The file is run at each.
    assert {SIZE, *made.verdict.parities[1].sizes} == {*made.verdict.parities[0].sizes}
    model, batch = (
        porter.load(made.folder),
        np.random.default_rng(0).uniform(-1, 1, (2, *SIZE, 3)).astype(np.float32),
    )
    assert model(batch).shape == (2, 10) and porter.verify(made.folder, weights=weights).ok
    again = porter.convert(made.folder / "model.tflite", to="tf", out=tmp_path / "again", input_size="any")
    assert again.verdict is not None and again.verdict.ok
    assert difference(np.asarray(again.model()(batch)), model(batch)) <= 1e-4
    with pytest.raises(UsageError, match=r"convert\(.*model\.tflite"):
        porter.convert(made.folder, to="torch", out=tmp_path / "torch")
    with pytest.raises(UsageError, match="the model takes"):
        model(batch.transpose(0, 3, 1, 2))


def test_a_network_without_weights_runs_in_double_precision() -> None:
    graph = Graph((Node("end", Affine((2.0,), (1.0,)), (INPUT,)),), 3, "end")
    plan = make_plan(graph, ANY, framework.CAPABILITIES)
    held = {FILE: {"content": np.frombuffer(convert(plan, {}), np.uint8)}}
    model, fed = framework.ENGINE.build(plan, held, {}, "float64"), images((5, 6))
    assert difference(framework.ENGINE.run(model, fed, ["end"])["end"], 2 * fed + 1) <= 1e-15


def test_the_file_states_the_native_size(made: Any) -> None:
    interpreter = LiteModel(made.port.plan, (made.folder / "model.tflite").read_bytes())._interpreter
    assert interpreter.get_input_details()[0]["shape"].tolist() == [1, *SIZE, 3]
    assert interpreter.get_input_details()[0]["shape_signature"].tolist() == [-1, -1, -1, 3]


def small() -> nn.Module:
    """Two convolutions, and a head with most of the weights."""
    torch.manual_seed(0)
    return nn.Sequential(
        OrderedDict(
            first=nn.Conv2d(3, 16, 3, 2, 1),
            relu=nn.ReLU(),
            second=nn.Conv2d(16, 32, 3, 2),
            relu6=nn.ReLU6(),
            pool=nn.AdaptiveAvgPool2d(1),
            flat=nn.Flatten(),
            head=nn.Linear(32, 2000),
        )
    ).eval()


def test_a_wrong_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(plan: Any, tensors: Any, stored_as: Any) -> bytes:
        head = {role: 1.001 * array for role, array in tensors["head"].items()}
        return convert(plan, {**tensors, "head": head}, stored_as)

    monkeypatch.setattr(port_files, "convert", wrong)
    with pytest.raises(
        CheckFailed, match=r"head is the first node that differs, relative L2 1\.0e-03 in float32"
    ):
        porter.convert(small(), to="tflite", out=tmp_path / "port", input_size=24)


@pytest.mark.parametrize(("weights", "most"), [("float16", 5e-3), ("dynamic", 5e-2)])
def test_rounded_weights_are_those_of_the_plain_file(weights: Any, most: float) -> None:
    plan, tensors = make_plan(GRAPH, ANY, framework.CAPABILITIES), tensors_of(GRAPH)
    plain, rounded = convert(plan, tensors), convert(plan, tensors, weights)
    assert has_rounded_weights(rounded) and not has_rounded_weights(plain) and len(rounded) < len(plain)
    wanted, found = (
        LiteModel(plan, file).values(images((33, 32)), [GRAPH.output])[GRAPH.output]
        for file in (plain, rounded)
    )
    assert 1e-5 < difference(found, wanted) < most
    expect_rounding(rounded, plain)
    other = {**tensors, "stem/conv": {role: 1.01 * array for role, array in tensors["stem/conv"].items()}}
    with pytest.raises(CheckFailed, match="is not the rounding"):
        expect_rounding(convert(plan, other, weights), plain)


def gated(*paths: str) -> Graph:
    """Its pads are one constant, and so are its sixths."""
    drawn = Writer()
    for path in paths:
        drawn.conv(path, 8, 3, 2, Convention("explicit", (1, 1, 1, 1)))
        drawn.add(f"{path}_gate", HardSigmoid())
    drawn.add("pool", GlobalAvgPool())
    drawn.add("logits", Dense(5, True))
    return drawn.graph()


@pytest.mark.parametrize("weights", ["float16", "dynamic"])
def test_constants_whose_names_are_counted_are_paired_by_what_reads_them(weights: Any) -> None:
    def stored_as(weights: Any, *paths: str) -> bytes:
        graph = gated(*paths)
        return convert(make_plan(graph, ANY, framework.CAPABILITIES), tensors_of(graph), weights)

    rounded = stored_as(weights, "first", "second")
    expect_rounding(rounded, stored_as("float32", "first", "second"))
    with pytest.raises(CheckFailed, match="different operators"):
        expect_rounding(rounded, stored_as("float32", "first"))


def test_weights_of_8_bits_are_measured_and_no_proof(tmp_path: Path) -> None:
    model = small()
    made = porter.convert(model, to="tflite", out=tmp_path / "made", input_size=24, check=False)
    port = porter.convert(model, to="tflite", out=tmp_path / "port", input_size=24, quantize="dynamic")
    assert port.verdict is not None and port.verdict.ok and port.verdict.loss is not None
    assert port.proof is not None and port.proof.rounding is not None
    assert not port.port.record.proved and "no proof" in port.port.record.check
    assert 1e-3 < port.verdict.loss.rel_l2 < 0.5 and port.proof.loss == port.verdict.loss
    assert port.proof.rounding.startswith(f"the rounding moves the output by {port.verdict.loss.rel_l2:.1e}")
    batch = np.random.default_rng(0).uniform(-1, 1, (2, 24, 24, 3)).astype(np.float32)
    assert 1e-3 < difference(porter.load(port.folder)(batch), porter.load(made.folder)(batch)) < 0.5
    assert (port.folder / "model.tflite").stat().st_size < 0.5 * (made.folder / "model.tflite").stat().st_size


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"dtype": "float64"}, "no weights of float64"),
        ({"quantize": "dynamic", "dtype": "float16"}, "they can have no other type"),
        ({"quantize": "static"}, "does not know the quantization"),
        ({"quantize": "dynamic", "to": "onnx"}, "ports to tflite only"),
    ],
)
def test_other_weights_are_refused(how: dict[str, Any], said: str, weights: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        porter.convert(weights, **{"to": "tflite", "out": tmp_path / "port", **how})
