"""Keras models as people hold them, each of many parts: what a port of a model in memory has to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from porter.base.dtypes import HALVES

SIDE = 24


def partly_single(keras: Any) -> Any:
    """Layers that Keras computes partly in float32, whatever their type is."""
    layers = keras.layers
    image = keras.Input((SIDE, SIDE, 3))
    x = layers.Conv2D(8, 3, strides=2)(image)
    tokens = layers.Reshape((-1, 8))(x)
    return keras.Model(
        image,
        [
            layers.LeakyReLU()(x),
            layers.Activation("gelu")(x),
            layers.UpSampling2D(2, interpolation="bilinear")(x),
            layers.UpSampling2D(2, interpolation="bicubic")(x),
            layers.Resizing(20, 18)(x),
            layers.Resizing(20, 12, crop_to_aspect_ratio=True)(x),
            layers.MultiHeadAttention(2, 4)(tokens, tokens),
        ],
    )


def named_like_nodes(keras: Any) -> Any:
    """Layers of several steps, one of which a node has the layer's name for."""
    layers = keras.layers
    image = keras.Input((SIDE, SIDE, 3))
    x = layers.SeparableConv2D(8, 3, dilation_rate=2, padding="same")(image)
    row = layers.Conv1D(8, 3)(layers.Reshape((SIDE, -1))(layers.LayerNormalization()(x)))
    pooled, most = layers.GlobalAveragePooling1D()(row), layers.GlobalMaxPooling1D()(row)
    return keras.Model(
        image, [layers.Dot(1)([pooled, most]), layers.UnitNormalization()(layers.Dense(8)(pooled))]
    )


def nested(keras: Any) -> Any:
    """Models in models, tuned in every way, whose outputs are a dict of unsorted keys."""
    layers, rng = keras.layers, np.random.default_rng(0)
    taken = keras.Input((SIDE, SIDE, 3))
    backbone = keras.Model(
        taken, layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, use_bias=False)(taken)))
    )
    backbone.layers[2].moving_variance.assign(rng.uniform(0.3, 2, 8))
    augmenting = keras.Sequential([layers.RandomFlip(), layers.RandomRotation(0.1), layers.Rescaling(0.5)])
    scaled = layers.Normalization()
    scaled.adapt(rng.normal(3, 2, (16, SIDE, SIDE, 3)).astype(np.float32))
    spectral = layers.SpectralNormalization(layers.Conv2D(6, 3))
    head = keras.Sequential([layers.GlobalAveragePooling2D(), layers.Dense(6, name="tuned")])
    image = keras.Input((SIDE, SIDE, 3))
    features = head(spectral(backbone(scaled(augmenting(image)))))
    head.get_layer("tuned").enable_lora(2)
    head.get_layer("tuned").lora_kernel_b.assign(rng.normal(size=(2, 6)))
    return keras.Model(image, {"z": features, "a": layers.Dense(3)(features)})


def of_code(keras: Any) -> Any:
    """A model that is only code, with a dict of inputs and of outputs, and a layer without get_config."""

    class Scale(keras.layers.Layer):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.by = by

        def call(self, values: Any) -> Any:
            return values * self.by

    class Code(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.inner = keras.Sequential([keras.layers.Conv2D(4, 3), keras.layers.BatchNormalization()])
            self.scale, self.pool = Scale(0.3), keras.layers.GlobalAveragePooling2D()
            self.dense = keras.layers.Dense(4)

        def call(self, given: Any, training: bool | None = None) -> Any:
            pooled = self.pool(self.scale(self.inner(given["image"], training=training)))
            return {"z": pooled * self.dense(given["facts"]), "a": pooled}

    model = Code()
    model({"facts": np.zeros((1, 5), np.float32), "image": np.zeros((1, SIDE, SIDE, 3), np.float32)})
    return model


def code_in_code(keras: Any) -> Any:
    """A model that is only code, of Keras's own layers and a model of layers."""

    class Code(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            image = keras.Input((SIDE, SIDE, 3))
            self.body = keras.Model(image, keras.layers.Conv2D(4, 3, activation="relu")(image))
            self.pool, self.head = keras.layers.GlobalMaxPooling2D(), keras.layers.Dense(3)

        def call(self, images: Any) -> Any:
            return self.head(self.pool(self.body(images)))

    model = Code()
    model(np.zeros((1, SIDE, SIDE, 3), np.float32))
    return model


def in_double(keras: Any) -> Any:
    layers, double = keras.layers, {"dtype": "float64"}
    return keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 3), **double),
            layers.Conv2D(4, 3, **double),
            layers.LeakyReLU(**double),
            layers.GlobalAveragePooling2D(**double),
        ]
    )


