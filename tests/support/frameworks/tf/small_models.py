"""Small Keras models, and what Keras itself says that their files hold."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.arrays import Array

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def functional() -> Any:
    """Twelve convolutions (so that `conv2d_10` sorts before `conv2d_2`), depthwise, norms of every kind, two
    nested models.
    """
    import keras
    from keras import layers

    within = keras.Input((8, 8, 4))
    x = layers.Conv2D(4, 3, name="inner_conv", use_bias=False, padding="same")(within)
    x = layers.BatchNormalization(name="inner_bn", scale=False)(x)
    inner = keras.Model(within, x, name="inner")
    tail = keras.Sequential(
        [layers.Conv2D(2, 1, name="tail_conv"), layers.BatchNormalization(name="tail_bn")], name="tail"
    )

    image = keras.Input((8, 8, 3))
    x = image
    for number in range(12):
        x = layers.Conv2D(
            4, 3 - 2 * (number % 2), name=f"c{12 - number}", padding="same", use_bias=number % 3 > 0
        )(x)
    x = layers.DepthwiseConv2D(3, padding="same", name="conv_dw_1")(x)
    x = layers.BatchNormalization(name="bn_full")(x)
    x = layers.BatchNormalization(name="bn_gamma", center=False)(x)
    x = layers.BatchNormalization(name="bn_bare", center=False, scale=False)(x)
    x = layers.Dropout(0.2)(x)
    x = tail(inner(x))
    x = layers.SeparableConv2D(2, 1, name="separable")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return randomise(keras.Model(image, layers.Dense(3, name="fc")(x)))


def sequential(dtype: str = "float32") -> Any:
    import keras
    from keras import layers

    stack = [
        keras.Input((8, 8, 3)),
        layers.Conv2D(2, 3, name="conv1", dtype=dtype),
        layers.BatchNormalization(name="bn_Conv1", dtype=dtype),
        layers.Flatten(),
        layers.Dense(3, name="fc", dtype=dtype),
    ]
    return randomise(keras.Sequential(stack, name="stack"))


def randomise(model: Any) -> Any:
    random = np.random.default_rng(0)
    for variable in model.weights:
        variable.assign(random.normal(size=variable.shape) ** 2)
    return model


def expected(path: Path, depthwise: str) -> dict[str, Array]:
    """What Keras has after loading the file itself; `depthwise` is what the format calls a depthwise
    kernel.
    """
    import keras

    held = {}
    for layer in leaves(keras.models.load_model(path, compile=False)):
        for variable in layer.weights:
            name = (
                depthwise
                if type(layer).__name__ == "DepthwiseConv2D" and variable.name == "kernel"
                else variable.name
            )
            held[f"{layer.name}/{name}"] = keras.ops.convert_to_numpy(variable)
    return held


def leaves(model: Any) -> Iterator[Any]:
    for layer in model.layers:
        yield from leaves(layer) if hasattr(layer, "layers") else [layer]
