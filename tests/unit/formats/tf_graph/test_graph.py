"""TensorFlow's ops in porter's terms: what each is read as computes what TensorFlow computes, in float64."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.dtypes import Dtype
from porter.base.errors import FileError
from porter.filegraph.file_graph import FileNode, Foreign, Stored
from porter.filegraph.kernels.layouts import with_channels_first
from porter.formats.tf_graph.read import read_frozen_graph
from porter.frameworks.tf.frozen.run import GraphRunner
from porter.graph import (
    Add,
    Affine,
    AvgPool,
    BatchNorm,
    Celu,
    ChannelShuffle,
    Clip,
    ConcatChannels,
    Conv,
    ConvTranspose,
    CropMap,
    Dense,
    DepthToSpace,
    Elu,
    ExtendMap,
    Flatten,
    Gelu,
    GlobalAvgPool,
    GlobalMaxPool,
    HardSigmoid,
    HardSwish,
    LayerNorm,
    LeakyRelu,
    LocalResponseNorm,
    Maximum,
    MaxPool,
    Multiply,
    Op,
    PadChannels,
    PadMap,
    ReduceMap,
    Relu,
    Relu6,
    Resize,
    Sigmoid,
    SliceChannels,
    Softmax,
    Softsign,
    Swish,
    Upsample,
)
from porter.padding import Convention
from tests.support.arrays import Array
from tests.support.filegraph.values import values_of
from tests.support.formats.tf_graph.file_graphs import expect_same, frozen, images, tensorflow, variable

pytest.importorskip("tensorflow")
Make = Callable[[Any], Any]


def nodes_of(
    tmp_path: Path, make: Make, size: tuple[int | None, int | None] = (12, 11)
) -> tuple[FileNode, ...]:
    """Reads the graph, holds it to TensorFlow's own values, and gives its nodes."""
    path = tmp_path / "graph.pb"
    output = frozen(path, make, size)
    checkpoint = read_frozen_graph(path)
    assert checkpoint.graph is not None and checkpoint.graph.size == size and checkpoint.graph.channels == 3
    if not any(isinstance(node.op, Foreign) for node in checkpoint.graph.nodes):
        expect_same(checkpoint, images(), output)
    return checkpoint.graph.nodes


def conv(x: Any, filters: int = 4, kernel: int = 3, name: str = "conv", **arguments: Any) -> Any:
    arguments = {"strides": 1, "padding": "SAME"} | arguments
    with tensorflow().compat.v1.variable_scope(name):
        return tensorflow().nn.conv2d(x, variable("weights", kernel, kernel, 3, filters), **arguments)


def test_a_network(tmp_path: Path) -> None:
    """Names by the weights' scopes, taps after the bias and the norm, dropout and the squeeze left out."""
    tf = tensorflow()

    def make(x: Any) -> Any:
        x = tf.nn.bias_add(conv(x, name="net/Conv2d_0", strides=2), variable("net/Conv2d_0/biases", 4))
        statistics = [
            variable(f"net/Conv2d_1/BatchNorm/{name}", 8) for name in ("moving_mean", "beta", "gamma")
        ]
        variance = variable("net/Conv2d_1/BatchNorm/moving_variance", 8, positive=True)
        x = tf.nn.depthwise_conv2d(
            tf.nn.relu6(x), variable("net/Conv2d_1/depthwise_weights", 3, 3, 4, 2), [1, 1, 1, 1], "SAME"
        )
        x = tf.nn.relu(tf.nn.batch_normalization(x, statistics[0], variance, *statistics[1:], 1e-3))
        x = tf.identity(tf.reduce_mean(x, [1, 2], keepdims=True), name="dropout")
        x = tf.nn.conv2d(x, variable("net/Logits/weights", 1, 1, 8, 5), 1, "SAME") + variable(
            "net/Logits/biases", 5
        )
        return tf.nn.softmax(tf.reshape(tf.squeeze(x, [1, 2]), [-1, 5]), name="Predictions")

    found = nodes_of(tmp_path, make)
    assert [node.name for node in found] == [
        "net/Conv2d_0",
        "Relu6",
        "net/Conv2d_1",
        "net/Conv2d_1/BatchNorm",
        "Relu",
        "Mean",
        "net/Logits",
        "Reshape",
        "Predictions",
    ]
    first: Any = found[0].op
    assert first == Conv(4, first.window, Convention("same"), 1, True)
    assert found[0].tensors == {
        "kernel": Stored("net/Conv2d_0/weights", "HWIO"),
        "bias": Stored("net/Conv2d_0/biases"),
    }
    assert found[0].tap == "BiasAdd"
    third: Any = found[2].op
    assert third.groups == 4 and third.filters == 8
    assert found[3].op == BatchNorm(1e-3, 0.0) and found[3].tap == "batchnorm/add_1"
    assert found[5].op == GlobalAvgPool(keep=True) and [node.op for node in found[7:]] == [
        Flatten(),
        Softmax(),
    ]


