"""From a Keras model's config to porter's ops: keras.applications' models, single layers, wiring, and configs
from strangers.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import porter
from porter.base.errors import FileError
from porter.filegraph.file_graph import FileGraph, FileNode, Foreign, Stored
from porter.filegraph.reading import ReaderFault
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.to_graph import to_graph
from porter.formats.keras import flow
from porter.formats.keras.graph import read_graph
from porter.formats.keras.layer_readers import IDENTITY_AT_INFERENCE
from porter.formats.keras.stated_layer import KerasLayer
from porter.graph import (
    INPUT,
    Add,
    Affine,
    AvgPool,
    BatchNorm,
    ConcatChannels,
    Conv,
    Dense,
    Divide,
    Flatten,
    FurtherInput,
    GlobalAvgPool,
    Identity,
    MatMul,
    Maximum,
    MaxPool,
    Multiply,
    PadMap,
    Rearrange,
    Relu,
    Relu6,
    SliceChannels,
    Softmax,
)
from porter.padding import LOWEST, Convention, Window
from tests.support.arrays import Array
from tests.support.oracle import evaluate

pytestmark = pytest.mark.usefixtures("in_double")

Json = dict[str, Any]
THREE = Window((3, 3))


def layer(kind: str, name: str, *inputs: str | list[Any], **arguments: Any) -> Json:
    """A layer of a functional model as Keras 2 writes it; `inputs` are names, or whole entries."""
    entries = [one if isinstance(one, list) else [one, 0, 0, {}] for one in inputs]
    arguments = {"max_value": None, **arguments} if kind == "ReLU" else arguments
    return {
        "class_name": kind,
        "name": name,
        "config": {"name": name, **arguments},
        "inbound_nodes": [entries] if entries else [],
    }


def source(*shape: int | None) -> Json:
    return layer("InputLayer", "in", batch_input_shape=[None, *(shape or (8, 8, 3))])


def functional(*layers: Json, output: str | None = None, name: str = "model", start: str = "in") -> Json:
    outputs = [[output or layers[-1]["name"], 0, 0]]
    return {
        "class_name": "Functional",
        "config": {
            "name": name,
            "layers": list(layers),
            "input_layers": [[start, 0, 0]],
            "output_layers": outputs,
        },
    }


def conv(name: str, *inputs: str | list[Any], **others: Any) -> Json:
    return layer(
        "Conv2D",
        name,
        *inputs,
        **{"filters": 4, "kernel_size": [3, 3], "padding": "valid", "use_bias": False, **others},
    )


def kernels(*names: str) -> dict[str, Array]:
    return {f"{name}/kernel": np.ones((3, 3, 3, 4), np.float32) for name in names}


def read(model: Json, tensors: Mapping[str, Array] | None = None) -> FileGraph:
    graph = read_graph(json.dumps(model), tensors or {}, "model.h5")
    assert isinstance(graph, FileGraph)
    return graph


def said(graph: FileGraph) -> dict[str, Any]:
    return {node.name: node.op for node in graph.nodes}


def only(
    kind: str,
    shape: tuple[int | None, ...] = (8, 8, 3),
    tensors: Mapping[str, Array] | None = None,
    **arguments: Any,
) -> FileNode:
    """The node of a single layer."""
    graph = read(functional(source(*shape), layer(kind, "it", "in", **arguments)), tensors)
    assert len(graph.nodes) == 1 and graph.nodes[0].inputs == (INPUT,)
    return graph.nodes[0]


def stock(name: str, size: int | None, **arguments: Any) -> FileGraph:
    """A keras.applications model's graph, read only from the config."""
    import keras

    model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), **arguments)
    tensors = {
        f"{one.name}/{weight.name}": np.empty(weight.shape, np.float32)
        for one in model.layers
        for weight in one.weights
    }
    return read(json.loads(model.to_json()), tensors)


def pads_of(graph: FileGraph) -> dict[str, tuple[int, ...]]:
    return {
        n.name: n.op.convention.pads
        for n in graph.nodes
        if isinstance(n.op, Conv) and n.op.convention.rule == "explicit"
    }


@pytest.mark.parametrize("size", [224, 225, None])
def test_mobilenet_v2_pads_as_it_was_built(size: int | None) -> None:
    graph = stock("MobileNetV2", size, alpha=0.35, include_top=False)
    # Maps of 225 shrink to 113, 57, 29 and 15, all odd; correct_pad takes an unknown size for even.
    pads = (1, 1, 1, 1) if size == 225 else (0, 1, 0, 1)
    assert pads_of(graph) == {f"block_{i}_depthwise": pads for i in (1, 3, 6, 13)}
    assert (graph.size, graph.channels, graph.outputs, graph.resizable) == (
        (size, size),
        3,
        ("out_relu",),
        True,
    )
    assert graph.by_name["Conv1"].op == Conv(16, Window((3, 3), (2, 2)), Convention("same"))
    assert graph.by_name["block_1_depthwise"].op == Conv(
        96 // 2, Window((3, 3), (2, 2)), Convention("explicit", pads), 48
    )
    assert graph.by_name["bn_Conv1"].op == BatchNorm(1e-3, 0.001)
    assert graph.by_name["block_2_add"] == FileNode(
        "block_2_add", Add(), ("block_1_project_BN", "block_2_project_BN"), {}, "block_2_add"
    )
    assert graph.by_name["Conv1_relu"].op == Relu6()
    assert not any(isinstance(node.op, Foreign) for node in graph.nodes)


NORM = {f"it/{name}": np.ones(3, np.float32) for name in ("gamma", "beta", "moving_mean", "moving_variance")}
AFFINE = {name: NORM[name] for name in ("it/gamma", "it/beta")}
KERNEL = {"it/kernel": np.ones((3, 3, 3, 4), np.float32), "it/bias": np.ones(4, np.float32)}
DEPTHWISE = {"it/depthwise_kernel": np.ones((3, 3, 3, 2), np.float32)}
HEAD = {"it/kernel": np.ones((3, 5), np.float32), "it/bias": np.ones(5, np.float32)}


