"""Small Keras models, each saved by Keras and read: the oracle's values of porter's graph are Keras's own, and those of the file's
own graph as porter runs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.dtypes import Array
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.keras.graph import read_graph
from porter.formats.reading import read_checkpoint
from porter.frameworks.tf.keras_file import build_keras_file
from porter.frameworks.tf.run import run_reference
from tests.filegraph.values import values_of

ROWS, COLUMNS, CHANNELS = 7, 6, 4
Make = Callable[[Any, Any, Any], Any]
"""From keras.layers, keras.ops and the input to the output (or several)."""

ACTIVATIONS = (
    *(
        "relu",
        "relu6",
        "sigmoid",
        "tanh",
        "softplus",
        "softsign",
        "elu",
        "selu",
        "silu",
        "swish",
        "hard_silu",
        "hard_swish",
        "hard_sigmoid",
    ),
    *("gelu", "leaky_relu", "softmax"),
)


def squeezed(layers: Any, ops: Any, x: Any) -> Any:
    """Squeeze and excite."""
    found = layers.Reshape((1, 1, CHANNELS))(layers.GlobalAveragePooling2D()(x))
    found = layers.Conv2D(CHANNELS, 1, activation="hard_sigmoid")(layers.Conv2D(2, 1, activation="swish")(found))
    return layers.Multiply()([x, found])


def shortcut(layers: Any, ops: Any, x: Any) -> Any:
    """A CIFAR ResNet's shortcut: every second cell, and channels of zeros."""
    main = layers.Conv2D(8, 3, strides=2, padding="same")(x)
    side = ops.pad(x[:, ::2, ::2], [[0, 0], [0, 0], [0, 0], [2, 2]])
    return layers.Activation("relu")(layers.Add()([main, side]))


def inception_resnet(layers: Any, ops: Any, x: Any) -> Any:
    from keras.src.applications.inception_resnet_v2 import CustomScaleLayer

    return CustomScaleLayer(0.3)([x, layers.Conv2D(CHANNELS, 1)(x)])


def convnext(layers: Any, ops: Any, x: Any) -> Any:
    from keras.src.applications.convnext import LayerScale, StochasticDepth

    found = layers.LayerNormalization(epsilon=1e-6)(layers.DepthwiseConv2D(3, padding="same")(x))
    found = layers.Dense(CHANNELS)(layers.Dense(7, activation="gelu")(found))
    return x + StochasticDepth(0.2)(LayerScale(0.1, CHANNELS)(found))


def stretched(layers: Any, ops: Any, x: Any) -> Any:
    """Of as many channels as images."""
    few = x[..., :2]
    one = ops.mean(layers.GlobalMaxPooling2D(keepdims=True)(few), -1, keepdims=True)
    return layers.Multiply()([layers.Add()([few, one]), layers.Average()([few, one]), ops.add(few, one)])