PADS = [[0, 0], [1, 2], [0, 1], [0, 0]]
WINDOWS: dict[str, Make] = {
    "valid": lambda x: conv(x, padding="VALID", strides=2),
    "dilated": lambda x: conv(x, dilations=2),
    "explicit": lambda x: conv(x, padding=PADS, strides=2),
    "pad, conv": lambda x: conv(tensorflow().pad(x, PADS), padding="VALID", strides=2),
    "pad, explicit": lambda x: conv(tensorflow().pad(x, PADS), padding=PADS),
    "pad, pad": lambda x: conv(tensorflow().pad(tensorflow().pad(x, PADS), PADS), padding="VALID"),
    "pad, 1x1 same": lambda x: conv(tensorflow().pad(x, PADS), kernel=1),
    "max same": lambda x: tensorflow().nn.max_pool2d(x, 3, 2, "SAME"),
    "pad, max": lambda x: tensorflow().nn.max_pool2d(tensorflow().pad(x, PADS), 3, 2, "VALID"),
    "pad of -inf, max": lambda x: tensorflow().nn.max_pool2d(
        tensorflow().pad(x, PADS, constant_values=-np.inf), 3, 2, "VALID"
    ),
    "average same": lambda x: tensorflow().nn.avg_pool2d(x, 3, 2, "SAME"),
    "pad, average": lambda x: tensorflow().nn.avg_pool2d(tensorflow().pad(x, PADS), 3, 2, "VALID"),
}


@pytest.mark.parametrize("case", WINDOWS)
def test_a_window_with_its_pads_is_one_op(tmp_path: Path, case: str) -> None:
    (node,) = nodes_of(tmp_path, WINDOWS[case])
    assert isinstance(node.op, Conv | MaxPool | AvgPool)


def test_a_pad_that_two_read(tmp_path: Path) -> None:
    def make(x: Any) -> Any:
        x = tensorflow().pad(x, PADS)
        return conv(x, padding="VALID") + conv(x, padding="VALID", name="other")

    assert [type(node.op) for node in nodes_of(tmp_path, make)] == [Conv, Conv, Add]


def norm(x: Any, **without: None) -> Any:
    tf = tensorflow()
    with tf.compat.v1.variable_scope("norm"):
        roles = {
            "mean": variable("moving_mean", 3),
            "variance": variable("moving_variance", 3, positive=True),
        }
        roles |= {"offset": variable("beta", 3), "scale": variable("gamma", 3)}
    return tf.nn.batch_normalization(x, **(roles | without), variance_epsilon=2e-3)


@pytest.mark.parametrize("without", [(), ("scale",), ("offset",), ("scale", "offset")])
def test_a_norm_in_sums_and_products(tmp_path: Path, without: tuple[str, ...]) -> None:
    (node,) = nodes_of(tmp_path, lambda x: norm(x, **dict.fromkeys(without)))
    assert node.name == "norm" and node.op == BatchNorm(
        2e-3, 0.0, "scale" not in without, "offset" not in without
    )


def test_training_goes_on_with_the_port_of_a_norm_that_states_no_momentum(tmp_path: Path) -> None:
    import torch

    frozen(tmp_path / "graph.pb", norm, (12, 11))
    made = porter.convert(tmp_path / "graph.pb", to="torch", out=tmp_path / "port", check=False)
    assert [node.op.momentum for node in made.port.graph.nodes if isinstance(node.op, BatchNorm)] == [0.1]
    model = porter.load(tmp_path / "port").train()
    before = {name: value.clone() for name, value in model.named_buffers() if name.endswith("running_mean")}
    model(torch.ones(2, 3, 12, 11))
    assert before and not any(
        torch.equal(before[name], value) for name, value in model.named_buffers() if name in before
    )


def test_a_norm_whose_product_is_read_too(tmp_path: Path) -> None:
    """The product by itself is another value; the norm is still found beside it."""

    def make(x: Any) -> Any:
        y = norm(x)
        product = y.op.inputs[0]
        return tensorflow().add(y, product)

    found = nodes_of(tmp_path, make)
    assert {type(node.op) for node in found} == {BatchNorm, Affine, Add}


def test_what_is_nearly_a_norm(tmp_path: Path) -> None:
    """Another factor in the shift than in the product: two affine steps, not a norm."""

    def make(x: Any) -> Any:
        tf = tensorflow()
        variance, mean = variable("variance", 3, positive=True), variable("mean", 3)
        inverse = tf.math.rsqrt(variance + tf.constant(1e-3, tf.float64))
        return x * inverse + (variable("beta", 3) - mean * (2 * inverse))

    assert [type(node.op) for node in nodes_of(tmp_path, make)] == [Affine, Affine]