@pytest.mark.parametrize(
    ("kind", "arguments", "tensors", "op"),
    [
        (
            "Conv2D",
            {
                "filters": 4,
                "kernel_size": [3, 3],
                "strides": [2, 1],
                "dilation_rate": [1, 2],
                "groups": 1,
                "use_bias": False,
                "padding": "same",
            },
            KERNEL,
            Conv(4, Window((3, 3), (2, 1), (1, 2)), Convention("same")),
        ),
        ("BatchNormalization", {"axis": [3], "epsilon": 1e-5, "momentum": 0.9}, NORM, BatchNorm(1e-5, 0.1)),
        (
            "BatchNormalizationV1",
            {"axis": -1, "epsilon": 1e-3, "scale": False, "center": False},
            NORM,
            BatchNorm(1e-3, 0.01, False, False),
        ),
        ("ReLU", {"max_value": 6.0, "negative_slope": 0.0, "threshold": 0.0}, {}, Relu6()),
        ("Activation", {"activation": "relu6"}, {}, Relu6()),
        ("Activation", {"activation": "keras.applications.mobilenet.relu6"}, {}, Relu6()),
        (
            "Normalization",
            {"axis": [-1], "mean": [1.0, 2, 0], "variance": [4.0, 1, 0]},
            {},
            Affine((0.5, 1.0, 1e7), (-0.5, -2.0, 0.0)),
        ),
        (
            "Normalization",
            {"axis": None, "mean": 1.0, "variance": 4.0, "invert": True},
            {},
            Affine((2.0,), (1.0,)),
        ),
        (
            "Normalization",
            {"axis": [3], "mean": None, "variance": None},
            {"it/mean": np.ones(3), "it/variance": 4 * np.ones(3)},
            Affine((0.5,) * 3, (-0.5,) * 3),
        ),
        ("TFOpLambda", {"function": "nn.relu6"}, {}, Relu6()),
    ],
)
def test_a_layer_that_porter_has_an_op_for(
    kind: str, arguments: Json, tensors: Mapping[str, Array], op: Any
) -> None:
    assert only(kind, tensors=tensors, **arguments).op == op


@pytest.mark.parametrize(
    ("kind", "arguments", "tensors", "said"),
    [
        ("Lambda", {"function": ["4wEAAA==", None, None]}, {}, "Lambda"),
        ("MyLayer", {}, {"it/0": np.ones(3)}, "MyLayer"),
        ("ReLU", {"max_value": 6.0, "threshold": 1.0}, {},
            "ReLU with threshold 1 and another bound or slope"),
        ("Activation", {"activation": "sparsemax"}, {}, "Activation with activation 'sparsemax'"),
        ("PReLU", {"shared_axes": [2, 3]}, {"it/alpha": np.ones((3, 1, 1))},
            "PReLU of slopes 3x1x1 for 8x8x3"),
        ("UpSampling2D", {"size": 2, "interpolation": "lanczos3"}, {},
            "UpSampling2D with interpolation 'lanczos3'"),
        ("LayerNormalization", {"axis": [0, 3], "epsilon": 1e-3}, AFFINE,
            "LayerNormalization over the axes [0, 3]"),
        ("RMSNormalization", {"axis": [1], "epsilon": 1e-3}, {"it/scale": np.ones(8)},
            "RMSNormalization over the axes [1]"),
        ("Conv2DTranspose", {"filters": 4, "kernel_size": 3, "groups": 2}, KERNEL,
            "Conv2DTranspose with groups"),
        ("CustomScaleLayer", {"scale": 2.0, "shift": 1.0}, {},
            "CustomScaleLayer that is not keras.applications' own"),
        ("LayerScale", {"scale": 2.0}, {"it/gamma": np.ones(3)},
            "LayerScale that is not keras.applications' own"),
        ("Activation", {"activation": {"class_name": "function", "config": "relu6"}}, {},
            "with activation of the user's own: 'relu6'"),
        ("BatchNormalization", {"axis": [1, 3], "epsilon": 1e-3}, NORM,
            "BatchNormalization over the axes [1, 3]"),
        ("BatchNormalization", {"axis": -1, "epsilon": 1e-3, "renorm": True}, NORM,
            "BatchNormalization with renorm"),
        ("BatchNormalization", {"axis": -1, "epsilon": 1e-3}, {},
            "BatchNormalization without its weights in the file"),
        ("Conv2D", {"filters": 4, "kernel_size": 3, "padding": "causal"}, KERNEL,
            "Conv2D with padding 'causal'"),
        ("Conv2D", {"filters": 4, "kernel_size": 3, "data_format": "channels_between"}, KERNEL,
            "Conv2D with channels first"),
        ("Conv2D", {"filters": 4, "kernel_size": 3}, {}, "Conv2D without its weights in the file"),
        ("Conv2D", {"filters": 4, "kernel_size": 9999, "use_bias": False}, KERNEL, "from 1 to 1024"),
        ("Resizing", {"height": 4, "width": 8, "antialias": True}, {}, "Resizing with antialias"),
        ("Resizing", {"height": 4, "width": 5_000_000, "crop_to_aspect_ratio": True}, {},
            "with crop_to_aspect_ratio of 8x8"),
        ("RandomCrop", {"height": 4, "width": 8}, {}, "RandomCrop that resizes in inference"),
        ("Softmax", {"axis": [0, 2]}, {}, "Softmax over the batch"),
        ("EinsumDense", {"equation": "abcd,abd->acb"}, {"it/kernel": np.ones((1, 8, 3))},
            "EinsumDense by 'abcd,abd->acb'"),
        ("EinsumDense", {"equation": "abcd,de->abce", "bias_axes": "ce"}, HEAD, "with a bias along ce"),
        ("Attention", {"use_scale": True}, {}, "Attention with use_scale"),
        ("Dot", {"axes": 1}, {}, "Dot of normalised values, or of 1"),
        ("MultiHeadAttention", {"num_heads": 2, "key_dim": 2}, {}, "MultiHeadAttention with other inputs"),
        ("Rescaling", {"scale": [[1, 2, 3], [4, 5, 6]]}, {}, "not one number per channel"),
        ("Rescaling", {"scale": [1, 2, 3], "offset": [1, 2]}, {}, "two lengths"),
        ("Normalization", {"axis": [1], "mean": [0.0, 1], "variance": [1.0, 1]}, {}, "over axis [1]"),
        ("Normalization", {"axis": [-1], "mean": None, "variance": None}, {},
            "without one mean and variance"),
        ("ZeroPadding2D", {"padding": 1, "data_format": "channels_between"}, {}, "ZeroPadding2D"),
        ("TFOpLambda", {"function": "image.resize"}, {}, "TFOpLambda 'image.resize'"),
    ],
)  # fmt: skip
def test_a_layer_that_porter_has_no_op_for(
    kind: str, arguments: Json, tensors: Mapping[str, Array], said: str
) -> None:
    node = only(kind, tensors=tensors, **arguments)
    assert isinstance(node.op, Foreign) and said in node.op.kind
    assert {stored.name for stored in node.tensors.values()} == set(tensors)