def shuffled(layers: Any, ops: Any, x: Any) -> Any:
    """Channels shuffled by layers, and back by operations."""
    pairs = layers.Permute((1, 2, 4, 3))(layers.Reshape((ROWS, COLUMNS, 2, CHANNELS // 2))(x))
    back = ops.transpose(ops.reshape(layers.ReLU()(pairs), (-1, ROWS, COLUMNS, 2, 2)), (0, 1, 2, 4, 3))
    return layers.Reshape((ROWS, COLUMNS, CHANNELS))(back)


def by_cells(layers: Any, ops: Any, x: Any) -> Any:
    """Layers of a list of cells, and arithmetic with the channels first."""
    cells = layers.LayerNormalization()(layers.Dense(CHANNELS, activation="relu")(layers.Reshape((-1, CHANNELS))(x)))
    first = ops.transpose(layers.Reshape((ROWS, COLUMNS, CHANNELS))(cells), (0, 3, 1, 2))
    return ops.mean((first * 3.0 + 0.5) * ops.sigmoid(first), (2, 3))


def transposed(**arguments: Any) -> Make:
    return lambda layers, ops, x: layers.Conv2DTranspose(5, **arguments)(x)


CASES: dict[str, Make] = {
    "flatten": lambda layers, ops, x: layers.Dense(3)(layers.Flatten()(x)),
    "dense on a map": lambda layers, ops, x: layers.Dense(3, activation="tanh")(x),
    "separable": lambda layers, ops, x: layers.SeparableConv2D(5, 3, strides=2, padding="same", depth_multiplier=2)(x),
    "depthwise by groups": lambda layers, ops, x: layers.Conv2D(
        2 * CHANNELS, 3, groups=CHANNELS, padding="same", strides=2, bias_initializer="normal"
    )(x),
    "separable of pads": lambda layers, ops, x: layers.SeparableConv2D(5, (3, 2), activation="elu")(layers.ZeroPadding2D(1)(x)),
    "transposed": transposed(kernel_size=3, strides=2, padding="same"),
    "transposed valid": transposed(kernel_size=(4, 3), strides=(2, 3)),
    "transposed with a small kernel": transposed(kernel_size=2, strides=3),
    "transposed same with a small kernel": transposed(kernel_size=2, strides=3, padding="same"),
    "transposed with more": transposed(kernel_size=3, strides=2, padding="same", output_padding=(0, 1)),
    "transposed valid with more": transposed(kernel_size=(3, 2), strides=3, output_padding=(1, 2)),
    "crop": lambda layers, ops, x: layers.Cropping2D(((1, 2), (0, 1)))(x),
    "pads before same": lambda layers, ops, x: layers.Conv2D(3, 3, padding="same")(layers.ZeroPadding2D(((0, 2), (1, 0)))(x)),
    "pads and an activation": lambda layers, ops, x: layers.ReLU()(layers.ZeroPadding2D(1)(x)),
    "pads at the end": lambda layers, ops, x: layers.ZeroPadding2D((1, 2))(layers.ReLU(4.0)(x)),
    "up": lambda layers, ops, x: layers.UpSampling2D((2, 3))(x),
    "merges": lambda layers, ops, x: layers.Subtract()(
        [layers.Average()([x, x, layers.Minimum()([x, -x])]), layers.Maximum()([x, layers.Multiply()([x, x])])]
    ),
    "sums of stretched values": stretched,
    # Constants that float32 rounds.
    "leaky relus": lambda layers, ops, x: layers.ReLU(negative_slope=0.3)(x + layers.ReLU(max_value=0.1, negative_slope=0.3)(x)),
    "thresholds": lambda layers, ops, x: layers.ReLU(threshold=0.3)(x) + ops.relu(x),
    "leaky relu": lambda layers, ops, x: layers.LeakyReLU()(layers.Dropout(0.3)(x)),
    "prelu": lambda layers, ops, x: layers.PReLU(shared_axes=(1, 2))(x),
    "prelu of features": lambda layers, ops, x: layers.PReLU()(layers.GlobalMaxPooling2D()(x)),
    "elu": lambda layers, ops, x: layers.ELU(0.3)(x),
    "softmax inside": lambda layers, ops, x: layers.Conv2D(2, 1)(layers.Softmax()(x)),
    "leaky layers as activations": lambda layers, ops, x: layers.Conv2D(3, 2, activation=layers.LeakyReLU(0.25))(
        layers.Conv2D(3, 1, activation=layers.ReLU(negative_slope=0.3))(x)
    ),
    "layer norm": lambda layers, ops, x: layers.LayerNormalization(scale=False)(layers.LayerNormalization()(x)),
    "norm of features": lambda layers, ops, x: layers.BatchNormalization()(layers.GlobalMaxPooling2D()(x)),
    "kept pools": lambda layers, ops, x: layers.Flatten()(layers.GlobalMaxPooling2D(keepdims=True)(x)),
    "squeeze and excite": squeezed,
    "inception resnet's own": inception_resnet,
    "convnext's own, with a gelu": convnext,
    "cifar resnet": shortcut,
    "arithmetic": lambda layers, ops, x: (2.0 - x / np.array([0.1, 0.2, 0.4, 0.7])) * 3.3 + (-x) - 0.7,
    "products": lambda layers, ops, x: ops.multiply(x, ops.maximum(x, ops.minimum(-x, 0.3))) - ops.maximum(x, x * 2),
    "mean and max": lambda layers, ops, x: ops.concatenate(
        [ops.mean(x, axis=-1, keepdims=True), ops.max(x, axis=3, keepdims=True), ops.expand_dims(ops.mean(x, 3), -1)], axis=-1
    ),
    "means of rows": lambda layers, ops, x: x * ops.mean(x, axis=1, keepdims=True) + ops.max(x, axis=[2], keepdims=True),
    "means of maps": lambda layers, ops, x: ops.mean(x, (1, 2)) * ops.squeeze(ops.max(x, (-3, -2), keepdims=True), (1, 2)),
    "pads of ops": lambda layers, ops, x: layers.MaxPooling2D(2)(ops.pad(x, [[0, 0], [1, 0], [0, 2], [0, 0]], constant_values=0.1)),
    "slices": lambda layers, ops, x: ops.concatenate([x[:, 1:, ::2, ::-1], x[:, :-1, 0::2, 0:1], x[..., 1:, 1::2, 2:]], -1),
    "an index": lambda layers, ops, x: x[:, 0, -1] + ops.squeeze(x[:, None, 2, 3], 1),
    "bgr": lambda layers, ops, x: layers.Conv2D(2, 1)(x[..., ::-1]),
    "reshapes": lambda layers, ops, x: ops.reshape(ops.expand_dims(layers.GlobalMaxPooling2D()(x), 1), (-1, 1, 1, CHANNELS)) * x,
    "channels shuffled": shuffled,
    "layers of cells": by_cells,
    "clips": lambda layers, ops, x: ops.clip(x, -0.2, 0.4) + ops.relu6(x * 9) + ops.clip(x * 7, -float(np.finfo("f").max), 0.7),
    "gelu": lambda layers, ops, x: ops.leaky_relu(ops.gelu(x), 0.3) + ops.gelu(x, approximate=False) + ops.elu(x, 0.5),
    "scaling": lambda layers, ops, x: layers.Normalization(mean=[0.25, 0.5, 0.75, 1], variance=[1, 4, 16, 0.25])(
        layers.Rescaling(0.25)(x)
    ),
    "several outputs": lambda layers, ops, x: [layers.Conv2D(3, 2)(x), layers.Dense(2)(layers.Flatten()(x)), layers.ReLU()(x)],
    **{f"activation {name}": (lambda layers, ops, x, name=name: layers.Activation(name)(x)) for name in ACTIVATIONS},
    "convs with activations, such as a gelu": lambda layers, ops, x: layers.Conv2D(
        3, 1, activation="hard_sigmoid"
    )(layers.DepthwiseConv2D(3, strides=2, activation="gelu")(x)),
}  # fmt: skip
IN_H5 = (
    *(
        "separable",
        "prelu",
        "convnext's own, with a gelu",
        "inception resnet's own",
        "transposed",
        "slices",
        "layer norm",
        "flatten",
    ),
)
"""Cases that are also saved as a legacy .h5."""


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    import keras

    before, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(before)
    keras.config.set_dtype_policy(policy)


def images() -> Array:
    return np.random.default_rng(3).normal(size=(2, ROWS, COLUMNS, CHANNELS))


def distance(found: Array, wanted: Array) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def in_porters_layout(value: Any) -> Array:
    array = np.asarray(value)
    return array.transpose(0, 3, 1, 2) if array.ndim == 4 else array


def expect_the_files_values(checkpoint: Checkpoint) -> dict[str, Array]:
    """The oracle's values, which are those of the file's graph run by Keras at every tap."""
    graph, batch = checkpoint.graph, in_porters_layout(images())
    assert graph is not None
    values = values_of(graph, checkpoint.tensors, batch)
    taps = {node.name: node.tap for node in graph.nodes if node.tap}
    found = run_reference(build_keras_file(checkpoint, "float64", (ROWS, COLUMNS)), batch, taps)
    assert found.keys() == taps.keys()
    for name, value in found.items():
        assert value.shape == values[name].shape and distance(values[name], value) <= 1e-12, name
    return values


@pytest.mark.parametrize(("name", "ending"), [(name, "keras") for name in CASES] + [(name, "h5") for name in IN_H5])
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_a_models_values_are_kerass(tmp_path: Path, name: str, ending: str) -> None:
    import keras

    image = keras.Input((ROWS, COLUMNS, CHANNELS))
    first = keras.layers.Conv2D(CHANNELS, 1, name="first")(image)  # every file has tensors
    model = keras.Model(image, CASES[name](keras.layers, keras.ops, first))
    random = np.random.default_rng(4)
    for weight in model.weights:
        signs = random.choice([-1, 1] if "kernel" in weight.path else [1], weight.shape)
        weight.assign(random.uniform(0.2, 1.5, weight.shape) * signs)
    path = tmp_path / f"model.{ending}"
    model.save(path)
    checkpoint = read_checkpoint(path)
    assert checkpoint.graph is not None
    values = expect_the_files_values(checkpoint)
    # Of one more image, because Keras's addition takes N×1×1×1 for a bias where the other value has N channels.
    wanted = model(np.concatenate([images(), images()[:1]]))
    for output, value in zip(checkpoint.graph.outputs, wanted if isinstance(wanted, list) else [wanted], strict=True):
        # TensorFlow rounds a GELU's constants and a leaky ReLU's slope to float32, also in float64.
        assert distance(values[output], in_porters_layout(value)[:2]) <= (1e-8 if "gelu" in name or "leaky" in name else 1e-12)


def functions(*calls: tuple[str, dict[str, Any]], sequence: bool = False, version: str = "2.9.0") -> Checkpoint:
    """A model of Keras 2 that calls functions of TensorFlow (or layers) one after the other."""
    layers: list[dict[str, Any]] = [
        {"class_name": "InputLayer", "name": "in", "config": {"name": "in", "batch_input_shape": [None, ROWS, COLUMNS, CHANNELS]}}
    ]
    for place, (function, given) in enumerate(calls):
        kind = "SlicingOpLambda" if function == "__operators__.getitem" else "TFOpLambda"
        before, name = layers[-1]["name"], f"call{place}"
        entry: Any = [before, 0, 0, given]
        config = {"name": name, "function": function}
        if function[0].isupper():
            kind, config, entry = function, {"name": name, **given}, [[before, 0, 0, {}]]
        if function == "concat":
            entry = [[before, 0, 0, given], ["in", 0, 0, given]]
        layers.append({"class_name": kind, "name": name, "config": config, "inbound_nodes": [entry]})
    config = {"name": "m", "layers": layers, "input_layers": [["in", 0, 0]], "output_layers": [[layers[-1]["name"], 0, 0]]}
    text = json.dumps({"class_name": "Functional", "config": config})
    return Checkpoint(Path("model.h5"), "keras-h5", "tf", {}, graph=read_graph(text, {}, "model.h5", version))


WHOLE = {"start": None, "stop": None, "step": None}
OLD: dict[str, tuple[Checkpoint, Callable[[Array], Array]]] = {
    "lrn": (
        functions(("nn.local_response_normalization", {"depth_radius": 1, "bias": 2.0, "alpha": 0.3, "beta": 0.75})),
        lambda x: x / (2 + 0.3 * sum(np.pad(x * x, [(0, 0)] * 3 + [(1, 1)])[..., at : at + CHANNELS] for at in range(3))) ** 0.75,
    ),
    "hard sigmoid": (functions(("Activation", {"activation": "hard_sigmoid"})), lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    "hard sigmoid of Keras 3": (
        functions(("Activation", {"activation": "hard_sigmoid"}), version="3.1.0"),
        lambda x: np.clip(x / 6 + 0.5, 0, 1),
    ),
    "leaky relu": (functions(("LeakyReLU", {"alpha": 0.4})), lambda x: np.where(x < 0, 0.4 * x, x)),
    "channels turned around": (
        functions(("__operators__.getitem", {"slice_spec": [{"class_name": "__ellipsis__"}, {**WHOLE, "step": -1}]})),
        lambda x: x[..., ::-1],
    ),
    "a shortcut": (
        functions(
            ("__operators__.getitem", {"slice_spec": [WHOLE, {**WHOLE, "step": 2}, {**WHOLE, "start": 1, "step": 2}]}),
            ("compat.v1.pad", {"paddings": [[0, 0], [0, 1], [0, 0], [1, 2]], "mode": "CONSTANT", "constant_values": 0}),
        ),
        lambda x: np.pad(x[:, ::2, 1::2], [(0, 0), (0, 1), (0, 0), (1, 2)]),
    ),
    "a concatenation": (functions(("math.tanh", {}), ("concat", {"axis": -1})), lambda x: np.concatenate([np.tanh(x), x], -1)),
    "a mean of channels": (
        functions(("math.reduce_mean", {"axis": 3}), ("expand_dims", {"axis": -1})),
        lambda x: x.mean(3, keepdims=True),
    ),
    "clips": (
        functions(("clip_by_value", {"clip_value_min": -1.0, "clip_value_max": 2.0}), ("math.maximum", {"y": 0.5})),
        lambda x: np.clip(x, 0.5, 2),
    ),
    "reshapes": (
        functions(("math.reduce_max", {"axis": [1, 2]}), ("reshape", {"shape": [-1, 1, 1, CHANNELS]})),
        lambda x: x.max((1, 2), keepdims=True),
    ),
    "depth to space": (
        functions(("nn.depth_to_space", {"block_size": 2})),
        lambda x: x.reshape(2, ROWS, COLUMNS, 2, 2, 1).transpose(0, 1, 3, 2, 4, 5).reshape(2, 2 * ROWS, 2 * COLUMNS, 1),
    ),
}


@pytest.mark.parametrize("name", OLD)
def test_functions_of_keras_2(name: str) -> None:
    checkpoint, expected = OLD[name]
    assert checkpoint.graph is not None
    values = expect_the_files_values(checkpoint)
    assert distance(values[checkpoint.graph.outputs[0]], in_porters_layout(expected(images()))) <= 1e-12