@pytest.mark.parametrize("gamma", ["ones", "gamma"])
def test_a_fused_norm(tmp_path: Path, gamma: str) -> None:
    """A scale of ones that nobody called gamma is what the op has to be given where the layer has none."""
    tf = tensorflow()
    path = tmp_path / "graph.pb"
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 12, 11, 3])
        roles = [
            tf.constant(np.array([3, 1, 2], np.float32), name=f"bn/{name}")
            for name in ("beta", "moving_mean", "moving_variance")
        ]
        tf.compat.v1.nn.fused_batch_norm(
            x,
            tf.constant(np.ones(3, np.float32), name=f"bn/{gamma}"),
            *roles,
            epsilon=1e-3,
            is_training=False,
        )
        path.write_bytes(graph.as_graph_def().SerializeToString())
        with tf.compat.v1.Session() as session:
            value = session.run(graph.get_operations()[-1].outputs[0], {x: images()})
    checkpoint = read_frozen_graph(path)
    (node,) = checkpoint.carried.nodes
    assert node.op == BatchNorm(float(np.float32(1e-3)), 0.0, gamma == "gamma", True) and node.name == "bn"
    expect_same(checkpoint, images(), value, 1e-6)


AFFINE: dict[str, tuple[Make, list[Any]]] = {
    "rescaling": (lambda x: x * (1 / 127.5) - 1.0, [Affine((1 / 127.5,), (0.0,)), Affine((1.0,), (-1.0,))]),
    "normalisation": (
        lambda x: (
            (x - [1.0, 2.0, 3.0])
            / tensorflow().maximum(tensorflow().sqrt(variable("variance", 3, positive=True)), 1e-7)
        ),
        [Affine((1.0,) * 3, (-1.0, -2.0, -3.0)), Affine],
    ),
    "reversed": (lambda x: 255.0 - x, [Affine((-1.0,), (255.0,))]),
    "nothing": (lambda x: tensorflow().nn.relu(x * 1.0 + 0.0), [Relu()]),
}


@pytest.mark.parametrize("case", AFFINE)
def test_constants(tmp_path: Path, case: str) -> None:
    make, expected = AFFINE[case]
    found = nodes_of(tmp_path, make)
    assert [
        type(node.op) if one is Affine else node.op for node, one in zip(found, expected, strict=True)
    ] == expected


def test_a_constant_is_computed_once_and_only_what_gives_it_unchanged_is_left_out(tmp_path: Path) -> None:
    """Computed for every reader, the first of 64 sums would be computed 2**64 times. What gives a value of
    the image unchanged stays, so that the graph is run as the file has it.
    """
    tf = tensorflow()

    def make(x: Any) -> Any:
        number = tf.constant([1e-19, 2e-19, -4e-19], tf.float64)
        for _ in range(64):
            number, x = tf.identity(number + number), tf.identity(x)
        return tf.identity(x * number)

    (node,) = nodes_of(tmp_path, make)
    assert node.op == Affine((2.0**64 * 1e-19, 2.0**64 * 2e-19, -(2.0**64) * 4e-19), (0.0,) * 3)
    graph = read_frozen_graph(tmp_path / "graph.pb").graph
    assert graph is not None
    kinds = Counter(node.op for node in tf.compat.v1.GraphDef.FromString(graph.definition).node)
    assert kinds == {"Placeholder": 1, "Const": 1, "AddV2": 64, "Mul": 1, "Identity": 65}


def test_a_bias_that_is_read_without_it_too(tmp_path: Path) -> None:
    def make(x: Any) -> Any:
        y = conv(x)
        return tensorflow().concat([y, y + variable("conv/biases", 4)], -1)

    found = nodes_of(tmp_path, make)
    assert [type(node.op) for node in found] == [Conv, Conv, ConcatChannels] and len(
        {node.name for node in found}
    ) == 3


def test_relu6_in_parts(tmp_path: Path) -> None:
    tf = tensorflow()
    for make in (
        lambda x: tf.minimum(tf.nn.relu(x), 6.0),
        lambda x: tf.maximum(tf.minimum(x, 6.0), 0.0),
        lambda x: tf.clip_by_value(x, 0.0, 6.0),
    ):
        assert [node.op for node in nodes_of(tmp_path, make)] == [Relu6()]


def test_heads(tmp_path: Path) -> None:
    tf = tensorflow()

    def make(x: Any) -> Any:
        pooled = tf.reshape(tf.reduce_max(x, [-3, -2], keepdims=True), tf.stack([tf.shape(x)[0], 3]))
        return tf.sigmoid(tf.matmul(pooled, variable("fc/weights", 3, 2)) + variable("fc/biases", 2))

    found = nodes_of(tmp_path, make, (None, None))
    assert [node.op for node in found] == [
        GlobalMaxPool(keep=True),
        Flatten(),
        Dense(2),
        Sigmoid(),
    ] and found[2].name == "fc"


def test_a_pool_over_the_whole_map(tmp_path: Path) -> None:
    """It is global where the graph states its size, and not where it takes any."""
    make = lambda x: tensorflow().nn.avg_pool2d(x, (12, 11), 2, "VALID")  # noqa: E731
    assert isinstance(nodes_of(tmp_path, make)[0].op, GlobalAvgPool)
    assert isinstance(nodes_of(tmp_path, make, (None, None))[0].op, AvgPool)