@pytest.mark.parametrize(
    ("kind", "others"),
    [
        ("MultiHeadAttention", {"use_causal_mask": True}),
        ("MultiHeadAttention", {"attention_mask": np.ones((16, 16), bool)}),
        ("Attention", {"use_causal_mask": True}),
    ],
)
def test_what_an_attention_does_besides_is_named(kind: str, others: dict[str, Any]) -> None:
    import keras

    image = keras.Input((4, 4, 6))
    tokens = keras.layers.Reshape((16, 6))(image)
    made = keras.layers.MultiHeadAttention(2, 3) if kind == "MultiHeadAttention" else keras.layers.Attention()
    given = (tokens, tokens) if kind == "MultiHeadAttention" else ([tokens, tokens],)
    model = keras.Model(image, made(*given, **others))
    (node,) = (node for node in read(json.loads(model.to_json())).nodes if isinstance(node.op, Foreign))
    assert node.op.kind == f"{kind} with {', '.join(others)}"  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", sorted(IDENTITY_AT_INFERENCE - {"RandomCrop"}))
def test_layers_that_do_nothing_in_inference(kind: str) -> None:
    graph = read(functional(source(), layer(kind, "it", "in"), layer("ReLU", "relu", "it", max_value=None)))
    assert [(node.name, node.inputs) for node in graph.nodes] == [("relu", (INPUT,))]


@pytest.mark.parametrize("kind", sorted(IDENTITY_AT_INFERENCE))
def test_keras_agrees_that_they_do_nothing(kind: str) -> None:
    import keras

    if not hasattr(keras.layers, kind):
        pytest.skip("not in this version of Keras")
    needed: dict[str, Json] = {
        **{
            name: {"rate": 0.5}
            for name in ("Dropout", "AlphaDropout", "GaussianDropout", "SpatialDropout1D", "SpatialDropout2D")
        },
        "GaussianNoise": {"stddev": 1.0},
        "RandomCrop": {"height": 8, "width": 8},
        "RandomTranslation": {"height_factor": 0.5, "width_factor": 0.5},
        "RandomZoom": {"height_factor": 0.5},
        "RandomShear": {"x_factor": 0.5},
        "RandomPosterization": {"factor": 4},
        **{
            name: {"factor": 0.5}
            for name in (
                "RandomBrightness",
                "RandomContrast",
                "RandomRotation",
                "RandomHue",
                "RandomSaturation",
            )
        },
        **{name: {"factor": 0.5} for name in ("RandomSharpness", "RandomColorDegeneration")},
    }
    batch = (
        np.random.default_rng(0)
        .uniform(0, 255, (2, 24, 3) if kind == "SpatialDropout1D" else (2, 8, 8, 3))
        .astype(np.float32)
    )
    found = getattr(keras.layers, kind)(**needed.get(kind, {}))(batch, training=False)
    assert np.array_equal(np.asarray(found), batch)


def test_pads_go_into_every_window_that_they_feed() -> None:
    pad = layer("ZeroPadding2D", "pad", "in", padding=[[0, 1], [2, 3]])
    reads = [
        conv("a", "pad"),
        conv("b", "pad"),
        layer("MaxPooling2D", "most", "pad", pool_size=3, strides=1, padding="valid"),
        layer("AveragePooling2D", "mean", "pad", pool_size=3, strides=1, padding="valid"),
        layer("Concatenate", "all", "a", "b", "most", "mean", axis=-1),
    ]
    graph = read(functional(source(), pad, *reads), kernels("a", "b"))
    pads = (0, 1, 2, 3)
    assert said(graph) == {
        "a": Conv(4, THREE, Convention("explicit", pads)),
        "b": Conv(4, THREE, Convention("explicit", pads)),
        "most": MaxPool(THREE, Convention("explicit", pads, fill=0.0)),
        "mean": AvgPool(THREE, Convention("explicit", pads, average="full_window")),
        "all": ConcatChannels(),
    }
    assert all(graph.by_name[name].inputs == (INPUT,) for name in ("a", "b", "most", "mean"))


