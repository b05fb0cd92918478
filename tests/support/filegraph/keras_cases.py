"""Keras's layers and operations that every format has to say: one list of cases, which are the outputs of one
model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tests.support.arrays import Array

ROWS, COLUMNS, CHANNELS = 7, 6, 4
Make = Callable[[Any, Any, Any], Any]
"""Makes an output, or a list of outputs, with keras.layers, keras.ops and a map."""


def _excited(layers: Any, ops: Any, x: Any) -> Any:
    """Squeeze-and-excite, as EfficientNet writes it."""
    weights = layers.Reshape((1, 1, CHANNELS))(layers.GlobalAveragePooling2D()(x))
    weights = layers.Conv2D(CHANNELS, 1, activation="sigmoid")(
        layers.Conv2D(2, 1, activation="swish")(weights)
    )
    return layers.Multiply()([x, weights])


def _heads(layers: Any, ops: Any, x: Any) -> Any:
    features = layers.Flatten()(layers.MaxPooling2D(2, padding="same")(x))
    return [
        layers.Dense(3, activation="softmax")(features),
        layers.Dense(2)(features),
        layers.GlobalMaxPooling2D()(x),
    ]


def _row(*names: str) -> Make:
    """Activations one after the other, each over a convolution that keeps its values of both signs."""

    def make(layers: Any, ops: Any, x: Any) -> Any:
        for name in names:
            x = layers.Activation(name)(layers.Conv2D(CHANNELS, 1)(x))
        return x

    return make


def _transposed(**arguments: Any) -> Make:
    return lambda layers, ops, x: layers.Conv2DTranspose(5, **arguments)(x)


def _tokens(layers: Any, x: Any, channels: int = CHANNELS) -> Any:
    """The cells of a map one after the other."""
    return layers.Reshape((-1, channels))(x)


def _transformer(layers: Any, ops: Any, x: Any) -> Any:
    tokens = _tokens(layers, x)
    normal = layers.LayerNormalization(epsilon=1e-6)(tokens)
    tokens = layers.Add()([tokens, layers.MultiHeadAttention(2, 4)(normal, normal)])
    return layers.GlobalAveragePooling1D()(layers.Dense(5, activation="relu")(tokens))


def _crossed(layers: Any, ops: Any, x: Any) -> Any:
    """Attention of some tokens to others of other channels."""
    few = _tokens(layers, layers.Conv2D(3, 2, strides=2)(x), 3)
    return layers.MultiHeadAttention(3, 4, value_dim=5, use_bias=False, output_shape=7)(
        few, _tokens(layers, x)
    )


def _non_local(layers: Any, ops: Any, x: Any) -> Any:
    """Attention by layers of products, as non-local blocks have it, and by Keras's plain one."""
    query, key = (_tokens(layers, layers.Conv2D(3, 1)(x), 3) for _ in range(2))
    shares = layers.Softmax()(layers.Dot(axes=(2, 2))([query, key]))
    return layers.Attention()([layers.Dot(axes=(2, 1))([shares, _tokens(layers, x)]), _tokens(layers, x)])