def excited(x: Any) -> Any:
    tf = tensorflow()
    weights = tf.reduce_max(x, [1, 2], keepdims=True)
    return x * tf.clip_by_value(weights * 0.2 + 0.5, 0.0, 1.0)


def shuffled(x: Any) -> Any:
    """Two groups of channels, in turn."""
    tf = tensorflow()
    size = tf.shape(x)
    parted = tf.reshape(x, [-1, size[1], size[2], 2, 2])
    return tf.reshape(tf.transpose(parted, [0, 1, 2, 4, 3]), tf.concat([size[:3], [4]], 0))


def in_channels_first(x: Any) -> Any:
    """A bias, numbers for each channel, parts and a mean, of maps whose channels come before their cells."""
    tf = tensorflow()
    y = tf.transpose(conv(x), [0, 3, 1, 2]) + variable("conv/biases", 4, 1, 1)
    first, second = tf.split(tf.nn.relu(y * variable("numbers", 4, 1, 1)), 2, 1)
    return tf.reduce_mean(tf.concat([second, first], 1), [2, 3])


def moments(x: Any) -> Any:
    """A layer norm as TensorFlow 1 wrote it (tf.contrib.layers.layer_norm)."""
    tf = tensorflow()
    return tf.nn.batch_normalization(
        x, *tf.nn.moments(x, [-1], keepdims=True), variable("norm/beta", 3), None, 1e-12
    )


def transposed(x: Any, rows: int = 3, columns: int = 4) -> Any:
    tf = tensorflow()
    size = tf.stack([*tf.unstack(tf.shape(x)[:3] * [1, 2, 3]), 2])
    return tf.nn.conv2d_transpose(x, variable("w", rows, columns, 2, 3), size, (2, 3))


def standardised(x: Any) -> Any:
    tf = tensorflow()
    kernel = variable("w", 3, 3, 3, 4)
    mean, variance = tf.nn.moments(kernel, [0, 1, 2])
    return tf.nn.conv2d(x, (kernel - mean) * tf.math.rsqrt(variance + 1e-3), 2, "SAME")


def cast_to_truths(x: Any) -> Any:
    """Ones where the stored numbers are not 0."""
    tf = tensorflow()
    kernel = tf.cast(tf.cast(tf.math.maximum(variable("w", 3, 2), 0), tf.bool), tf.float64)
    return tf.matmul(tf.reduce_mean(x, [1, 2]), kernel)