def test_pads_that_nothing_takes_along_are_a_layer() -> None:
    pad = layer("ZeroPadding2D", "pad", "in", padding=1)
    graph = read(functional(source(), pad, conv("same", "pad", padding="same")), kernels("same"))
    assert graph.by_name["pad"].op == PadMap((1, 1, 1, 1)) and graph.by_name["same"].inputs == ("pad",)
    flat = [
        layer("GlobalAveragePooling2D", "mean", "in", keepdims=True),
        layer("ZeroPadding2D", "pad", "mean", padding=1),
    ]
    graph = read(functional(source(), *flat, layer("Flatten", "flatten", "pad")))
    assert graph.by_name["flatten"].op == Flatten(3, 3, "HWC")
    for name in ("SpatialDropout2D", "RandomCrop"):  # a layer that reads the size sees the padded map
        between = [
            layer("ZeroPadding2D", "pad", "in", padding=1),
            layer(name, "it", "pad", height=8, width=8),
            conv("conv", "it"),
        ]
        graph = read(functional(source(), *between), kernels("conv"))
        assert isinstance(said(graph).get("pad"), PadMap if name == "RandomCrop" else type(None)), name
    chained = [pad, layer("ZeroPadding2D", "more", "pad", padding=[2, 0]), conv("conv", "more")]
    assert said(read(functional(source(), *chained), kernels("conv"))) == {
        "conv": Conv(4, THREE, Convention("explicit", (3, 3, 1, 1)))
    }


def test_activations_are_nodes_of_their_own() -> None:
    layers = [
        conv("c", "in", activation="relu"),
        layer("GlobalAveragePooling2D", "p", "c"),
        layer("Dense", "d", "p", units=5, activation="softmax"),
    ]
    tensors = {**kernels("c"), "d/kernel": np.ones((4, 5)), "d/bias": np.ones(5)}
    graph = read(functional(source(), *layers), tensors)
    assert [(n.name, n.op, n.inputs, n.tap) for n in graph.nodes if n.name != "c"] == [
        ("c:relu", Relu(), ("c",), "c:relu"),
        ("p", GlobalAvgPool(), ("c:relu",), "p"),
        ("d", Dense(5), ("p",), "d:linear"),
        ("d:softmax", Softmax(), ("d",), "d:softmax"),
    ]
    assert graph.outputs == ("d:softmax",)


@pytest.mark.parametrize("target", [[4], [1, 1, 4], [-1]])
def test_reshapes_of_one_value_per_channel(target: list[int]) -> None:
    layers = [
        conv("c", "in"),
        layer("AveragePooling2D", "p", "c", pool_size=[6, 6], padding="valid"),
        layer("Reshape", "r", "p", target_shape=target),
    ]
    graph = read(functional(source(), *layers), kernels("c"))
    assert said(graph)["p"] == AvgPool(Window((6, 6), (6, 6)), Convention()) and not graph.resizable
    assert said(graph).get("r") == (None if len(target) == 3 else Flatten())
    # Of an open size nobody knows how many values there are.
    anywhere = read(functional(source(None, None, 3), *layers), kernels("c")).by_name["r"].op
    assert anywhere == Rearrange("c h w -> (h w c)") if target == [-1] else isinstance(anywhere, Foreign)


def test_rows_that_become_channels_are_as_many_at_every_size_of_the_other_axes() -> None:
    layers = layer("Permute", "p", "in", dims=[2, 3, 1]), conv("c", "p")
    graph = read(functional(source(), *layers), {"c/kernel": np.ones((3, 3, 8, 4))})
    assert said(graph)["p"] == Rearrange("c (h=8) w -> h w c", True)


def test_cells_are_as_many_at_every_size_only_where_nothing_counts_them() -> None:
    for layers, op, resizable in (
        ([layer("Flatten", "f", "in")], Flatten(8, 8, "HWC"), False),
        (
            [layer("Reshape", "f", "in", target_shape=[-1, 3]), layer("GlobalAveragePooling1D", "p", "f")],
            Rearrange("c h w -> (h w) c"),
            True,
        ),
    ):
        graph = read(functional(source(), *layers))
        assert (graph.size, graph.resizable, graph.by_name["f"].op) == ((8, 8), resizable, op)


def test_a_preprocessing_that_keeps_its_size_is_left_out() -> None:
    for kind in ("Resizing", "CenterCrop", "RandomCrop"):
        graph = read(
            functional(source(), layer(kind, "it", "in", height=8, width=8), layer("ReLU", "r", "it"))
        )
        assert list(said(graph)) == ["r"] and not graph.resizable


def scaled(function: str, *inputs: Any, **keywords: Any) -> Any:
    first = inputs[0] if inputs else ["in", 0, 0, keywords]
    entry = {
        "class_name": "TFOpLambda",
        "name": "it",
        "config": {"name": "it", "function": function},
        "inbound_nodes": [first],
    }
    return said(read(functional(source(), entry)))["it"]


def test_arithmetic_of_keras_2() -> None:
    assert scaled("math.truediv", y=127.5) == Affine((1 / 127.5,), (0.0,))
    assert scaled("math.subtract", y=[1.0, 2.0, 4.0]) == Affine((1.0,) * 3, (-1.0, -2.0, -4.0))
    assert scaled("math.multiply", y=2) == Affine((2.0,), (0.0,))
    assert scaled("__operators__.add", y=0.5) == Affine((1.0,), (0.5,))
    assert scaled("math.subtract", ["_CONSTANT_VALUE", -1, 1.0, {"y": ["in", 0, 0]}]) == Affine(
        (-1.0,), (1.0,)
    )
    assert scaled("math.truediv", y=["in", 0, 0]) == Divide()
    assert scaled("math.add", y=["in", 0, 0]) == Add()
    assert scaled("math.truediv", ["_CONSTANT_VALUE", -1, 1.0, {"y": ["in", 0, 0]}]) == Divide()
    assert isinstance(scaled("math.truediv", y=0.0), Foreign)
    assert isinstance(scaled("math.multiply", y=[[1.0], [2.0]]), Foreign)
    for axes in ([1, 2], [-3, -2], [-2, 1]):
        assert scaled("math.reduce_mean", axis=axes) == GlobalAvgPool()
    for others in ([4], [1.5], ["1", 2]):
        assert scaled("math.reduce_mean", axis=others) == Foreign(f"mean with {others}")
    assert scaled("math.reduce_mean", axis=[0, 1]) == Foreign("mean over the batch")
    assert scaled("cast", dtype="int32") == Foreign("cast to another type")
    assert scaled("nn.bias_add", bias=[1.0, 2.0, 4.0], data_format="NHWC") == Affine(
        (1.0,) * 3, (1.0, 2.0, 4.0)
    )
    assert scaled("nn.bias_add", bias=[1.0, 2.0, 4.0], data_format="NCHW") == Foreign(
        "add with the channels first"
    )
    assert scaled("add", y=[[[[[1.0, 2.0, 4.0]]]]]) == Foreign(
        "add by numbers of more axes than the value has"
    )