def _windows(layers: Any, ops: Any, x: Any) -> Any:
    """Attention within two windows of each row, and a map again."""
    windows = layers.Reshape((ROWS, 2, COLUMNS // 2, CHANNELS))(x)
    windows = layers.MultiHeadAttention(2, 1, attention_axes=(3,))(windows, windows)
    return layers.Conv2D(3, 2)(layers.Reshape((ROWS, COLUMNS, CHANNELS))(windows))


def _both_axes(layers: Any, ops: Any, x: Any) -> Any:
    """Attention of every cell to every other one, whose rows and columns stay axes."""
    return layers.MultiHeadAttention(2, 4, attention_axes=[1, 2])(x, x)


def _boxes(layers: Any, ops: Any, x: Any) -> Any:
    """A detector's scores and boxes over two maps."""
    maps = [x, layers.MaxPooling2D(2)(x)]
    scores = layers.Concatenate(axis=1)([layers.Reshape((-1, 3))(layers.Conv2D(6, 1)(each)) for each in maps])
    boxes = layers.Concatenate(axis=1)(
        [layers.Reshape((-1, 1, 4))(layers.Conv2D(8, 1)(each)) for each in maps]
    )
    return [layers.Softmax()(scores), boxes]


def _called_twice(layers: Any, ops: Any, x: Any) -> Any:
    """Layers that two inputs share, one of which is what they gave."""
    conv, norm = layers.Conv2D(CHANNELS, 3, padding="same", activation="relu"), layers.BatchNormalization()
    return layers.Subtract()([norm(conv(x)), norm(conv(norm(x)))])


def _rows_of_cells(layers: Any, ops: Any, x: Any) -> Any:
    """Windows over one axis."""
    row = layers.SeparableConv1D(5, 3, padding="same")(
        layers.Conv1D(4, 3, strides=2, groups=2, activation="relu")(_tokens(layers, x))
    )
    row = layers.Conv1DTranspose(3, 2, strides=3, padding="same")(layers.ZeroPadding1D((0, 2))(row))
    row = layers.DepthwiseConv1D(3, depth_multiplier=2, padding="valid")(layers.Cropping1D((3, 1))(row))
    return layers.AveragePooling1D(3, 1, "same")(
        layers.MaxPooling1D(2)(layers.Conv1D(3, 3, dilation_rate=2, padding="causal")(row))
    )


def _channels_first(layers: Any, ops: Any, x: Any) -> Any:
    """Layers with channels first of a map that has them last."""
    first = {"data_format": "channels_first"}
    moved = layers.ZeroPadding2D(1, **first)(layers.AveragePooling2D(2, **first)(x))
    return [layers.Cropping2D(((1, 0), (0, 2)), **first)(moved), layers.GlobalMaxPooling2D(**first)(moved)]


KERAS_CASES: Mapping[str, Make] = {
    "a transformer": _transformer,
    "attention to others": _crossed,
    "a non-local block": _non_local,
    "attention in windows": _windows,
    "boxes": _boxes,
    "layers called twice": _called_twice,
    "a layer of each step": lambda layers, ops, x:
        layers.TimeDistributed(layers.Dense(3, activation="tanh"))(_tokens(layers, x)),
    "moved axes": lambda layers, ops, x: layers.Permute((3, 1, 2))(x),
    "turned tokens": lambda layers, ops, x:
        layers.Permute((2, 1))(layers.Dense(5)(layers.Permute((2, 1))(_tokens(layers, x)))),
    "einsums": lambda layers, ops, x: layers.EinsumDense("abcd,ced->abe", (ROWS * COLUMNS, 5), bias_axes="e")(
        layers.EinsumDense("abc,dce->abed", (ROWS * COLUMNS, 2, 3))(_tokens(layers, x))
    ),
    "norms of tokens": lambda layers, ops, x:
        layers.PReLU(shared_axes=[1])(layers.BatchNormalization()(_tokens(layers, x))),
    "norm of all cells": lambda layers, ops, x: layers.LayerNormalization(axis=[1, 2])(_tokens(layers, x)),
    "norm of a whole map": lambda layers, ops, x: layers.LayerNormalization(axis=[1, 2, 3])(x),
    "norm of rows": lambda layers, ops, x:
        layers.LayerNormalization(axis=1)(layers.BatchNormalization(axis=1)(x)),
    "norm of rows and channels": lambda layers, ops, x: layers.LayerNormalization(axis=[1, 3])(x),
    "norm of rows and columns": lambda layers, ops, x: layers.LayerNormalization(axis=[1, 2])(x),
    "norm of each channel": lambda layers, ops, x:
        layers.LayerNormalization(axis=[1, 2], center=False, scale=False)(x),
    "norms of cells": lambda layers, ops, x: layers.BatchNormalization(axis=1)(
        layers.LayerNormalization(axis=1)(_tokens(layers, x))
    ),
    "unit vectors": lambda layers, ops, x:
        [layers.UnitNormalization()(x), layers.UnitNormalization(axis=[1, 2])(x)],
    "scaled rows": lambda layers, ops, x: layers.Normalization(
        axis=1, mean=[0.25, 0.5, 0.75, 1, 0, 2, 3], variance=[1, 4, 16, 0.25, 1, 2, 3]
    )(x),
    "scaled tokens": lambda layers, ops, x: layers.Rescaling(0.25, [0.5, 1, 2, -1])(_tokens(layers, x)),
    "prelu of cells": lambda layers, ops, x: layers.PReLU()(layers.PReLU(shared_axes=[2])(x)),
    "prelu of one slope": lambda layers, ops, x: layers.PReLU(shared_axes=[1, 2, 3])(x),
    "softmax over cells": lambda layers, ops, x: layers.Softmax(axis=1)(_tokens(layers, x)),
    "softmax over rows and columns": lambda layers, ops, x: layers.Softmax(axis=[1, 2])(x),
    "activations": _row("elu", "selu", "softplus", "tanh", "sigmoid", "relu6", "softsign"),
    "hard activations": _row("relu", "hard_sigmoid", "swish", "hard_sigmoid", "softmax"),
    "leaky": lambda layers, ops, x:
        layers.ReLU(negative_slope=0.25)(layers.LeakyReLU(0.125)(layers.Dropout(0.3)(x))),
    "prelu": lambda layers, ops, x: layers.PReLU(shared_axes=[1, 2])(x),
    "prelu of features": lambda layers, ops, x: layers.PReLU()(layers.GlobalMaxPooling2D()(x)),
    "softmax inside": lambda layers, ops, x: layers.Conv2D(2, 1)(layers.Softmax()(x)),
    "norms": lambda layers, ops, x:
        layers.LayerNormalization(epsilon=1e-6)(layers.BatchNormalization(scale=False)(x)),
    "layer norm": lambda layers, ops, x:
        layers.LayerNormalization(scale=False)(layers.LayerNormalization()(x)),
    "layer norm of features": lambda layers, ops, x:
        layers.LayerNormalization(center=False, epsilon=1e-6)(layers.Flatten()(x)),
    "norm of features": lambda layers, ops, x: layers.BatchNormalization()(layers.GlobalMaxPooling2D()(x)),
    "dense on a map": lambda layers, ops, x:
        layers.Dense(5, activation="tanh")(layers.Dense(3, use_bias=False)(x)),
    "flatten of channels first": lambda layers, ops, x: [
        layers.Flatten(data_format="channels_first")(each) for each in (x, _tokens(layers, x))
    ],
    "a kept aspect": lambda layers, ops, x:
        layers.Resizing(4, 9, interpolation="nearest", crop_to_aspect_ratio=True)(x),
    "rows of cells": _rows_of_cells,
    "upsampled rows of cells": lambda layers, ops, x: layers.UpSampling1D(2)(_tokens(layers, x)),
    "flatten": lambda layers, ops, x: layers.Dense(5)(layers.BatchNormalization()(layers.Flatten()(x))),
    "squeeze and excite": _excited,
    "separable": lambda layers, ops, x:
        layers.SeparableConv2D(5, 3, strides=2, depth_multiplier=2, padding="same")(x),
    "separable of pads": lambda layers, ops, x:
        layers.SeparableConv2D(5, (3, 2), activation="elu")(layers.ZeroPadding2D(1)(x)),
    "depthwise by groups": lambda layers, ops, x:
        layers.Conv2D(2 * CHANNELS, 3, groups=CHANNELS, padding="same", strides=2)(x),
    "convs with activations": lambda layers, ops, x: layers.Conv2D(3, 1, activation="hard_sigmoid")(
        layers.DepthwiseConv2D(3, strides=2, activation="relu")(x)
    ),
    "transposed": _transposed(kernel_size=3, strides=2, padding="same"),
    "transposed, valid": _transposed(kernel_size=(4, 3), strides=(2, 3), use_bias=False),
    "transposed with a small kernel": _transposed(kernel_size=2, strides=3),
    "transposed same with a small kernel": _transposed(kernel_size=2, strides=3, padding="same"),
    "transposed with more": _transposed(kernel_size=3, strides=2, padding="same", output_padding=(0, 1)),
    "transposed valid with more": _transposed(kernel_size=(3, 2), strides=3, output_padding=(1, 2)),
    "upsampled": lambda layers, ops, x: layers.UpSampling2D((2, 3))(x),
    "other cells": lambda layers, ops, x: layers.UpSampling2D((2, 4), interpolation="bicubic")(
        layers.Resizing(5, 11)(layers.UpSampling2D((3, 2), interpolation="bilinear")(x))
    ),
    "the nearest cells": lambda layers, ops, x: layers.Resizing(12, 20, interpolation="nearest")(x),
    "pads and crops": lambda layers, ops, x:
        layers.Cropping2D(((0, 3), (1, 0)))(layers.ZeroPadding2D(((1, 0), (2, 1)))(x)),
    "pads before same": lambda layers, ops, x:
        layers.Conv2D(3, 3, padding="same")(layers.ZeroPadding2D(((0, 2), (1, 0)))(x)),
    "pads and an activation": lambda layers, ops, x: layers.ReLU()(layers.ZeroPadding2D(1)(x)),
    "pads at the end": lambda layers, ops, x: layers.ZeroPadding2D((1, 2))(layers.ReLU(4.0)(x)),
    "a pad before a pool": lambda layers, ops, x: layers.AveragePooling2D(3, 2)(layers.ZeroPadding2D(1)(x)),
    "several values": lambda layers, ops, x: layers.Maximum()(
        [layers.Subtract()([x, layers.Average()([x, x, layers.Minimum()([x, -x])])]), layers.Add()([x, x])]
    ),
    "joined": lambda layers, ops, x: layers.Concatenate()(
        [x, layers.Minimum()([x, layers.ReLU(1.5)(x)]), layers.Multiply()([x, x])]
    ),
    "several outputs": _heads,
    "a whole map": lambda layers, ops, x: layers.GlobalAveragePooling2D(keepdims=True)(x),
    "a whole map, flattened": lambda layers, ops, x:
        layers.Flatten()(layers.GlobalMaxPooling2D(keepdims=True)(x)),
    "products of features": lambda layers, ops, x: [
        layers.Dot(1, normalize=unit)([layers.GlobalMaxPooling2D()(x), layers.GlobalAveragePooling2D()(x)])
        for unit in (False, True)
    ],
}  # fmt: skip


def _shortcut(layers: Any, ops: Any, x: Any) -> Any:
    """A CIFAR ResNet's shortcut: every second cell, and channels of zeros."""
    main = layers.Conv2D(8, 3, strides=2, padding="same")(x)
    side = ops.pad(x[:, ::2, ::2], [[0, 0], [0, 0], [0, 0], [2, 2]])
    return layers.Activation("relu")(layers.Add()([main, side]))


def _inception_resnet(layers: Any, ops: Any, x: Any) -> Any:
    from keras.src.applications.inception_resnet_v2 import CustomScaleLayer

    return CustomScaleLayer(0.3)([x, layers.Conv2D(CHANNELS, 1)(x)])


def _convnext(layers: Any, ops: Any, x: Any) -> Any:
    from keras.src.applications.convnext import LayerScale, StochasticDepth

    found = layers.LayerNormalization(epsilon=1e-6)(layers.DepthwiseConv2D(3, padding="same")(x))
    found = layers.Dense(CHANNELS)(layers.Dense(7, activation="gelu")(found))
    return x + StochasticDepth(0.2)(LayerScale(0.1, CHANNELS)(found))


def _stretched(layers: Any, ops: Any, x: Any) -> Any:
    """Joins of maps that have as many channels as there are images, and of single numbers."""
    few = x[..., :2]
    one = ops.mean(layers.GlobalMaxPooling2D(keepdims=True)(few), -1, keepdims=True)
    return layers.Multiply()([layers.Add()([few, one]), layers.Average()([few, one]), ops.add(few, one)])


def _shuffled(layers: Any, ops: Any, x: Any) -> Any:
    """Channels shuffled by layers, and back by operations."""
    pairs = layers.Permute((1, 2, 4, 3))(layers.Reshape((ROWS, COLUMNS, 2, CHANNELS // 2))(x))
    back = ops.transpose(ops.reshape(layers.ReLU()(pairs), (-1, ROWS, COLUMNS, 2, 2)), (0, 1, 2, 4, 3))
    return layers.Reshape((ROWS, COLUMNS, CHANNELS))(back)


def _by_cells(layers: Any, ops: Any, x: Any) -> Any:
    """Layers of a list of cells, and arithmetic with the channels first."""
    cells = layers.LayerNormalization()(
        layers.Dense(CHANNELS, activation="relu")(layers.Reshape((-1, CHANNELS))(x))
    )
    first = ops.transpose(layers.Reshape((ROWS, COLUMNS, CHANNELS))(cells), (0, 3, 1, 2))
    return ops.mean((first * 3.0 + 0.5) * ops.sigmoid(first), (2, 3))


def _in_parts(layers: Any, ops: Any, x: Any) -> Any:
    """Attention of joined queries, keys and values, by two kinds of product."""
    joined = ops.reshape(layers.Dense(3 * CHANNELS)(x), (-1, ROWS * COLUMNS, 3, 2, CHANNELS // 2))
    query, key, value = ops.unstack(ops.transpose(joined, (2, 0, 3, 1, 4)), axis=0)
    shares = ops.softmax(ops.matmul(query, ops.swapaxes(key, -1, -2)) * 0.7)
    first = ops.reshape(
        ops.transpose(ops.matmul(shares, value), (0, 2, 1, 3)), (-1, ROWS * COLUMNS, CHANNELS)
    )
    query, key, value = ops.split(layers.Dense(8)(first), [2, 4], axis=-1)
    return ops.einsum("bts,bsc->btc", layers.Softmax()(ops.einsum("btc,bsc->bts", query, key)), value)


def _shifted(layers: Any, ops: Any, x: Any) -> Any:
    """Windows of a map that is rolled, with the batch and the windows in one axis, and rolled back."""
    windows = ops.reshape(ops.roll(x, (-1, 2), axis=(1, 2)), (-1, ROWS, 2, COLUMNS // 2, CHANNELS))
    windows = ops.reshape(ops.transpose(windows, (0, 2, 1, 3, 4)), (-1, ROWS * COLUMNS // 2, CHANNELS))
    windows = layers.MultiHeadAttention(2, 4)(windows, windows)
    back = ops.transpose(ops.reshape(windows, (-1, 2, ROWS, COLUMNS // 2, CHANNELS)), (0, 2, 1, 3, 4))
    return x + ops.roll(ops.reshape(back, (-1, ROWS, COLUMNS, CHANNELS)), (1, -2), axis=(1, 2))


def _with_arrays(layers: Any, ops: Any, x: Any) -> Any:
    """Stored arrays beside a map, and beside tokens."""
    random = np.random.default_rng(5)
    tokens = _tokens(layers, x + random.normal(size=(ROWS, COLUMNS, CHANNELS))) * random.normal(
        size=(1, ROWS * COLUMNS, 1)
    )
    return ops.subtract(
        random.normal(size=(ROWS * COLUMNS, CHANNELS)), tokens / random.uniform(1, 2, (ROWS * COLUMNS, 1))
    )


def _stacks(layers: Any, ops: Any, x: Any) -> Any:
    tokens = _tokens(layers, x)
    rows = ops.stack([tokens, tokens * -0.5], axis=2)
    sums = ops.sum(ops.moveaxis(rows, 1, -1), axis=[1, 3]) + ops.norm(rows, axis=1)[:, 1]
    return [sums, tokens - ops.mean(tokens, axis=[1, 2], keepdims=True)]


def _repeats(layers: Any, ops: Any, x: Any) -> Any:
    tokens = _tokens(layers, x)
    return tokens + ops.repeat(tokens[:, :1], ROWS * COLUMNS, axis=1)


def _as_caffe(layers: Any, ops: Any, x: Any) -> Any:
    """The first layers of a model that prepares its images itself."""
    from keras.applications import resnet50

    return layers.Conv2D(2, 1)(resnet50.preprocess_input(x[..., :3]))


def _vectors_beside_arrays(layers: Any, ops: Any, x: Any) -> Any:
    """One number for each place of the last axis, whatever that is."""
    vector, row = np.array([0.5, -1, 2, 0.25]), np.linspace(1, 2, COLUMNS)
    pooled = layers.GlobalMaxPooling2D()(x)
    turned = ops.transpose(x, (0, 3, 1, 2)) * row
    return [
        ops.stack([pooled, pooled * 2], axis=1) + vector,
        ops.transpose(turned, (0, 2, 3, 1)),
        ops.stack([x[:, 0], x[:, 1]], 1) - vector,
    ]


def _by_constants(layers: Any, ops: Any, x: Any) -> Any:
    vector, matrix = np.array([0.5, -1, 2, 0.25]), np.random.default_rng(6).normal(size=(CHANNELS, 3))
    rows = np.random.default_rng(7).normal(size=(2, COLUMNS))
    positive = ops.square(x) + 1
    bounded = ops.maximum(x, vector) - ops.minimum(vector, x) + ops.divide(vector, positive) + 3.0 / positive
    return [
        bounded + ops.power(x, 2),
        ops.matmul(x, matrix),
        ops.matmul(_tokens(layers, x), matrix[:, :1]),
        ops.matmul(rows, x),
    ]


KERAS_3_CASES: Mapping[str, Make] = {
    "functions in parts": lambda layers, ops, x: (
        ops.log1p(ops.abs(x)) + ops.expm1(x) + ops.sinh(x) + ops.mod(x, 0.75)
    ),
    "sums and norms along axes": lambda layers, ops, x: (
        ops.cumsum(x, axis=-1) + ops.prod(x, axis=-1, keepdims=True) + ops.norm(x, 1, -1, keepdims=True)
    ),
    "rows turned round, and copies": lambda layers, ops, x: (
        ops.flip(x, axis=1) + ops.tile(x, [1, 1, 2, 1])[:, :, : x.shape[2]]
    ),
    "pools that are called": lambda layers, ops, x: [
        ops.max_pool(x, (3, 2), (2, 1), padding="same"),
        ops.max_pool(x, 2),
        ops.average_pool(x, 3, 2, padding="same"),
        ops.average_pool(x, (2, 1)),
    ],
    "resizes that are called": lambda layers, ops, x: [
        ops.image.resize(x, (9, 13)),
        ops.image.resize(x, (4, 9), interpolation="nearest"),
        ops.image.resize(x, (4, 9), crop_to_aspect_ratio=True),
    ],
    "products and parts of several axes": lambda layers, ops, x: (
        ops.prod(ops.tanh(x[:, :3]) + 1.5, axis=(1, 3), keepdims=True) * x
        + ops.einsum("nhwc->nc", x)[:, None, None]
        + ops.einsum("nhwc,nhwd->nd", x, x)[:, None, None]
    ),
    "images as Caffe takes them": _as_caffe,
    "vectors beside arrays": _vectors_beside_arrays,
    "constants on either side": _by_constants,
    "attention of ops": _in_parts,
    "attention over both axes": _both_axes,
    "shifted windows": _shifted,
    "stored arrays": _with_arrays,
    "stacks": _stacks,
    "repeats": _repeats,
    "group norms": lambda layers, ops, x:
        layers.GroupNormalization(2)(layers.GroupNormalization(-1, epsilon=1e-6, scale=False)(x)),
    "groups of columns": lambda layers, ops, x: layers.GroupNormalization(3, axis=2)(x),
    "a padded aspect": lambda layers, ops, x: layers.Resizing(
        9, 4, interpolation="nearest", pad_to_aspect_ratio=True, fill_value=0.5
    )(x),
    "windows that differ in size": lambda layers, ops, x: [
        layers.AdaptiveMaxPooling2D((3, 4))(layers.AdaptiveAveragePooling2D((5, 9))(x)),
        layers.AdaptiveAveragePooling1D(5)(_tokens(layers, x)),
    ],
    "center crop": lambda layers, ops, x: layers.CenterCrop(4, 3)(x),
    "layers with channels first": _channels_first,
    "upsampling with channels first": lambda layers, ops, x:
        layers.UpSampling2D((2, 1), data_format="channels_first")(x),
    "a spectral norm": lambda layers, ops, x:
        layers.SpectralNormalization(layers.Conv2D(3, 2, activation="relu"))(x),
    "norms by the root": lambda layers, ops, x:
        layers.RMSNormalization()(ops.rms_normalization(_tokens(layers, x), epsilon=1e-3)),
    "activations of Keras 3": _row("silu", "hard_silu", "hard_swish", "mish"),
    "gelu": _row("gelu", "relu"),
    "activations in parts": _row("hard_shrink", "sparse_plus", "soft_shrink", "squareplus", "tanh_shrink",
        "glu"),
    "activations of other names": _row("exponential", "hard_tanh", "log_sigmoid", "sparse_sigmoid"),
    "gelus": lambda layers, ops, x: ops.gelu(x) + ops.gelu(x, approximate=False),
    "leaky relus": lambda layers, ops, x:
        layers.ReLU(negative_slope=0.2)(x + layers.ReLU(max_value=0.1, negative_slope=0.2)(x)),
    "leaky activations": lambda layers, ops, x: layers.Conv2D(3, 2, activation=layers.LeakyReLU(0.25))(
        layers.Conv2D(3, 1, activation=layers.ReLU(negative_slope=0.125))(layers.Activation("leaky_relu")(x))
    ),
    "sums of stretched values": _stretched,
    "inception resnet's own": _inception_resnet,
    "convnext's own, with a gelu": _convnext,
    "cifar resnet": _shortcut,
    "arithmetic": lambda layers, ops, x: (2.0 - x / np.array([0.1, 0.2, 0.4, 0.7])) * 3.3 + (-x) - 0.7,
    "products": lambda layers, ops, x:
        ops.multiply(x, ops.maximum(x, ops.minimum(-x, 0.3))) - ops.maximum(x, x * 2),
    "mean and max": lambda layers, ops, x: ops.concatenate(
        [ops.mean(x, axis=-1, keepdims=True), ops.max(x, axis=3, keepdims=True),
            ops.expand_dims(ops.mean(x, 3), -1)], axis=-1
    ),
    "means of rows": lambda layers, ops, x:
        x * ops.mean(x, axis=1, keepdims=True) + ops.max(x, axis=[2], keepdims=True),
    "means of maps": lambda layers, ops, x:
        ops.mean(x, (1, 2)) * ops.squeeze(ops.max(x, (-3, -2), keepdims=True), (1, 2)),
    "pads of ops": lambda layers, ops, x:
        layers.MaxPooling2D(2)(ops.pad(x, [[0, 0], [1, 0], [0, 2], [0, 0]], constant_values=0.1)),
    "slices": lambda layers, ops, x:
        ops.concatenate([x[:, 1:, ::2, ::-1], x[:, :-1, 0::2, 0:1], x[..., 1:, 1::2, 2:]], -1),
    "an index": lambda layers, ops, x: x[:, 0, -1] + ops.squeeze(x[:, None, 2, 3], 1),
    "bgr": lambda layers, ops, x: layers.Conv2D(2, 1)(x[..., ::-1]),
    "reshapes": lambda layers, ops, x:
        ops.reshape(ops.expand_dims(layers.GlobalMaxPooling2D()(x), 1), (-1, 1, 1, CHANNELS)) * x,
    "channels shuffled": _shuffled,
    "taken channels": lambda layers, ops, x:
        ops.take(x, [0, 2, 1, 3], axis=-1) * ops.take(x, [1, 1, 3], axis=3)[..., 1:2],
    "layers of cells": _by_cells,
    "clips": lambda layers, ops, x:
        ops.clip(x, -0.2, 0.4) + ops.relu6(x * 9) + ops.clip(x * 7, -float(np.finfo("f").max), 0.7),
    "scaling": lambda layers, ops, x:
        layers.Normalization(mean=[0.25, 0.5, 0.75, 1], variance=[1, 4, 16, 0.25])(
        layers.Rescaling(0.25)(x)
    ),
    "elu": lambda layers, ops, x: layers.ELU(0.3)(x) + ops.elu(x, 0.5),
    "thresholds": lambda layers, ops, x: layers.ReLU(threshold=0.3)(x) + ops.relu(x),
}  # fmt: skip
"""Cases that only Keras 3 has."""
BETWEEN_CELLS = ("other cells", "resizes that are called")
"""Cases that TensorFlow computes in float32."""
RESIZING = ("other cells", "the nearest cells", "a kept aspect", "a padded aspect")
"""Cases with a Resizing layer, whose default of `training` is True: in what Keras exports, every batch norm
then trains.
"""


def keras_model(keras: Any, cases: Mapping[str, Make]) -> tuple[Any, list[str]]:
    """One model with the outputs of `cases`, each after a convolution of its own, and the case of each
    output; `keras` is set to float64.
    """
    image, ops = keras.Input((ROWS, COLUMNS, CHANNELS), name="image"), getattr(keras, "ops", None)
    found = [
        (name, output) for name, make in cases.items() for output in _outputs(make, keras.layers, ops, image)
    ]
    # Keras 2's SavedModels sort outputs by the names of their layers.
    named = [
        keras.layers.Activation("linear", name=f"output_{place:02}")(output)
        for place, (_, output) in enumerate(found)
    ]
    model = keras.Model(image, named)
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(
            random.uniform(0.5, 1.2, weight.shape)
            * random.choice([-1, 1], weight.shape) ** ("variance" not in weight.name)
        )
    return model, [name for name, _ in found]


def _outputs(make: Make, layers: Any, ops: Any, image: Any) -> Iterator[Any]:
    made = make(layers, ops, layers.Conv2D(CHANNELS, 1)(image))
    yield from made if isinstance(made, list) else [made]


def images() -> Array:
    """Two images N×H×W×C."""
    return np.random.default_rng(3).normal(0, 2, (2, ROWS, COLUMNS, CHANNELS))