OPS: dict[str, tuple[Make, list[type[Op]]]] = {
    "gelu": (lambda x: 0.5 * x * (1 + tensorflow().math.erf(x / math.sqrt(2))), [Gelu]),
    "gelu by tanh": (
        lambda x: 0.5
        * (x * (1 + tensorflow().tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * tensorflow().pow(x, 3))))),
        [Gelu],
    ),
    "swish": (lambda x: tensorflow().nn.silu(tensorflow().nn.softsign(x)), [Softsign, Swish]),
    "hard swish by a product": (lambda x: x * tensorflow().nn.relu6(x + 3) * (1 / 6), [HardSwish]),
    "hard swish by a quotient": (lambda x: x * (tensorflow().nn.relu6(x + 3) / 6), [HardSwish]),
    "excited": (excited, [GlobalMaxPool, HardSigmoid, Multiply]),
    "leaky": (lambda x: tensorflow().maximum(tensorflow().nn.leaky_relu(x), 0.5 * x),
        [LeakyRelu, Affine, Maximum]),
    "leaky as a maximum": (lambda x: tensorflow().maximum(0.5 * x, x), [LeakyRelu]),
    "elu as a choice": (lambda x: tensorflow().where(x > 0, x, 0.5 * (tensorflow().exp(x) - 1)), [Elu]),
    "elu as Keras writes it": (lambda x: tensorflow().where(x > 0, y := tensorflow().nn.elu(x), 0.5 * y),
        [Elu]),
    "elu of what is below zero": (lambda x:
        tensorflow().where(x >= 0, x, tensorflow().exp(tensorflow().minimum(x, 0)) - 1), [Elu]),
    "celu as a choice": (lambda x: tensorflow().where(x > 0, x, 0.7 * tensorflow().math.expm1(x / 0.7)),
        [Celu]),
    "leaky as a choice": (lambda x: tensorflow().where(x > 0, x, 0.5 * x), [LeakyRelu]),
    "layer norm": (moments, [LayerNorm]),
    "a kernel cast to truths": (cast_to_truths, [GlobalAvgPool, Dense]),
    "a standardised kernel": (standardised, [Conv]),
    "clipped": (lambda x: tensorflow().clip_by_value(x, -0.5, 0.25), [Clip]),
    "flatten": (lambda x: tensorflow().matmul(tensorflow().reshape(x, [-1, 396]), variable("w", 396, 2)),
        [Flatten, Dense]),
    "transposed kernel": (
        lambda x: tensorflow().matmul(tensorflow().reduce_mean(x, [1, 2]), variable("w", 2, 3),
            transpose_b=True),
        [GlobalAvgPool, Dense],
    ),
    "dense on a map": (lambda x: tensorflow().tensordot(x, variable("w", 3, 2), 1), [Conv]),
    "einsum": (lambda x: tensorflow().einsum("nhwc,dc->nhwd", x, variable("w", 2, 3)), [Conv]),
    "channels first": (
        lambda x: tensorflow().nn.relu(tensorflow().reshape(tensorflow().transpose(x, [0, 3, 1, 2]),
            [-1, 396])),
        [Flatten, Relu],
    ),
    "in channels first": (in_channels_first,
        [Conv, Affine, Relu, SliceChannels, SliceChannels, ConcatChannels, GlobalAvgPool]),
    "an axis that comes and goes": (lambda x: tensorflow().squeeze(x[:, None, ..., ::-1], 1),
        [SliceChannels]),
    "channels in reverse": (lambda x: tensorflow().gather(x, [2, 1, 0], axis=-1), [SliceChannels]),
    "channels shuffled": (lambda x: tensorflow().gather(conv(x), [0, 2, 1, 3], axis=3),
        [Conv, ChannelShuffle]),
    "mean over channels": (lambda x: tensorflow().reduce_mean(x, [3], keepdims=True), [ReduceMap]),
    "parts": (
        lambda x: tensorflow().concat(tensorflow().split(conv(x), [1, 3], -1)[::-1], -1),
        [Conv, SliceChannels, SliceChannels, ConcatChannels],
    ),
    "one channel": (lambda x: tensorflow().expand_dims(tensorflow().unstack(x, axis=-1)[1], -1),
        [SliceChannels]),
    "every second cell": (lambda x: x[:, 1::2, : tensorflow().shape(x)[2] - 2, ::-1],
        [SliceChannels, CropMap, MaxPool]),
    "shortcut of zeros": (lambda x: tensorflow().pad(x[:, ::2, ::2], [[0, 0]] * 3 + [[1, 2]]),
        [MaxPool, PadChannels]),
    "pad alone": (lambda x: tensorflow().pad(x, PADS, constant_values=1.0), [PadMap]),
    "mirrored": (lambda x: tensorflow().pad(tensorflow().pad(x, PADS, "SYMMETRIC"), PADS, "REFLECT"),
        [ExtendMap, ExtendMap]),
    "shuffled": (lambda x: shuffled(conv(x)), [Conv, ChannelShuffle]),
    "cells": (lambda x: tensorflow().nn.depth_to_space(conv(x), 2), [Conv, DepthToSpace]),
    "resized": (lambda x: tensorflow().image.resize(x, tensorflow().shape(x)[1:3] * 2, "nearest"),
        [Upsample]),
    "transposed": (transposed, [ConvTranspose]),
    "transposed by kernels shorter than their strides": (lambda x: transposed(x, 1, 2), [ConvTranspose]),
}  # fmt: skip


@pytest.mark.parametrize("size", [(12, 11), (None, None)])
@pytest.mark.parametrize("case", OPS)
def test_ops(tmp_path: Path, case: str, size: tuple[int | None, int | None]) -> None:
    """In a graph of one size, and in one whose sizes are computed as it runs."""
    make, expected = OPS[case]
    found = [node.op for node in nodes_of(tmp_path, make, size)]
    if size == (None, None) and Flatten in expected and "map" not in case:
        assert any(isinstance(op, Foreign) for op in found)
    else:
        assert [type(op) for op in found] == expected


def boxes(x: Any) -> Any:
    """A detector's boxes over two maps, whose batch is read from the map."""
    tf = tensorflow()
    maps = conv(x, 8), tf.nn.max_pool2d(conv(x, 8, name="other"), 2, 2, "SAME")
    return tf.squeeze(
        tf.concat([tf.reshape(each, tf.stack([tf.shape(each)[0], -1, 1, 4])) for each in maps], 1), 2
    )


def transformer(x: Any) -> Any:
    """A token of the class, and attention with a table of relative positions, by every product that
    TensorFlow has.
    """
    tf = tensorflow()
    tokens = tf.reshape(conv(x, 6, 4, strides=4, padding="VALID"), [-1, 6, 6])
    tokens = tf.concat([tf.tile(variable("class", 1, 1, 6), [tf.shape(x)[0], 1, 1]), tokens], 1) + variable(
        "places", 1, 7, 6
    )
    query, key, value = (
        tf.einsum("btc,chd->bthd", tokens, variable(name, 6, 2, 4)) for name in ("query", "key", "value")
    )
    scores = tf.matmul(tf.transpose(query, [0, 2, 1, 3]), tf.transpose(key, [0, 2, 3, 1])) / 2
    nearness = tf.gather(variable("table", 13, 2), np.arange(7)[:, None] - np.arange(7) + 6)
    shares = tf.nn.softmax(scores + tf.transpose(nearness, [2, 0, 1]))
    mixed = tf.einsum("bhts,bshd->bthd", shares, value)
    tokens += tf.einsum("bthd,hdc->btc", mixed, variable("out", 2, 4, 6)) + variable("bias", 6)
    turned = tf.matmul(tokens, tokens, transpose_a=True)
    return tf.matmul(tokens[:, 0], variable("kernel", 6, 3)) + tf.gather(turned, 2, axis=1)[:, :3]