def tensor(name: str, call: int = 0) -> Json:
    return {
        "class_name": "__keras_tensor__",
        "config": {"shape": [None, 8, 8, 3], "dtype": "float32", "keras_history": [name, call, 0]},
    }


def modern(
    kind: str, name: str, *arguments: Any, module: str | None = "keras.layers", **keywords: Any
) -> Json:
    found = {
        "class_name": kind,
        "name": name,
        "config": {"name": name},
        "inbound_nodes": [{"args": list(arguments), "kwargs": keywords}],
    }
    return found if module is None else {**found, "module": module}


@pytest.mark.parametrize("module", ["keras.src.ops.numpy", None])
def test_operations_of_keras_3_are_no_layers(module: str | None) -> None:
    """A legacy .h5 leaves the module out."""
    numbers = {"class_name": "__numpy__", "config": {"value": [1.0, 2.0, 4.0], "dtype": "float32"}}
    steps = [
        modern("TrueDivide", "a", tensor("in"), 2.0, module=module),
        modern("Subtract", "b", 1.0, tensor("a"), module=module),
        modern("Multiply", "c", tensor("b"), numbers, module=module),
        modern("Add", "d", tensor("c"), tensor("b"), module=module),
    ]
    summed = modern("Add", "e", [tensor("d"), tensor("a")])
    summed["config"]["trainable"] = True
    graph = read(functional(source(), *steps, summed))
    assert list(said(graph).values()) == [
        Affine((0.5,), (0.0,)),
        Affine((-1.0,), (1.0,)),
        Affine((1.0, 2.0, 4.0), (0.0,) * 3),
        Add(),
        Add(),
    ]
    assert graph.by_name["e"].inputs == ("d", "a")


def test_images_that_the_model_turns_around_itself() -> None:
    """keras.applications.resnet50.preprocess_input, and that of all models whose images are Caffe's."""
    key = {"class_name": "__ellipsis__", "config": {}}
    parts = [
        modern("GetItem", f"c{place}", tensor("in"), [key, place], module="keras.src.ops.numpy")
        for place in (2, 1, 0)
    ]
    stack = modern("Stack", "s", [tensor("c2"), tensor("c1"), tensor("c0")], module="keras.src.ops.numpy")
    stack["config"]["axis"] = -1
    means = {"class_name": "__tensor__", "config": {"value": [[[[-104.0, -117.0, -124.0]]]]}}
    graph = read(
        functional(
            source(), *parts, stack, modern("Add", "a", tensor("s"), means, module="keras.src.ops.numpy")
        )
    )
    assert said(graph) == {"s": SliceChannels(2, -1, -1), "a": Affine((1.0,) * 3, (-104.0, -117.0, -124.0))}
    assert graph.resizable


def nested(call: int, of_model: int, *calls: list[Any]) -> Json:
    """A model with a convolution in a nested model; `call` and `of_model` are what its readers and its output
    call its calls.
    """
    inner = functional(source(), conv("conv", "in"), name="base")
    inner |= {"name": "base", "inbound_nodes": [[entry] for entry in calls]}
    return functional(
        source(),
        inner,
        layer("ReLU", "relu", ["base", call, 0, {}]),
        layer("Add", "both", ["base", of_model, 0, {}], "relu"),
    )


@pytest.mark.parametrize("call", [0, 1])
def test_a_nested_model_is_part_of_the_graph(call: int) -> None:
    graph = read(nested(call, call, ["in", 0, 0, {}]), kernels("conv"))
    assert [(node.name, node.inputs) for node in graph.nodes] == [
        ("conv", (INPUT,)),
        ("relu", ("conv",)),
        ("both", ("conv", "relu")),
    ]


def test_a_nested_model_that_is_an_output() -> None:
    model = nested(1, 1, ["in", 0, 0, {}])
    for index in (0, 1):
        model["config"]["output_layers"] = [["base", index, 0]]
        assert read(model, kernels("conv")).outputs == ("conv",)


def test_a_nested_model_that_is_called_twice() -> None:
    """Its layers stand in the graph for each of its calls, with the same tensors."""
    graph = read(nested(1, 2, ["in", 0, 0, {}], ["in", 0, 0, {}]), kernels("conv"))
    assert [(node.name, node.inputs) for node in graph.nodes] == [
        ("conv", (INPUT,)),
        ("conv:2", (INPUT,)),
        ("relu", ("conv",)),
        ("both", ("conv:2", "relu")),
    ]
    assert (
        graph.by_name["conv"].tensors
        == graph.by_name["conv:2"].tensors
        == {"kernel": Stored("conv/kernel", "HWIO")}
    )


def test_a_layer_that_is_called_twice() -> None:
    relu = {**layer("ReLU", "relu", "in"), "inbound_nodes": [[["in", 0, 0, {}]], [["conv", 0, 0, {}]]]}
    shared = {**conv("conv", "in"), "inbound_nodes": [[["relu", 0, 0, {}]], [["relu", 1, 0, {}]]]}
    model = functional(source(), relu, shared)
    model["config"]["output_layers"] = [["conv", 1, 0]]
    assert said(read(model, {"conv/kernel": np.ones((3, 3, 3, 3))})) == {
        "relu": Relu(),
        "conv": Conv(4, THREE, Convention()),
        "relu:2": Relu(),
        "conv:2": Conv(4, THREE, Convention()),
    }


