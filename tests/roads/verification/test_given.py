"""What a file, or a zoo's code, gives is compared with what porter takes for it: a reader that reads one step
too few, or takes it for another one, is not proved by a reference that is read at the same place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import CheckFailed, Contradiction
from porter.filegraph import finishing
from porter.filegraph.builder import Builder
from porter.filegraph.layer_values import Value
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import NodeWalk
from porter.formats.caffe.rows import _ROWS
from porter.frameworks import RETURNED
from porter.graph import Flatten, Graph, Softmax, Tanh
from porter.graph.record import to_record
from porter.padding import Convention
from porter.verification.inputs import SIGNED, make_images
from tests.support.arrays import Array
from tests.support.caffe_files import write_caffe
from tests.support.fixtures import Cli
from tests.support.formats.tf_graph.file_graphs import frozen, variable
from tests.support.formats.torch_export.exports import export
from tests.support.mxnet_files import write_mxnet
from tests.support.parity import zoos_source
from tests.support.torch7_files import Module, Sizes, write_torch7
from tests.support.weights_files import published_like

CHANNELS, SIZE = 5, (12, 11)
CAFFE = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 12 dim: 11 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 5 kernel_size: 3 } }
layer { name: "mean" type: "Pooling" bottom: "conv" top: "mean"
  pooling_param { pool: AVE global_pooling: true } }
layer { name: "flat" type: "Flatten" bottom: "mean" top: "flat" }
layer { name: "end" type: "TanH" bottom: "flat" top: "end" }
"""


def kernel(seed: int = 0) -> Array:
    """O x I x H x W."""
    return np.random.default_rng(seed).normal(0, 0.6, (CHANNELS, 3, 3, 3)).astype(np.float32)


