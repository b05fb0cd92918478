"""Bounds of activations that no image reaches, and pads of pools and epsilons of norms that none shows: the
layers of source and port are fed numbers that do.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Collection
from dataclasses import replace
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import porter
from porter.base.dtypes import Array, NamedArrays
from porter.base.errors import CheckFailed
from porter.graph import Clip, GroupNorm, HardSwish, Identity, LeakyRelu, MaxPool, Op, Relu, Relu6, Swish
from porter.graph.ops import HardSigmoid, ThresholdedRelu
from porter.graph.plan import make_plan
from porter.port import StoredPort
from porter.source.reopening import reopen_source
from porter.verification import inputs
from porter.verification.check import Check
from porter.verification.proving import prove_against
from porter.verification.references.file_graph_reference import FileGraphReference
from porter.verification.verdict import Verdict
from tests.support.formats.tf_graph.file_graphs import frozen, tensorflow, variable
from tests.support.mxnet_files import Line, write_mxnet

SIZE = (12, 11)
KERNEL = np.random.default_rng(1).normal(0, 1e-4, (4, 3, 3, 3)).astype(np.float32)
"""Small, so that what follows stays near 0, or near 0.5 where that is added."""


class Activations(nn.Module):
    """Two chains of activations, whose ends are added."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.cap, self.gate = nn.Conv2d(3, 4, 3), nn.Hardtanh(0, 7), nn.Hardsigmoid()
        self.bent = nn.Sequential(nn.LeakyReLU(0.2), nn.Hardswish(), nn.ReLU6())
        self.conv.weight = nn.Parameter(torch.from_numpy(KERNEL))
        self.conv.bias = nn.Parameter(torch.full((4,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value = self.conv(x)
        added: torch.Tensor = self.gate(self.cap(value)) + self.bent(value)
        return added


def exported(folder: Path) -> Path:
    model = Activations().eval()
    torch.export.save(torch.export.export(model, (torch.zeros(1, 3, *SIZE),)), folder / "net.pt2")
    return folder / "net.pt2"


def in_onnx(folder: Path) -> Path:
    onnx = pytest.importorskip("onnx")
    made = folder / "net.onnx"
    model: Any = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 13]> net (float[N,3,12,11] x) => (float[N,4,10,9] y) {
        c = Conv (x, k, b) p = Clip (c, zero, seven) g = HardSigmoid <alpha=0.25> (p)
        s = HardSwish (c) l = LeakyRelu <alpha=0.2> (c) r = Clip (l, zero, six) m = Add (g, s)
        y = Add (m, r) }"""
    )
    model.opset_import[0].version = 14
    for name, array in {"k": KERNEL, "b": np.full(4, 0.5), "zero": 0, "six": 6, "seven": 7}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, np.float32), name))
    onnx.save(model, made)
    return made


def in_keras(folder: Path) -> Path:
    keras = pytest.importorskip("keras")
    image = keras.Input((*SIZE, 3))
    conv = keras.layers.Conv2D(4, 3, name="conv")
    value = conv(image)
    gate = keras.layers.Activation("hard_sigmoid", name="gate")(keras.layers.ReLU(7.0, name="cap")(value))
    bent = keras.layers.LeakyReLU(negative_slope=0.2, name="leaky")(value)
    bent = keras.layers.ReLU(6.0, name="six")(keras.layers.Activation("hard_silu", name="swish")(bent))
    model = keras.Model(image, keras.layers.Add(name="sum")([gate, bent]))
    conv.set_weights([KERNEL.transpose(2, 3, 1, 0), np.full(4, 0.5)])
    model.save(folder / "net.keras")
    return folder / "net.keras"


def in_tensorflow(folder: Path) -> Path:
    pytest.importorskip("tensorflow")

    def made(x: Any) -> Any:
        tf = tensorflow()
        kernel = tf.constant(KERNEL.transpose(2, 3, 1, 0).astype(np.float64))
        value = tf.nn.conv2d(x, kernel, 1, "VALID") + tf.constant(np.full(4, 0.5))
        leaky = tf.nn.leaky_relu(value, 0.2)
        return tf.nn.relu6(tf.nn.relu6(leaky + 3.0) * leaky / 6.0, name="six") + variable("last", 4)

    frozen(folder / "net.pb", made)
    return folder / "net.pb"


def in_mxnet(folder: Path) -> Path:
    lines: list[Line] = [
        ("conv", "Convolution", {"kernel": (3, 3), "num_filter": 4}, ("data", "conv_weight", "conv_bias")),
        ("cap", "clip", {"a_min": 0, "a_max": 7}, ("conv",)),
        ("leaky", "LeakyReLU", {"act_type": "leaky", "slope": 0.2}, ("conv",)),
        ("sum", "elemwise_add", {}, ("cap", "leaky")),
    ]
    return write_mxnet(
        folder / "net", lines, {"conv_weight": KERNEL, "conv_bias": np.full(4, 0.5, np.float32)}
    )


def in_tflite(folder: Path) -> Path:
    """A ReLU6 that its convolution states, and one that reads another value."""
    tf = tensorflow()

    def compute(x: Any) -> Any:
        six = tf.nn.relu6(tf.nn.conv2d(x, tf.constant(KERNEL.transpose(2, 3, 1, 0)), 1, "VALID") + 0.5)
        return tf.nn.relu6(tf.nn.leaky_relu(six - 0.1, 0.2) * 0.5) + six

    traced = tf.function(compute, [tf.TensorSpec((1, *SIZE, 3), tf.float32)]).get_concrete_function()
    made = tf.lite.TFLiteConverter.from_concrete_functions([traced], tf.Module()).convert()
    (folder / "net.tflite").write_bytes(made)
    return folder / "net.tflite"


MADE: dict[str, Callable[[Path], Path]] = {
    "torch": exported,
    "onnx": in_onnx,
    "keras": in_keras,
    "tensorflow": in_tensorflow,
    "mxnet": in_mxnet,
    "tflite": in_tflite,
}


def planted(op: Op) -> Op | None:
    """What a reader may take an op for that is equal wherever no bound is reached."""
    match op:
        case Relu6():
            return Clip(0.0, 5.0)
        case Clip():
            return Clip(op.low, op.high - 0.5)
        case HardSigmoid():
            return None if op.slope == 0 else HardSigmoid(op.slope, op.offset + 1e-3)
        case HardSwish():
            return Swish()
        case LeakyRelu():
            return LeakyRelu(0.1)
    return None


def proved(port: StoredPort, file: Path) -> Verdict:
    return prove_against(Check(port, ("float64",)), reopen_source(port, file, None))[0]


def with_op(port: StoredPort, path: str, op: Op) -> StoredPort:
    nodes = tuple(replace(node, op=op) if node.path == path else node for node in port.graph.nodes)
    graph = replace(port.graph, nodes=nodes)
    plan = make_plan(graph, port.plan.only_size or (None, None), port.destination.CAPABILITIES)
    return replace(port, graph=graph, plan=plan)


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("format", MADE)
def test_another_bound_is_refused_though_no_image_reaches_it(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = MADE[format](tmp_path)
    port = porter.convert(file, to="torch", out=tmp_path / "port", input_size=SIZE, check=False).port
    right = proved(port, file)
    assert right.ok and right.proof.unreached == ()
    with monkeypatch.context() as patched:
        patched.setattr(Check, "_compare_at_cut_points", lambda *_: {})
        hidden = proved(port, file).proof.unreached
        wrong = {path: op for path in hidden if (op := planted(port.graph.by_path[path].op)) is not None}
        assert {type(port.graph.by_path[path].op) for path in wrong} >= {LeakyRelu}
        assert proved(with_op(port, *list(wrong.items())[-1]), file).ok
    for path, op in wrong.items():
        found = proved(with_op(port, path, op), file)
        assert not found.ok and found.proof.first_bad is not None and found.proof.first_bad.path == path


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("wrong", [Clip(0.0, 5.9), Clip(-9.0, 6.0), Relu()], ids=["5.9", "below 0", "no cap"])
def test_the_cap_that_a_convolution_of_tflite_states(wrong: Op, tmp_path: Path) -> None:
    file = in_tflite(tmp_path)
    port = porter.convert(file, to="torch", out=tmp_path / "port", check=False).port
    first = next(node.path for node in port.graph.nodes if node.op == Relu6())
    found = proved(with_op(port, first, wrong), file).proof
    assert found.first_bad is not None and found.first_bad.path == first


TABLES = {  # Caffe's and MXNet's nets are read back, and compared as they are
    "torch": "torch.spellings.PLAIN",
    "tf": "tf.ports.layers.LAYERS",
    "onnx": "onnx.spellings.PLAIN",
    "flax": "flax.spellings.PLAIN",
    "mlx": "mlx.spellings.PLAIN",
}


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("to", TABLES)
def test_a_destination_that_writes_another_bound_is_refused(
    to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip({"tf": "keras", "onnx": "onnxruntime", "flax": "flax", "mlx": "mlx"}.get(to, "torch"))
    file = in_mxnet(tmp_path)
    port = porter.convert(file, to=to, out=tmp_path / "port", input_size=SIZE, check=False).port
    assert port.graph.by_path["cap"].op == Clip(0, 7) and proved(port, file).ok
    module, _, name = TABLES[to].rpartition(".")
    table: dict[type[Op], Callable[..., Any]] = getattr(
        importlib.import_module(f"porter.frameworks.{module}"), name
    )
    right = table[Clip]

    def lower(said: Any, *more: Any) -> Any:
        """What is said of the op, or of a node of it."""
        return right(Clip(0, 6) if isinstance(said, Clip) else replace(said, op=Clip(0, 6)), *more)

    monkeypatch.setitem(table, Clip, lower)
    found = proved(port, file).proof.first_bad
    assert found is not None and found.path == "cap"


class Hidden(nn.Module):
    """A layer whose attribute is hidden by what it reads: numbers above 0, or large ones."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.conv, self.layer, self.last = nn.Conv2d(3, 8, 3), layer, nn.Conv2d(8, 4, 1)
        self.conv.weight = nn.Parameter(self.conv.weight * (1e5 if isinstance(layer, nn.GroupNorm) else 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shifted = self.conv(x) + (0.0 if isinstance(self.layer, nn.GroupNorm) else 1000.0)
        given: torch.Tensor = self.last(self.layer(shifted))
        return given


def with_zeros(op: Op) -> Op:
    return replace(op, convention=replace(op.convention, fill=0.0)) if isinstance(op, MaxPool) else op


def with_epsilon(op: Op) -> Op:
    return replace(op, epsilon=1e-3) if isinstance(op, GroupNorm) else op


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize(
    ("layer", "planted"),
    [(nn.MaxPool2d(3, 2, 1), with_zeros), (nn.GroupNorm(2, 8, eps=1e-5), with_epsilon)],
    ids=["pads of a pool", "epsilon"],
)
def test_pads_and_epsilons_that_no_image_shows(
    layer: nn.Module, planted: Callable[[Op], Op], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    file, model = tmp_path / "net.pt2", Hidden(layer).eval()
    torch.export.save(torch.export.export(model, (torch.zeros(1, 3, *SIZE),)), file)
    port = porter.convert(file, to="torch", out=tmp_path / "port", check=False).port
    assert proved(port, file).ok and proved(port, file).proof.unreached == ()
    wrong = with_op(port, "layer", planted(port.graph.by_path["layer"].op))
    found = proved(wrong, file).proof.first_bad
    assert found is not None and found.path == "layer"
    monkeypatch.setattr(Check, "_compare_at_cut_points", lambda *_: {})
    passed = proved(wrong, file)
    assert passed.ok and passed.proof.unreached == ("layer",)


@pytest.mark.usefixtures("one_recipe")
def test_pads_of_a_pool_that_reads_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    model: Any = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> net (float[N,3,12,11] x) => (float[N,3] y) {
        p = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)
        g = GlobalAveragePool (p) y = Flatten (g) }"""
    )
    onnx.save(model, tmp_path / "net.onnx")
    monkeypatch.setattr(inputs, "FALLBACKS", (inputs.PIXELS,))
    port = porter.convert(tmp_path / "net.onnx", to="torch", out=tmp_path / "port", check=False).port
    assert proved(port, tmp_path / "net.onnx").ok
    (pool,) = (node for node in port.graph.nodes if isinstance(node.op, MaxPool))
    wrong = with_op(port, pool.path, with_zeros(pool.op))
    found = proved(wrong, tmp_path / "net.onnx").proof.first_bad
    assert found is not None and found.path == pool.path


@pytest.mark.usefixtures("one_recipe")
def test_a_bound_among_four_pixels_that_is_a_tenth_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of pixels from 0 to 255 hardly one is between the two bounds."""
    onnx = pytest.importorskip("onnx")
    model: Any = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> net (float[N,1,2,2] x) => (float[N,2,2,2] y) {
        t = ThresholdedRelu <alpha = 0.065> (x) y = Concat <axis = 1> (x, t) }"""
    )
    onnx.save(model, tmp_path / "net.onnx")
    monkeypatch.setattr(inputs, "FALLBACKS", (inputs.PIXELS,))
    port = porter.convert(tmp_path / "net.onnx", to="torch", out=tmp_path / "port", check=False).port
    assert proved(port, tmp_path / "net.onnx").ok
    wrong = with_op(port, port.graph.nodes[0].path, ThresholdedRelu(0.0715))
    found = proved(wrong, tmp_path / "net.onnx").proof.first_bad
    assert found is not None and found.path == port.graph.nodes[0].path


@pytest.mark.usefixtures("one_recipe")
def test_pads_that_differ_at_one_size_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    file, sides = tmp_path / "net.pt2", dict.fromkeys((2, 3), torch.export.Dim.AUTO)
    model = Hidden(nn.MaxPool2d(3, 2, 1)).eval()
    torch.export.save(torch.export.export(model, (torch.zeros(2, 3, *SIZE),), dynamic_shapes=(sides,)), file)
    port = porter.convert(file, to="torch", out=tmp_path / "port", input_size=24, check=False).port
    right = proved(port, file).proof
    assert right.ok and len(right.sizes) > 1 and right.cut is not None and right.cut.inside == ()
    smallest, run_cut = min(right.sizes, key=prod), FileGraphReference.run_cut

    def with_zeros_elsewhere(
        self: FileGraphReference, batch: Array, paths: Collection[str], cut: NamedArrays
    ) -> dict[str, Array]:
        values = run_cut(self, batch, paths, cut)
        if "layer" in values and batch.shape[2:] != smallest:
            values["layer"] = np.maximum(values["layer"], 0)
        return values

    monkeypatch.setattr(FileGraphReference, "run_cut", with_zeros_elsewhere)
    found = proved(port, file).proof
    assert found.first_bad is not None and found.first_bad.path == "layer" and found.first_bad.alone


@pytest.mark.usefixtures("one_recipe")
def test_a_wire_from_before_an_activation_that_no_image_changes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = in_onnx(tmp_path)
    port = porter.convert(file, to="torch", out=tmp_path / "port", check=False).port
    (last,) = (node for node in port.graph.nodes if "p" in node.inputs)
    wired = tuple(replace(node, inputs=("c",)) if node is last else node for node in port.graph.nodes)
    graph = replace(port.graph, nodes=wired)
    wrong = replace(port, graph=graph, plan=make_plan(graph, SIZE, port.destination.CAPABILITIES))
    found = proved(wrong, file).proof
    assert not found.ok and found.first_bad is not None and found.first_bad.path == last.path
    monkeypatch.setattr(Check, "_compare_at_cut_points", lambda *_: {})
    assert proved(wrong, file).ok


@pytest.mark.usefixtures("one_recipe")
def test_the_largest_of_all_from_before_a_relu_that_nothing_else_reads_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx = pytest.importorskip("onnx")
    model: Any = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> net (float[N,3,12,11] x) => (float[N,4] y) {
        c = Conv (x, k, b) r = Relu (c) g = GlobalMaxPool (r) y = Flatten (g) }"""
    )
    for name, array in {"k": KERNEL, "b": np.full(4, 0.5)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, np.float32), name))
    onnx.save(model, tmp_path / "net.onnx")
    port = porter.convert(tmp_path / "net.onnx", to="torch", out=tmp_path / "port", check=False).port
    assert proved(port, tmp_path / "net.onnx").ok
    (relu,) = (node for node in port.graph.nodes if isinstance(node.op, Relu))
    nodes = tuple(
        replace(node, inputs=relu.inputs) if relu.path in node.inputs else node for node in port.graph.nodes
    )
    graph = replace(port.graph, nodes=nodes)
    wrong = replace(port, graph=graph, plan=make_plan(graph, SIZE, port.destination.CAPABILITIES))
    found = proved(wrong, tmp_path / "net.onnx").proof
    assert not found.ok and found.first_bad is not None and found.first_bad.alone
    monkeypatch.setattr(Check, "_compare_at_cut_points", lambda *_: {})
    assert proved(wrong, tmp_path / "net.onnx").ok


@pytest.mark.usefixtures("one_recipe")
def test_a_network_whose_answer_hardly_depends_on_the_image_is_proved_node_by_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx = pytest.importorskip("onnx")
    model: Any = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> net (float[N,3,12,11] x) => (float[N,4,10,9] y) {
        c = Conv (x, k) t = Tanh (c) s = Mul (t, small) y = Add (s, one) }"""
    )
    for name, array in {"k": KERNEL, "small": 1e-9, "one": 1.0}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, np.float32), name))
    onnx.save(model, tmp_path / "net.onnx")
    made = porter.convert(tmp_path / "net.onnx", to="torch", out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.ok and made.verdict.proof.cut is not None
    assert made.verdict.proof.cut.inside == ()
    monkeypatch.setattr(Check, "_compare_at_cut_points", lambda *_: {})
    with pytest.raises(CheckFailed, match="same for every input"):
        porter.convert(tmp_path / "net.onnx", to="torch", out=tmp_path / "other")


@pytest.mark.usefixtures("one_recipe")
def test_what_a_tolerance_lets_pass_at_cut_points_is_not_said_to_be_reached(tmp_path: Path) -> None:
    file = in_onnx(tmp_path)
    port = porter.convert(file, to="torch", out=tmp_path / "port", check=False).port
    wrong = with_op(port, "l", LeakyRelu(0.1))
    found = prove_against(Check(wrong, ("float64",), 0.99), reopen_source(port, file, None))[0].proof
    assert found.ok and "l" in found.unreached
    assert found.cut is not None and "l" in found.cut.inside


class Beside(nn.Module):
    """An activation beside another one, or beside a summand that is 0 for all images."""

    def __init__(self, far: bool) -> None:
        super().__init__()
        self.far, self.conv, self.last = far, nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1)
        self.conv.weight = nn.Parameter(torch.from_numpy(KERNEL))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value = self.conv(x)
        if self.far:
            added = torch.sigmoid(value) + torch.relu(value - 1e4)
        else:
            added = nn.functional.relu6(value) + nn.functional.gelu(value)
        given: torch.Tensor = self.last(added)
        return given


def beside(far: bool, folder: Path) -> tuple[StoredPort, Path]:
    torch.manual_seed(0)
    torch.export.save(
        torch.export.export(Beside(far).eval(), (torch.zeros(1, 3, *SIZE),)), folder / "net.pt2"
    )
    return porter.convert(
        folder / "net.pt2", to="torch", out=folder / "port", check=False
    ).port, folder / "net.pt2"


@pytest.mark.usefixtures("one_recipe")
def test_a_bound_that_only_the_source_has_is_reached_beside_an_activation_without_bounds(
    tmp_path: Path,
) -> None:
    port, file = beside(False, tmp_path)
    assert proved(port, file).ok
    six = next(node.path for node in port.graph.nodes if node.op == Relu6())
    found = proved(with_op(port, six, Relu()), file).proof.first_bad
    assert found is not None and found.path == six


@pytest.mark.usefixtures("one_recipe")
def test_what_is_equal_only_where_less_is_cut_is_not_said_to_be_equal_by_itself(tmp_path: Path) -> None:
    port, file = beside(True, tmp_path)
    right = proved(port, file).proof.cut
    assert right is not None and right.inside == ()
    (add,) = (node for node in port.graph.nodes if node.op.name == "add" and len(node.inputs) == 2)
    alone = replace(add, op=Identity(), inputs=add.inputs[:1])
    graph = replace(port.graph, nodes=tuple(alone if node is add else node for node in port.graph.nodes))
    wrong = replace(port, graph=graph, plan=make_plan(graph, SIZE, port.destination.CAPABILITIES))
    cut = proved(wrong, file).proof.cut  # no image shows the summand that is lost
    assert cut is not None and cut.inside == (add.path,) and cut.least is None


@pytest.mark.usefixtures("one_recipe")
def test_a_channel_that_is_far_smaller_than_the_others_is_compared(tmp_path: Path) -> None:
    conv = nn.Conv2d(3, 4, 3)
    with torch.no_grad():
        conv.weight[2:] *= 1e-11
        conv.bias[2:] *= 1e-11  # type: ignore[index]  # torch says that it may be None
    file = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(nn.Sequential(conv).eval(), (torch.zeros(1, 3, *SIZE),)), file)
    port = porter.convert(file, to="torch", out=tmp_path / "port", check=False).port
    assert proved(port, file).ok
    tensors = {path: dict(roles) for path, roles in port.tensors().items()}
    (roles,) = tensors.values()
    roles["kernel"] = roles["kernel"].copy()
    roles["kernel"][2] = roles["kernel"][2].transpose(0, 2, 1)
    wrong = prove_against(Check(port, ("float64",), tensors=tensors), reopen_source(port, file, None))[0]
    assert wrong.proof.first_bad is not None and wrong.proof.first_bad.alone


@pytest.mark.usefixtures("one_recipe")
def test_a_port_that_gives_another_value_than_its_source_is_refused(tmp_path: Path) -> None:
    port, file = beside(False, tmp_path)
    record = port.folder / "port.json"
    stated = json.loads(record.read_text())
    last = port.graph.by_path[port.graph.output]
    stated["graph"]["output"] = last.inputs[0]
    record.write_text(json.dumps(stated))
    with pytest.raises(CheckFailed, match="and its source"):
        porter.verify(tmp_path / "port", weights=file)


@pytest.mark.usefixtures("one_recipe")
def test_the_last_bit_of_a_small_number_is_compared(tmp_path: Path) -> None:
    """No value shows it: a number is 1e-6 of the others, and its last bit 1e-7 of it."""
    safetensors = pytest.importorskip("safetensors.numpy")
    conv = nn.Conv2d(3, 4, 3)
    with torch.no_grad():
        conv.weight[0, 0, 0, 0] = 1e-6
    file, folder = tmp_path / "net.pt2", tmp_path / "port"
    torch.export.save(torch.export.export(nn.Sequential(conv).eval(), (torch.zeros(1, 3, *SIZE),)), file)
    porter.convert(file, to="torch", out=folder, check=False)
    assert porter.verify(folder, weights=file).ok
    tensors = safetensors.load_file(folder / "model.safetensors")
    (kernel,) = (array for array in tensors.values() if array.ndim == 4)
    kernel[0, 0, 0, 0] = np.nextafter(kernel[0, 0, 0, 0], kernel.dtype.type(1))
    safetensors.save_file(tensors, folder / "model.safetensors")
    record = json.loads((folder / "port.json").read_text())
    record["model"]["model.safetensors"] = sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    (folder / "port.json").write_text(json.dumps(record))
    with pytest.raises(CheckFailed, match="numbers, rounded once") as refused:
        porter.verify(folder, weights=file)
    assert refused.value.where is not None and refused.value.where.endswith(":kernel")
    assert porter.verify(folder, weights=file, tolerance=1e-6).ok