def test_models_in_each_other_that_are_called_twice_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 12 has no layer but the next one, which it calls twice: 4096 calls."""
    monkeypatch.setattr(flow, "MOST_NODES", 1 << 11)
    model = functional(source(), name="model0")
    model["config"]["output_layers"] = [["in", 0, 0]]
    for depth in range(1, 13):
        calls = [[["in", 0, 0, {}]], [[model["config"]["name"], 1, 0, {}]]]
        inner = {**model, "name": model["config"]["name"], "inbound_nodes": calls}
        model = functional(source(), inner, name=f"model{depth}")
        model["config"]["output_layers"] = [[inner["name"], 2, 0]]
    with pytest.raises(FileError, match="its models are called more than"):
        read(model)


def test_training_that_is_fixed() -> None:
    fixed = ["in", 0, 0, {"training": True}]
    assert said(read(functional(source(), layer("Dropout", "drop", fixed))))["drop"] == Foreign(
        "Dropout called with training=True"
    )
    inner = functional(source(), layer("Dropout", "drop", "in"), layer("ReLU", "relu", "drop"), name="base")
    inner |= {"name": "base", "inbound_nodes": [[fixed]]}
    assert list(said(read(functional(source(), inner)))) == ["drop", "relu"]
    inner["inbound_nodes"] = [[["in", 0, 0, {"training": False}]]]
    assert list(said(read(functional(source(), inner)))) == ["relu"]


def test_names_are_those_of_the_tensors() -> None:
    def base(name: str, above: str) -> Json:
        return functional(source(), conv("conv", "in"), name=name) | {
            "name": name,
            "inbound_nodes": [[[above, 0, 0, {}]]],
        }

    model = functional(
        source(), base("a", "in"), base("b", "in"), layer("Add", "conv", ["a", 1, 0, {}], ["b", 1, 0, {}])
    )
    graph = read(model, kernels("a/conv", "b/conv"))
    assert {node.name: dict(node.tensors) for node in graph.nodes} == {
        "a/conv": {"kernel": Stored("a/conv/kernel", "HWIO")},
        "b/conv": {"kernel": Stored("b/conv/kernel", "HWIO")},
        "conv": {},
    }
    assert list(said(read(functional(source(), conv("input", "in")), kernels("input")))) == ["input_2"]


def test_sequentials_of_all_ages() -> None:
    stack = [
        {
            "class_name": "Conv2D",
            "config": {
                "name": "c",
                "filters": 4,
                "kernel_size": [3, 3],
                "use_bias": False,
                "batch_input_shape": [None, 8, 8, 3],
            },
        }
    ]
    for config in (stack, {"name": "s", "layers": stack}, {"name": "s", "layers": [source(), *stack]}):
        graph = read({"class_name": "Sequential", "config": config}, kernels("c"))
        assert said(graph) == {"c": Conv(4, THREE, Convention())} and graph.size == (8, 8)
    inside = [{"class_name": "Model", "config": functional(source(), conv("c", "in"))["config"]}]
    assert read({"class_name": "Sequential", "config": inside}, kernels("c")).size == (8, 8)


def test_keras_1() -> None:
    old = {"border_mode": "same", "dim_ordering": "tf"}
    layers = [
        layer(
            "Convolution2D",
            "c",
            "in",
            nb_filter=4,
            nb_row=3,
            nb_col=3,
            subsample=[2, 2],
            bias=False,
            activation="relu",
            **old,
        ),
        layer("BatchNormalization", "n", "c", mode=0, axis=3, epsilon=1e-3, momentum=0.99),
        layer("Merge", "m", "n", "n", mode="sum", concat_axis=-1),
        layer("MaxPooling2D", "x", "m", pool_size=[2, 2], strides=[2, 2], **{**old, "border_mode": "valid"}),
        layer("GlobalAveragePooling2D", "p", "x", dim_ordering="tf"),
        layer("Dropout", "o", "p", p=0.5),
        layer("Dense", "d", "o", output_dim=5, bias=True, activation="softmax"),
    ]
    norm = {f"n/{name}": np.ones(4) for name in ("gamma", "beta", "moving_mean", "moving_variance")}
    tensors = {**kernels("c"), **norm, "d/kernel": np.ones((4, 5)), "d/bias": np.ones(5)}
    model = functional(source(), *layers) | {"class_name": "Model"}
    # Keras 1 had no keywords there.
    model["config"] = json.loads(json.dumps(model["config"]).replace(", {}]", "]"))
    assert list(said(read(model, tensors)).values()) == [
        Conv(4, Window((3, 3), (2, 2)), Convention("same")),
        Relu(),
        BatchNorm(1e-3, 0.01),
        Add(),
        MaxPool(Window((2, 2), (2, 2)), Convention(fill=LOWEST)),
        GlobalAvgPool(),
        Dense(5),
        Softmax(),
    ]
    layers[0]["config"]["dim_ordering"] = "th"
    assert read(functional(source(), *layers), tensors).by_name["c"].op == Foreign(
        "Conv2D with channels first"
    )


def test_the_modes_of_keras_1s_merge() -> None:
    half = Affine((0.5,), (0.0,))
    expected = {
        "sum": [Add()],
        "mul": [Multiply()],
        "ave": [Add(), half],
        "max": [Maximum()],
        "concat": [ConcatChannels()],
    }
    expected["cos"] = [
        Foreign("Merge by cos of other values than two of features, whose sums of products may have no root")
    ]
    for mode, found in expected.items():
        layers = [conv("c", "in"), conv("e", "in"), layer("Merge", "m", "c", "e", mode=mode, concat_axis=-1)]
        assert list(said(read(functional(source(), *layers), kernels("c", "e"))).values())[2:] == found, mode
    lines = [conv("c", "in"), *(layer("Reshape", name, "c", target_shape=[-1, 4]) for name in ("r", "s"))]
    merged = layer("Merge", "m", "r", "s", mode="dot", dot_axes=[2, 2])
    assert list(said(read(functional(source(), *lines, merged), kernels("c"))).values())[-1] == MatMul()


def test_keras_1s_cosine() -> None:
    """By the formula of Keras 1.2.2, keras/engine/topology.py, also of features so small that its epsilon is
    what it divides by.
    """
    pools = [layer("GlobalAveragePooling2D", "p", "in"), layer("GlobalMaxPooling2D", "q", "in")]
    graph = to_graph(
        read(functional(source(), *pools, layer("Merge", "m", "p", "q", mode="cos", dot_axes=1)))
    ).graph
    batch = np.random.default_rng(0).normal(0, 1, (3, 3, 8, 8)) * np.reshape([1, 1e-3, 1e-5], (3, 1, 1, 1))
    x, y = batch.mean((2, 3)), batch.max((2, 3))
    wanted = (x * y).sum(1) / np.maximum(np.sqrt((x * x).sum(1) * (y * y).sum(1)), 10e-8)
    assert abs(wanted[2]) < 0.1 * abs(wanted[1])
    np.testing.assert_allclose(evaluate(graph, {}, batch)[graph.output], wanted.reshape(3, 1, 1), rtol=1e-12)


def test_inputs_and_outputs() -> None:
    second = layer("InputLayer", "more", batch_input_shape=[None, 8, 8, 3])
    model = functional(source(), second, layer("Add", "sum", "in", "more"), layer("ReLU", "side", "in"))
    model["config"] |= {"input_layers": [["in", 0, 0], ["more", 0, 0]], "output_layers": [["sum", 0, 0]]}
    graph = read(model)
    assert said(graph) == {"sum": Add()}  # and nothing that leads to no output
    assert graph.further_inputs == (FurtherInput("more", "more", 3),) and graph.by_name["sum"].inputs == (
        "input",
        "more",
    )
    # Of another batch, and of channels, or axes, that nothing states.
    for sizes in ([2, 8, 8, 3], [None, 8, 8, None], []):
        second["config"]["batch_input_shape"] = sizes
        assert said(read(model)) == {"more": Foreign("InputLayer as a further one"), "sum": Add()}
    model["config"]["output_layers"] = {"a": ["side", 0, 0], "b": ["sum", 0, 0]}
    assert read(model).outputs == ("side", "sum")
    model["config"]["output_layers"] = {"b": ["sum", 0, 0], "a": ["side", 0, 0]}
    assert (read(model).outputs, read(model).output_names) == (("sum", "side"), ("b", "a"))
    with pytest.raises(FileError, match="layer 'in' is never called"):
        read(functional(source(), layer("ReLU", "side", "in"), start="none"))
    itself = read(functional(source(), layer("Dropout", "drop", "in")))
    assert itself.outputs == ("output",) and itself.by_name["output"].op == Identity()


@pytest.mark.parametrize(
    "model", [{"class_name": "MyModel", "config": {"name": "mine", "width": 3}}, {"class_name": "Model"}]
)
def test_what_is_not_made_of_layers_has_no_graph(model: Json) -> None:
    assert read_graph(json.dumps(model), {}, "model.h5") == ""


@pytest.mark.parametrize(
    ("sizes", "said"), [((5, None), "Nx5x?"), ((8, 8, None), "Nx8x8x?"), ((None,), "Nx?")]
)
def test_what_a_model_takes_that_is_no_image_is_said(sizes: tuple[int | None, ...], said: str) -> None:
    model = functional(source(*sizes), layer("ReLU", "r", "in"))
    plain = f"its first input is {said}, and a port takes images NxHxWxC, or arrays of known axes"
    assert read_graph(json.dumps(model), {}, "model.h5") == plain


@pytest.mark.parametrize(("axes", "size"), [((5,), (1, 5)), ((7, 5), (7, 5)), ((2, 3, 4, 5), (2, 60))])
def test_an_input_of_known_axes_keeps_them(axes: tuple[int, ...], size: tuple[int, int]) -> None:
    graph = read(functional(source(*axes), layer("ReLU", "r", "in")))
    assert (graph.axes, graph.size, graph.resizable, said(graph)) == (axes, size, False, {"r": Relu()})


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("axes", [(5,), (12, 4)])
def test_a_port_of_arrays_takes_what_the_model_takes(axes: tuple[int, ...], tmp_path: Path) -> None:
    import keras

    layers, made = keras.layers, keras.Input(axes)
    x = (
        layers.PReLU()(layers.Conv1D(6, 3, name="c")(made))
        if len(axes) > 1
        else layers.BatchNormalization()(made)
    )
    model = keras.Model(made, layers.Dense(3)(layers.Dense(4, activation="tanh")(x)))
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(random.uniform(0.2, 1, weight.shape))
    model.save(tmp_path / "model.keras")
    batch = random.normal(0, 1, (2, *axes)).astype(np.float32)
    wanted = np.asarray(model(batch))
    for destination in ("torch", "tf", "onnx"):
        port = porter.convert(tmp_path / "model.keras", to=destination, out=tmp_path / destination)
        assert port.verdict is not None and port.verdict.ok
        ported = porter.load(tmp_path / destination)
        given = torch.from_numpy(batch) if destination == "torch" else batch
        found = np.asarray(ported(given).detach() if destination == "torch" else ported(given))
        assert found.shape == wanted.shape
        assert np.linalg.norm(found - wanted) <= 1e-5 * np.linalg.norm(wanted), destination


def deep(levels: int) -> Json:
    model = functional(source(), layer("ReLU", "r", "in"))
    for _ in range(levels):
        model = functional(
            source(), model | {"name": "base", "inbound_nodes": [[["in", 0, 0, {}]]]}, output="base"
        )
    return model


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        json.dumps({"class_name": [], "config": {}}),
        json.dumps(functional(source(), layer("ReLU", "a", "b"), layer("ReLU", "b", "a"))),
        json.dumps(functional(source(), layer("ReLU", "a", "nothing"))),
        json.dumps(functional(source(), layer("ReLU", "a", ["in", 5, 0, {}]))),
        json.dumps(functional(source(), layer("ReLU", "a", "in"), layer("ReLU", "a", "in"))),
        json.dumps(functional(source(), layer("ReLU", "a"))),
        json.dumps(functional(source(), layer("GlobalMaxPooling2D", "p", "in"), layer("Dense", "a", "p"))),
        json.dumps(functional(source(), layer("MaxPooling2D", "a", "in"))),
        json.dumps({"class_name": "Functional", "config": {"layers": 5}}),
        json.dumps(deep(40)),
    ],
)
def test_configs_that_are_none(text: str) -> None:
    with pytest.raises(FileError) as caught:
        read_graph(text, {"a/kernel": np.ones((3, 5)), "a/bias": np.ones(5)}, "model.h5")
    assert "model.h5" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        layer("Permute", "a", "in", dims=3),
        layer("Permute", "a", "in", dims=None),
        layer("ZeroPadding2D", "a", "in", padding=[[[1], 1], [1, 1]]),
        {**layer("Own", "a", "in"), "module": "own", "registered_name": "own>Own", "config": None},
    ],
)
def test_arguments_of_other_kinds_are_damage_and_no_fault(wrong: Json) -> None:
    config = json.dumps(functional(source(), wrong, layer("ReLU", "b", "a")))
    try:
        graph = read_graph(config, {}, "model.h5")
    except FileError as error:
        assert "model.h5" in str(error)
    else:
        assert isinstance(graph, FileGraph) and any(isinstance(node.op, Foreign) for node in graph.nodes)


def test_configs_with_anything_anywhere() -> None:
    """Whatever stands in the place of any value, the answer is a graph, none, or a FileError."""
    import keras

    inner = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.BatchNormalization(),
        ],
        name="base",
    )
    image = keras.Input((8, 8, 3))
    x = keras.layers.ZeroPadding2D(((0, 1), (0, 1)))(
        inner(keras.layers.Rescaling(0.5)(image) / 2.0, training=False)
    )
    x = keras.layers.GlobalAveragePooling2D()(keras.layers.DepthwiseConv2D(3, strides=2)(x))
    model = keras.Model(image, keras.layers.Dense(3, activation="softmax")(x))
    tensors = {
        f"{one.name}/{w.name}": np.ones(w.shape)
        for part in (model, inner)
        for one in part.layers
        for w in one.weights
    }
    text = model.to_json()
    chance = random.Random(0)
    junk: list[Any] = [
        None,
        True,
        -1,
        0,
        1 << 70,
        0.5,
        float("nan"),
        "",
        "x",
        [],
        [1],
        [[]],
        {},
        {"class_name": "__numpy__"},
        ["in", 0, 0],
        [None] * 4,
    ]
    read_graphs = 0
    for _ in range(600):
        config = json.loads(text)
        places: list[tuple[Any, Any]] = []
        waiting = [config]
        while waiting:
            value = waiting.pop()
            keys = value.keys() if isinstance(value, dict) else range(len(value))
            for key in keys:
                places.append((value, key))
                if isinstance(value[key], dict | list):
                    waiting.append(value[key])
        holder, key = chance.choice(places)
        holder[key] = chance.choice(junk)
        try:
            read_graphs += read_graph(json.dumps(config), tensors, "model.h5") != ""
        except FileError as error:
            assert "\n" not in str(error)
    assert 100 < read_graphs < 600


@pytest.mark.parametrize("fault", [KeyError("it"), IndexError("it"), TypeError("it")])
def test_a_fault_of_porters_is_no_damage(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(layer: KerasLayer, x: Tensor) -> None:
        raise fault

    with pytest.raises(FileError, match="'it' cannot be read: ValueError it lacks 'cropping'"):
        only("Cropping2D")
    monkeypatch.setattr("porter.formats.keras.graph.read_layer", fail)
    with pytest.raises(ReaderFault, match=f"Cropping2D: {type(fault).__name__}: '?it"):
        only("Cropping2D")


@pytest.mark.parametrize("kind", ["Conv2D", "Dense"])
def test_a_layer_with_variables_that_porter_does_not_know_is_foreign(kind: str) -> None:
    """LoRA's are added to the kernel whenever the layer is called; a legacy .h5 keeps them beside it."""
    arguments = {"filters": 4, "kernel_size": [1, 1]} if kind == "Conv2D" else {"units": 4}
    kernel = np.ones((1, 1, 3, 4) if kind == "Conv2D" else (3, 4), np.float32)
    model = functional(source(1, 1, 3), layer(kind, "head", "in", use_bias=False, **arguments))
    assert not isinstance(read(model, {"head/kernel": kernel}).nodes[-1].op, Foreign)
    more = {
        "head/kernel": kernel,
        "head/lora_kernel_a": kernel[..., :2],
        "head/lora_kernel_b": kernel[..., :2],
    }
    assert read(model, more).nodes[-1].op == Foreign(f"{kind} that also has lora_kernel_a, lora_kernel_b")