def onnx_file(path: Path, end: int = 4) -> Path:
    """Args: end: how many of the nodes it has."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Conv", ["image", "kernel"], ["conv"]),
        helper.make_node("GlobalAveragePool", ["conv"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Tanh", ["flat"], ["end"]),
    ]
    graph = helper.make_graph(
        nodes[:end],
        "graph",
        [helper.make_tensor_value_info("image", real, ["N", 3, *SIZE])],
        [helper.make_tensor_value_info(nodes[end - 1].output[0], real, None)],
        [onnx.numpy_helper.from_array(kernel(), "kernel")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    file = path.with_suffix(".onnx")
    onnx.save(model, file)
    return file


def exported(path: Path) -> Path:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, CHANNELS, 3, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Tanh()
    )
    model[0].weight.data = torch.from_numpy(kernel())
    return export(model, torch.zeros(2, 3, *SIZE), path.parent)[0]


def keras_model(fused: bool) -> Any:
    keras = pytest.importorskip("keras")
    image = value = keras.Input((*SIZE, 3))
    value = keras.layers.Conv2D(CHANNELS, 3, use_bias=False)(value)
    value = keras.layers.GlobalAveragePooling2D()(value)
    if fused:
        value = keras.layers.Dense(CHANNELS, activation="tanh")(value)
    else:
        value = keras.layers.Activation("tanh")(value)
    model = keras.Model(image, value)
    model.layers[1].set_weights([kernel().transpose(2, 3, 1, 0)])
    return model


def keras_file(suffix: str, fused: bool) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        file = path.with_suffix(suffix)
        keras_model(fused).save(file)
        return file

    return write


def saved_model(path: Path) -> Path:
    keras_model(False).export(path, verbose=False)
    return path


def frozen_graph(path: Path) -> Path:
    tf, file = pytest.importorskip("tensorflow"), path.with_suffix(".pb")

    def network(image: Any) -> Any:
        value = tf.nn.conv2d(image, variable("kernel", 3, 3, 3, CHANNELS), 1, "VALID")
        return tf.identity(tf.tanh(tf.reduce_mean(value, (1, 2))), name="end")

    frozen(file, network)
    return file


def tflite(path: Path) -> Path:
    tf, file = pytest.importorskip("tensorflow"), path.with_suffix(".tflite")

    @tf.function(input_signature=[tf.TensorSpec((1, *SIZE, 3), tf.float32)])
    def network(image: Any) -> Any:
        return tf.tanh(
            tf.reduce_mean(tf.nn.conv2d(image, kernel().transpose(2, 3, 1, 0), 1, "VALID"), (1, 2))
        )

    concrete = network.get_concrete_function()
    file.write_bytes(tf.lite.TFLiteConverter.from_concrete_functions([concrete], network).convert())
    return file


def caffe(path: Path) -> Path:
    bias = np.zeros(CHANNELS, np.float32)
    return write_caffe(path, CAFFE, {"conv": [kernel(), bias]})


def mxnet(path: Path) -> Path:
    sizes = {"num_filter": CHANNELS, "kernel": (3, 3), "no_bias": True}
    lines: list[tuple[str, str, Mapping[str, Any], list[str]]] = [
        ("conv", "Convolution", sizes, ["data", "kernel"]),
        ("mean", "Pooling", {"global_pool": True, "pool_type": "avg"}, ["conv"]),
        ("flat", "Flatten", {}, ["mean"]),
        ("end", "Activation", {"act_type": "tanh"}, ["flat"]),
    ]
    return write_mxnet(path, lines, {"kernel": kernel()})


def torch7(path: Path) -> Path:
    weight, sides = kernel(), {"kH": 3, "kW": 3, "dH": 1, "dW": 1, "padH": 0, "padW": 0}
    layers = (
        Module("SpatialConvolution", weight=weight, nInputPlane=3, nOutputPlane=CHANNELS, **sides),
        Module("SpatialAdaptiveAveragePooling", W=1, H=1),
        Module("View", size=Sizes([-1, CHANNELS])),
        Module("Tanh"),
    )
    return write_torch7(path.with_suffix(".t7"), Module("Sequential", *layers))


FILES = {
    "onnx": onnx_file,
    "pt2": exported,
    "keras": keras_file(".keras", False),
    "keras, fused": keras_file(".keras", True),
    "h5": keras_file(".h5", False),
    "SavedModel": saved_model,
    "frozen graph": frozen_graph,
    "caffe": caffe,
    "mxnet": mxnet,
    "torch7": torch7,
    "tflite": tflite,
}
RUN_BY = {
    ".onnx": "ONNX's reference implementation in float64, onnxruntime in float32",
    ".pt2": "torch",
    **dict.fromkeys((".prototxt", ".json", ".t7", ".tflite"), "porter's interpreter"),
}
"""What runs a file's own graph, by the file's suffix."""
Change = Callable[[NodeWalk[Any], dict[NodeOutput, Value]], dict[NodeOutput, Value]]


def one_step_earlier(walk: NodeWalk[Any], ends: dict[NodeOutput, Value]) -> dict[NodeOutput, Value]:
    return {
        source: replace(value, node=walk.builder.nodes[value.node].inputs[0])
        for source, value in ends.items()
    }


def another_last_step(walk: NodeWalk[Any], ends: dict[NodeOutput, Value]) -> dict[NodeOutput, Value]:
    """A softmax, which a port lacks."""
    for value in ends.values():
        node = walk.builder.nodes[value.node]
        assert isinstance(node.op, Tanh)
        walk.builder.nodes[value.node] = replace(node, op=Softmax())
    return ends


def without_cells(walk: NodeWalk[Any], ends: dict[NodeOutput, Value]) -> dict[NodeOutput, Value]:
    """As N x C, read where the file gives N x C x 1 x 1."""
    return {
        source: walk.builder.add("end", Flatten(), value, tap=walk.builder.nodes[value.node].tap)
        for source, value in ends.items()
    }


CHANGES = {"earlier": one_step_earlier, "another": another_last_step}


@pytest.fixture(scope="module", params=FILES)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FILES[request.param](tmp_path_factory.mktemp("files") / "model")


def convert(file: Path, folder: Path) -> porter.Ported:
    return porter.convert(file, to="torch", out=folder, input_size="12x11")


def plant(change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    right = finishing.output_values

    def wrong(walk: NodeWalk[Any], sources: Iterable[NodeOutput]) -> dict[NodeOutput, Value]:
        return change(walk, dict(right(walk, sources)))

    monkeypatch.setattr(finishing, "output_values", wrong)


def test_what_a_file_gives_is_proved(file: Path, tmp_path: Path) -> None:
    made = convert(file, tmp_path / "port")
    assert made.verdict is not None and made.verdict.proof.reference == "the file's own graph"
    assert made.verdict.proof.run_by == RUN_BY.get(file.suffix, "TensorFlow")
    assert isinstance(made.port.graph.by_path[made.port.graph.output].op, Tanh)


@pytest.mark.parametrize("change", CHANGES)
def test_a_reader_that_ends_elsewhere_is_refused(
    change: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(CHANGES[change], monkeypatch)
    with pytest.raises(
        Contradiction, match=r"the file gives '.*', for which porter takes '.*': their relative"
    ):
        convert(file, tmp_path / "port")
    assert not (tmp_path / "port").exists()


def test_a_reader_that_gives_other_axes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = onnx_file(tmp_path / "model", end=2)
    assert convert(file, tmp_path / "port").verdict is not None
    plant(without_cells, monkeypatch)
    said = r"the file gives 'mean', for which porter takes 'end': it is 5x1x1 for each image in the file"
    with pytest.raises(Contradiction, match=said):
        convert(file, tmp_path / "other")


def test_outputs_come_in_the_file_s_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    file, right = onnx_file(tmp_path / "model"), Builder.finish
    model = onnx.load(file)
    model.graph.output.append(onnx.helper.make_tensor_value_info("flat", onnx.TensorProto.FLOAT, None))
    onnx.save(model, file)
    assert convert(file, tmp_path / "port").port.graph.outputs == ("end", "flat")

    def turned(builder: Builder, outputs: Iterable[Value]) -> Any:
        return right(builder, [*outputs][::-1])

    monkeypatch.setattr(Builder, "finish", turned)
    with pytest.raises(
        Contradiction,
        match="expected the outputs in the file's order, end, flat, got flat, end from the port",
    ):
        convert(file, tmp_path / "other")


class Longer:
    """A zoo's code with one step more behind its logits, or one less."""

    def __init__(self, own: Any, zoo: str) -> None:
        self.own, self.zoo = own, zoo

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def build(self, *given: Any) -> Any:
        model = self.own.build(*given)
        if self.zoo == "torchvision":
            model.register_forward_hook(lambda module, images, logits: logits.tanh())
        elif self.zoo == "slim":  # a step less: the logits without their bias
            model.values[RETURNED] = "MobilenetV2/Logits/Conv2d_1c_1x1/Conv2D"
        else:
            import keras

            model.porter_runner.values[RETURNED] = keras.ops.tanh(model.output)
        return model