def of_pixels(keras: Any) -> Any:
    """It takes whole numbers, beside two arrays that come before them."""
    image, *arrays = keras.Input((SIDE, SIDE, 3), dtype="uint8"), keras.Input((4,)), keras.Input((5,))
    pooled = keras.layers.GlobalAveragePooling2D()(
        keras.layers.Conv2D(4, 3)(keras.layers.Rescaling(1 / 127.5, -1)(image))
    )
    dense = [keras.layers.Dense(4)(array) for array in arrays]
    return keras.Model([arrays[0], image, arrays[1]], keras.layers.Add()([pooled, *dense]))


def of_larger_images(keras: Any) -> Any:
    """A port is compared at smaller sizes, which the model inside refuses."""
    layers, size = keras.layers, (4 * SIDE, 3 * SIDE, 3)
    image = keras.Input(size)
    inner = keras.Model(image, layers.Conv2D(6, 3, strides=2)(layers.ZeroPadding2D(1)(image)))
    return keras.Sequential([keras.Input(size), inner, layers.GlobalAveragePooling2D(), layers.Dense(4)])


def _mixed(keras: Any, half: str) -> Any:
    """Layers with policies of half precision, some of them in a model within, and layers of float32."""
    layers, mixed = keras.layers, {"dtype": f"mixed_{half}"}
    image = keras.Input((SIDE, SIDE, 3))
    inner = keras.Sequential(
        [
            layers.Conv2D(8, 4, strides=4, **mixed),
            layers.LeakyReLU(**mixed),
            layers.UpSampling2D(2, interpolation="bilinear", **mixed),
        ]
    )
    tokens = layers.Reshape((-1, 8), **mixed)(inner(image))
    tokens = layers.Add(**mixed)([tokens, layers.MultiHeadAttention(2, 4, **mixed)(tokens, tokens)])
    tokens = layers.EinsumDense("abc,cd->abd", (None, 6), activation="gelu", **mixed)(tokens) * 2.5 + 0.1
    pooled = layers.GlobalAveragePooling1D(dtype="float32")(layers.LayerNormalization(**mixed)(tokens))
    return keras.Model(image, [pooled, layers.Dense(3)(pooled)])


def _whole(keras: Any, half: str) -> Any:
    """All layers and weights in half precision."""
    layers, whole = keras.layers, {"dtype": half}
    image = keras.Input((SIDE, SIDE, 3), **whole)
    x = layers.ReLU(max_value=6.0, **whole)(
        layers.BatchNormalization(**whole)(layers.Conv2D(8, 3, **whole)(image))
    )
    return keras.Model(image, layers.Dense(3, **whole)(layers.GlobalAveragePooling2D(**whole)(x)))


def _cast(keras: Any, half: str) -> Any:
    """Casts between layers of float32."""
    image = keras.Input((SIDE, SIDE, 3))
    x = keras.ops.cast(keras.ops.cast(keras.layers.Conv2D(8, 3)(image), half) * 1.7, "float32")
    return keras.Model(image, keras.layers.GlobalAveragePooling2D()(x))


HALF_MODELS: Mapping[str, Callable[[Any], Any]] = {
    f"{made.__name__.strip('_')} {half}": partial(made, half=half)
    for made in (_mixed, _whole, _cast)
    for half in HALVES
}
"""Each makes, of the module `keras`, a model that computes in half precision."""
KERAS_MODELS: Mapping[str, Callable[[Any], Any]] = {
    made.__name__: made
    for made in (
        partly_single,
        named_like_nodes,
        nested,
        of_code,
        code_in_code,
        in_double,
        of_pixels,
        of_larger_images,
    )
}
"""Each makes a model of the module `keras`."""


def given_to(name: str) -> Any:
    """A batch for each input of a model, as it takes them."""
    rng = np.random.default_rng(0)
    sides = (4 * SIDE, 3 * SIDE) if name == "of_larger_images" else (SIDE, SIDE)
    image = rng.normal(size=(2, *sides, 3)).astype(np.float32)
    arrays = [rng.normal(size=(2, size)).astype(np.float32) for size in (4, 5)]
    if name == "of_code":
        return {"facts": arrays[1], "image": image}
    if name == "of_pixels":
        return [arrays[0], np.rint(120 + 60 * image).clip(0, 255), arrays[1]]
    return image