def windows_of(x: Any) -> Any:
    """Rolled windows, the batch and the windows in one axis, and rolled back."""
    tf = tensorflow()
    apart = tf.reshape(tf.roll(conv(x, 4)[:, :, :10], [-1, 2], [1, 2]), [-1, 3, 4, 2, 5, 4])
    cells = tf.reshape(tf.transpose(apart, [0, 1, 3, 2, 4, 5]), [-1, 20, 4])
    cells = tf.nn.softmax(cells, axis=1) * tf.reduce_sum(cells, -1, keepdims=True) + tf.norm(
        cells, axis=-1, keepdims=True
    )
    back = tf.transpose(tf.reshape(cells, [-1, 3, 2, 4, 5, 4]), [0, 1, 3, 2, 4, 5])
    return tf.roll(tf.reshape(back, [-1, 12, 10, 4]), [1, -2], [1, 2])


def stacked(x: Any) -> Any:
    tf = tensorflow()
    first, second = tf.split(tf.reshape(conv(x, 4), [-1, 132, 4]), 2, axis=2)
    return tf.stack([first, second, first * second], axis=1)[:, 1:, ::2]


def bands(x: Any) -> list[Any]:
    """Matrices with some of their diagonals, and a diagonal that is multiplied by them."""
    linalg = tensorflow().linalg
    bounds = (0, -1), (2, 1), (-1, 0), (3, -1)
    diagonal = linalg.diag_part(x, k=-2)[..., None, :9] + linalg.diag_part(x, k=2)[..., None, :]
    return [diagonal * linalg.band_part(x, *each)[..., :9] for each in bounds]


ARRAYS: dict[str, tuple[Make, bool]] = {
    "boxes": (boxes, True),
    "a transformer": (transformer, False),
    "windows": (windows_of, False),
    "stacks": (stacked, False),
    "moved axes": (lambda x: tensorflow().transpose(conv(x), [0, 3, 1, 2]), True),
    "learned queries": (
        lambda x: tensorflow().matmul(
            tensorflow().tile(variable("queries", 1, 5, 132), [tensorflow().shape(x)[0], 1, 1]),
            tensorflow().reshape(conv(x), [-1, 132, 4]),
        ),
        False,
    ),
    "casts of truths": (
        lambda x: (
            tensorflow().cast(x > 0.2, x.dtype) * x
            + tensorflow().cast(tensorflow().cast(tensorflow().equal(x, abs(x)), "int32"), x.dtype)
        ),
        True,
    ),
    "cut to whole numbers": (lambda x: tensorflow().cast(tensorflow().cast(x * 3, "int64"), x.dtype), True),
    "sums by letters": (
        lambda x: sum(
            tensorflow().einsum(f"{equation}->nc", x, *others)
            for equation, *others in (
                ("nhwc,nhwd", x),
                ("nhwc,ndwh", tensorflow().transpose(x, [0, 3, 2, 1])),
                ("nhwc",),
            )
        ),
        False,
    ),
    "a trace": (lambda x: tensorflow().einsum("nhhc->nc", x[:, :11]), False),
    "bands": (lambda x: sum(bands(tensorflow().transpose(x, [0, 3, 1, 2]))), False),
    "sums from the end": (
        lambda x: sum(
            tensorflow().cumsum(x, 2, exclusive, backwards)
            for exclusive in (False, True)
            for backwards in (False, True)
        ),
        False,
    ),
    "products of cells": (lambda x: tensorflow().reduce_prod(x[:, :3, :4] + 1, [1, 2]), False),
    "logarithms of sums": (
        lambda x: (
            tensorflow().reduce_logsumexp(x, -1, keepdims=True)
            + tensorflow().reduce_logsumexp(x, [1, 2])[:, None, None]
        ),
        False,
    ),
    "scaled cells": (lambda x: tensorflow().einsum("nhwc,hc->nhwc", x, variable("w", 12, 3)), False),
}
"""Graphs of arrays, and whether they hold at any size."""


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays(tmp_path: Path, case: str) -> None:
    make, at_any_size = ARRAYS[case]
    for size in [(12, 11), (None, None)][: 1 + at_any_size]:
        assert not [node for node in nodes_of(tmp_path, make, size) if isinstance(node.op, Foreign)]


