"""Keras's layers that every format has to say: one list of cases, which are the outputs of one model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from porter.dtypes import Array

ROWS, COLUMNS, CHANNELS = 8, 6, 4
Make = Callable[[Any, Any], Any]
"""From keras.layers and a map to an output, or a list of outputs."""


def _excited(layers: Any, x: Any) -> Any:
    """Squeeze-and-excite, as EfficientNet writes it."""
    weights = layers.Reshape((1, 1, CHANNELS))(layers.GlobalAveragePooling2D()(x))
    return layers.Multiply()([x, layers.Conv2D(CHANNELS, 1, activation="sigmoid")(weights)])


def _heads(layers: Any, x: Any) -> Any:
    features = layers.Flatten()(layers.MaxPooling2D(2, padding="same")(x))
    return [layers.Dense(3, activation="softmax")(features), layers.Dense(2)(features), layers.GlobalMaxPooling2D()(x)]


def _row(*names: str) -> Make:
    """Activations one after the other, each over a convolution that keeps its values of both signs."""

    def make(layers: Any, x: Any) -> Any:
        for name in names:
            x = layers.Activation(name)(layers.Conv2D(CHANNELS, 1)(x))
        return x

    return make


KERAS_CASES: Mapping[str, Make] = {
    "activations": _row("elu", "selu", "softplus", "tanh", "sigmoid", "relu6"),
    "hard activations": _row("hard_sigmoid", "swish", "hard_sigmoid", "softmax"),
    "leaky": lambda layers, x: layers.ReLU(negative_slope=0.25)(layers.LeakyReLU(0.125)(x)),
    "prelu": lambda layers, x: layers.PReLU(shared_axes=[1, 2])(x),
    "norms": lambda layers, x: layers.LayerNormalization(epsilon=1e-6)(layers.BatchNormalization(scale=False)(x)),
    "norm of features": lambda layers, x: layers.LayerNormalization(center=False, epsilon=1e-6)(layers.Flatten()(x)),
    "dense on a map": lambda layers, x: layers.Dense(5, activation="relu")(layers.Dense(3, use_bias=False)(x)),
    "flatten": lambda layers, x: layers.Dense(5)(layers.BatchNormalization()(layers.Flatten()(x))),
    "squeeze and excite": _excited,
    "separable": lambda layers, x: layers.SeparableConv2D(5, 3, strides=2, depth_multiplier=2, padding="same")(x),
    "transposed": lambda layers, x: layers.Conv2DTranspose(3, 3, strides=2, padding="same")(x),
    "transposed, valid": lambda layers, x: layers.Conv2DTranspose(3, (2, 4), strides=(3, 1), use_bias=False)(x),
    "upsampled": lambda layers, x: layers.UpSampling2D((2, 3))(x),
    "pads and crops": lambda layers, x: layers.Cropping2D(((0, 3), (1, 0)))(layers.ZeroPadding2D(((1, 0), (2, 1)))(x)),
    "a pad before a pool": lambda layers, x: layers.AveragePooling2D(3, 2)(layers.ZeroPadding2D(1)(x)),
    "several values": lambda layers, x: layers.Maximum()([layers.Subtract()([x, layers.Average()([x, -x])]), layers.Add()([x, x])]),
    "joined": lambda layers, x: layers.Concatenate()([x, layers.Minimum()([x, layers.ReLU(1.5)(x)])]),
    "several outputs": _heads,
    "a whole map": lambda layers, x: layers.GlobalAveragePooling2D(keepdims=True)(x),
}  # fmt: skip


def keras_model(keras: Any) -> Any:
    """One model with the outputs of all cases, each after a convolution of its own; `keras` is set to float64."""
    image = keras.Input((ROWS, COLUMNS, CHANNELS), name="image")
    found = [make(keras.layers, keras.layers.Conv2D(CHANNELS, 1)(image)) for make in KERAS_CASES.values()]
    outputs = [output for each in found for output in (each if isinstance(each, list) else [each])]
    # Keras 2's SavedModels sort outputs by the names of their layers.
    named = [keras.layers.Activation("linear", name=f"output_{place:02}")(output) for place, output in enumerate(outputs)]
    model = keras.Model(image, named)
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(
            random.uniform(0.5, 1.2, weight.shape) * random.choice([-1, 1], weight.shape) ** ("variance" not in weight.name)
        )
    return model


def images() -> Array:
    """Two images N×H×W×C."""
    return np.random.default_rng(3).normal(0, 2, (2, ROWS, COLUMNS, CHANNELS))