@pytest.mark.parametrize("zoo", ["torchvision", pytest.param("keras", marks=pytest.mark.full), "slim"])
def test_a_zoo_s_code_returns_what_the_recipe_names(zoo: str, tmp_path: Path) -> None:
    variant, image = "mobilenet_v2_0.35", make_images((32, 32), 1, 3, SIGNED)
    source: Any = zoos_source(variant, zoo, published_like(tmp_path, variant, zoo))[1].source
    assert "head/logits" in source.run(image, "float64")
    longer = replace(source, implementation=Longer(source.implementation, zoo))
    with pytest.raises(CheckFailed, match=r"expected it to return the value of its '\w+.*', which the"):
        longer.run(image, "float64")


def test_what_is_compared_is_what_the_folder_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that port.json states otherwise would be loaded otherwise than it was proved."""

    def lossy(graph: Graph) -> dict[str, Any]:
        pads = Convention("explicit", (0, 1, 0, 1))
        first: Any = graph.nodes[0].op
        conv = replace(graph.nodes[0], op=replace(first, convention=pads))
        return to_record(replace(graph, nodes=(conv, *graph.nodes[1:])))

    file = onnx_file(tmp_path / "model")
    monkeypatch.setattr("porter.conversion.convert.to_record", lossy)
    with pytest.raises(CheckFailed, match="conv is the first node that differs"):
        convert(file, tmp_path / "port")


def said(*_: object) -> str:
    """What a witness says that reads a file otherwise."""
    return "it reads 'conv' otherwise"


def fails(*_: object) -> Any:
    raise ValueError("its shapes do not fit")


KINDS: dict[str, tuple[Callable[[Path], Path], Mapping[str, Any]]] = {
    "two readings of a config": (
        FILES["keras"],
        {"porter.frameworks.tf.keras_files.build.find_misreading": said},
    ),
    "h5py": (FILES["h5"], {"porter.formats.keras.witness.disagreement": said}),
    "the interpreter": (FILES["tflite"], {"porter.frameworks.tflite.witness.disagreement": said}),
    "TensorFlow's definitions": (
        FILES["frozen graph"],
        {"porter.frameworks.tf.frozen.witness.disagreement": said},
    ),
    "two programs": (
        FILES["onnx"],
        {
            "porter.verification.references.file_graph_reference.FileGraphReference.disagreement": said,
            "porter.verification.proving._rests_on_rounding": lambda verdict: True,
        },
    ),
    "the engine and the reader": (
        FILES["caffe"],
        {"porter.formats.caffe.rows._ROWS": {**_ROWS, "TanH": fails}},
    ),
}
"""What porter can find that differs from itself: a file, and what says so."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_contradiction_is_never_a_port(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    write, planted = KINDS[kind]
    file, other = write(tmp_path / "model"), write(tmp_path / "other")
    right = convert(file, tmp_path / "right").port.folder
    for name, value in planted.items():
        monkeypatch.setattr(name, value)
    for framework in ("torch", "tf"):
        ran = cli("convert", file, "--to", framework, "--input-size", "12x11", "--out", "port", "--json")
        assert ran.status == 1 and json.loads(ran.out)["error"]["code"] == "contradiction", ran.out
    if kind != "two programs":  # a reference of the user's own is a third one
        with pytest.raises(porter.Contradiction):
            porter.convert(file, to="onnx", out=tmp_path / "port", input_size="12x11", reference=other)
    assert not (tmp_path / "port").exists()
    assert cli("verify", right, "--weights", file).status == 1