def single(path: Path, make: Make) -> None:
    """Writes a graph of float32, which some ops have only."""
    tf = tensorflow()
    with tf.Graph().as_default() as graph:
        make(tf.compat.v1.placeholder(tf.float32, [None, 12, 11, 3]))
        path.write_bytes(graph.as_graph_def().SerializeToString())


ROUNDED: dict[str, tuple[Make, type[Op]]] = {
    "gelu": (lambda x: tensorflow().nn.gelu(x, approximate=False), Gelu),
    "gelu by tanh": (lambda x: tensorflow().nn.gelu(x, approximate=True), Gelu),
    "response norm": (
        lambda x: tensorflow().nn.local_response_normalization(x, 1, 1.5, 0.3, 0.7),
        LocalResponseNorm,
    ),
    "bilinear": (lambda x: tensorflow().image.resize(x, (16, 22)), Resize),
    "bilinear of TensorFlow 1": (lambda x: tensorflow().compat.v1.image.resize_bilinear(x, (16, 22)), Resize),
    "between corners": (
        lambda x: tensorflow().compat.v1.image.resize_bilinear(x, (23, 21), align_corners=True),
        Resize,
    ),
    "bicubic": (lambda x: tensorflow().image.resize(x, (24, 44), "bicubic"), Resize),
    "bicubic of TensorFlow 1": (lambda x: tensorflow().compat.v1.image.resize_bicubic(x, (24, 44)), Resize),
    "nearest": (lambda x: tensorflow().image.resize(x, (7, 30), "nearest"), Resize),
    "nearest of TensorFlow 1": (
        lambda x: tensorflow().compat.v1.image.resize_nearest_neighbor(x, (7, 30)),
        Resize,
    ),
    "nearest of TensorFlow 1 by three": (
        lambda x: tensorflow().compat.v1.image.resize_nearest_neighbor(x, (36, 33)),
        Resize,
    ),
}


@pytest.mark.parametrize("case", ROUNDED)
def test_float32_graphs_in_float64(tmp_path: Path, case: str) -> None:
    """TensorFlow keeps a GELU's numbers in 32 bits; the definition that a port is compared with has them as
    the port does.
    """
    make, kind = ROUNDED[case]
    single(tmp_path / "graph.pb", make)
    checkpoint = read_frozen_graph(tmp_path / "graph.pb")
    (node,) = checkpoint.carried.nodes
    assert type(node.op) is kind
    batch = with_channels_first(images())
    ours: Array = values_of(checkpoint.carried, {}, batch)[node.name]
    tap = str(node.tap)
    limits: dict[Dtype, float] = {"float64": 1e-14, "float32": 1e-6}
    for dtype, limit in limits.items():
        theirs = GraphRunner(checkpoint.carried.definition, {}, [tap], dtype)(batch, (tap,))[tap]
        assert np.abs(ours - theirs).max() <= limit


FOREIGN: dict[str, Make] = {
    "MirrorPad of channels by symmetric": lambda x: tensorflow().pad(x, [[0, 0]] * 3 + [[1, 1]], "SYMMETRIC"),
    "Atan": lambda x: tensorflow().atan(x),
    "MatMul with transpose_a": lambda x: tensorflow().matmul(
        tensorflow().reduce_mean(x, [1, 2]), variable("w", 2, 3), transpose_a=True
    ),
    "StridedSlice of the batch": lambda x: x[:1],
    "Max over the batch": lambda x:
        tensorflow().minimum(tensorflow().reduce_max(x * 0.2 + 0.5, 0, keepdims=True), 1.0),
    "ResizeBicubic by other factors than powers of two, whose shares TensorFlow takes from a table": lambda x:
        (
        tensorflow().image.resize(x, (7, 33), "bicubic")
    ),
    "a resize that does not fit: the nearest of 12 cells for 26 depends on float32's rounding by asymmetric":
        lambda x: tensorflow().compat.v1.image.resize_nearest_neighbor(x, (26, 11)),
}  # fmt: skip


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_porter_has_no_op_for_is_named(tmp_path: Path, kind: str) -> None:
    found = nodes_of(tmp_path, FOREIGN[kind])
    assert kind in [node.op.kind for node in found if isinstance(node.op, Foreign)]


def test_training_mode_and_channels_first(tmp_path: Path) -> None:
    tf = tensorflow()
    path = tmp_path / "graph.pb"
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3, 12, 12])
        y = tf.nn.conv2d(x, np.ones((3, 3, 3, 4), np.float32), 1, "SAME", "NCHW")
        one = np.ones(12, np.float32)
        tf.compat.v1.nn.fused_batch_norm(y, one, one, is_training=True)
        path.write_bytes(graph.as_graph_def().SerializeToString())
    nodes: Any = read_frozen_graph(path).carried.nodes
    kinds = [node.op.kind for node in nodes]
    assert kinds == ["Conv2D in NCHW", "FusedBatchNormV3 in training mode"]