@pytest.mark.parametrize(
    ("stated", "named"),
    [
        ({"module": None, "registered_name": "ReLU"}, "ReLU of the user"),
        ({"module": None, "registered_name": "mine>ReLU"}, "ReLU of the user"),
        ({"module": "layers.mine", "registered_name": "ReLU"}, "ReLU of layers.mine"),
        ({"module": "keras_hub.layers", "registered_name": "ReLU"}, "ReLU of keras_hub.layers"),
        ({"module": "keras.layers", "registered_name": None}, None),
        ({"module": "tf_keras.src.layers.activation", "registered_name": "ReLU"}, None),
        ({}, None),
    ],
)
def test_a_class_of_the_users_own_is_not_the_layer_of_keras_that_has_its_name(
    stated: Json, named: str | None
) -> None:
    graph = read(functional(source(), layer("ReLU", "act", "in") | stated))
    assert graph.nodes[0].op == (Foreign(named) if named else Relu())


def test_a_class_called_relu_that_does_not_say_what_keras_says_of_it() -> None:
    own = layer("ReLU", "act", "in")
    del own["config"]["max_value"]  # as a class of the user's own leaves it in a .h5, which names no modules
    assert read(functional(source(), own)).nodes[0].op == Foreign("ReLU that is not Keras's own")