def test_grouped_and_shared_weights(tmp_path: Path) -> None:
    """A Conv2D with a narrow kernel has groups, and two nodes of one scope keep their own names."""
    tf = tensorflow()
    path = tmp_path / "graph.pb"
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 12, 12, 4])
        weights = tf.constant(np.ones((1, 1, 2, 4), np.float32), name="shared/weights")
        tf.nn.conv2d(tf.nn.conv2d(x, weights, 1, "SAME", name="one"), weights, 1, "SAME", name="two")
        path.write_bytes(graph.as_graph_def().SerializeToString())
    found: Any = read_frozen_graph(path).carried.nodes
    assert [(node.name, node.op.groups) for node in found] == [("one", 2), ("two", 2)]


def test_several_ends(tmp_path: Path) -> None:
    """Every value that nothing reads is an output; rankings, losses and shapes are not part of the
    network.
    """
    tf = tensorflow()

    def make(x: Any) -> Any:
        logits = tf.matmul(tf.reduce_mean(x, [1, 2]), variable("fc/w", 3, 2), name="logits")
        tf.argmax(logits, -1)
        tf.nn.softmax(logits, name="probabilities")
        tf.shape(x)
        tf.nn.relu(x, name="features")
        return logits

    path = tmp_path / "graph.pb"
    frozen(path, make)
    assert read_frozen_graph(path).carried.outputs == ("probabilities", "features")


def test_bytes_made_floats(tmp_path: Path) -> None:
    """A graph that takes bytes is read from the floats on."""
    tf = tensorflow()
    path = tmp_path / "graph.pb"
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.uint8, [None, 12, 11, 3])
        output = tf.nn.relu(tf.cast(x, tf.float32) / 255.0 - 0.5)
        path.write_bytes(graph.as_graph_def().SerializeToString())
        pixels = np.random.default_rng(0).integers(0, 256, (2, 12, 11, 3))
        with tf.compat.v1.Session() as session:
            value = session.run(output, {x: pixels})
    checkpoint = read_frozen_graph(path)
    assert [type(node.op) for node in checkpoint.carried.nodes] == [Affine, Affine, Relu]
    expect_same(checkpoint, pixels.astype(np.float32), value, 1e-6)


def test_damaged_graphs(tmp_path: Path) -> None:
    path = tmp_path / "graph.pb"
    frozen(path, lambda x: conv(x, name="block/conv"))
    tf = tensorflow()
    whole = path.read_bytes()

    def refused(change: Callable[[Any], object]) -> str:
        graph = tf.compat.v1.GraphDef.FromString(whole)
        change({node.name: node for node in graph.node})
        path.write_bytes(graph.SerializeToString())
        with pytest.raises(FileError) as caught:
            read_frozen_graph(path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)
        return str(caught.value)

    weights = "block/conv/weights"
    assert "which the graph lacks" in refused(
        lambda nodes: nodes["block/conv/Conv2D"].input.__setitem__(1, "nothing")
    )
    assert "in a loop" in refused(
        lambda nodes: nodes["block/conv/Conv2D"].input.__setitem__(0, "block/conv/Conv2D")
    )
    assert "not frozen" in refused(lambda nodes: setattr(nodes[weights], "op", "VariableV2"))
    assert "declares" in refused(
        lambda nodes: setattr(nodes[weights].attr["value"].tensor.tensor_shape.dim[0], "size", 1 << 40)
    )
    assert "no shape" in refused(
        lambda nodes: setattr(nodes[weights].attr["value"].tensor.tensor_shape.dim[0], "size", -1)
    )
    assert "does not hold" in refused(
        lambda nodes: setattr(nodes[weights].attr["value"].tensor, "tensor_content", b"1234")
    )
    path.write_bytes(whole[:-3])
    with pytest.raises(FileError, match="cut short"):
        read_frozen_graph(path)


def test_constants_of_one_number_are_bounded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each declares less than a file may unpack to: 300 of them could take 19 GB."""
    monkeypatch.setattr("porter.formats.limits._NEVER_REFUSED", 1 << 20)
    tf = tensorflow()
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 12, 11, 3])
        for place in range(3):
            tf.nn.conv2d(x, tf.constant(1.0, shape=(1, 1, 3, 1 << 15), name=f"kernel{place}"), 1, "VALID")
    (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    with pytest.raises(
        FileError, match=r"constant 'kernel2' declares 393216 bytes, and its file can hold \d+ more"
    ):
        read_frozen_graph(tmp_path / "graph.pb")


@pytest.mark.parametrize("count", [1, 2])
def test_a_slice_that_lacks_its_bounds_is_named(count: int, tmp_path: Path) -> None:
    path = tmp_path / "graph.pb"
    frozen(path, lambda x: x[:, 1:])
    definition = tensorflow().compat.v1.GraphDef.FromString(path.read_bytes())
    for node in definition.node:
        if node.op == "StridedSlice":
            del node.input[count:]
    path.write_bytes(definition.SerializeToString())
    (node,) = read_frozen_graph(path).carried.nodes
    assert isinstance(node.op, Foreign) and node.op.kind == f"StridedSlice by {count - 1} bounds"
