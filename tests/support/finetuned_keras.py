"""Fine-tuned models as Keras's tutorials make them, on keras.applications' MobileNets with calibrated
stand-in weights.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.runtime import import_keras, keep_constants, restore_initializers, zero_initializers
from tests.support.arrays import Array
from tests.support.standin import smooth_images
from tests.support.standin_files import source_checkpoint

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

SIZE = (160, 160)
V1, V2 = "mobilenet_v1_0.25", "mobilenet_v2_0.35"


@dataclass(frozen=True)
class FineTuned:
    """A file, and the model that was saved into it.

    Attributes:
        variant: of the backbone.
        classes: numbers that the model gives for an image; 0 where it has no head and gives features.
        model: the Keras model, of Keras 3 or 2.
        pixels: it takes pixels from 0 to 255; otherwise what the backbone takes, about 1 in size.
    """

    path: Path
    variant: str
    classes: int
    model: Any
    pixels: bool

    def images(self, count: int = 3, seed: int = 5) -> Array:
        """A batch N x 3 x rows x columns that the model's answers differ on."""
        images = smooth_images(3, SIZE, seed, count)
        return np.clip(127.5 + 63.75 * images, 0, 255).astype(np.float32) if self.pixels else images

    def answers(self, batch: Array) -> Array:
        """The model's own output for a batch N x 3 x rows x columns, channels before rows and columns. It is
        computed in float64: in float32, a MobileNet of TensorFlow's is 1e-5 to 3e-5 away from itself, by the
        processor.
        """
        found = np.asarray(self._exact(batch.transpose(0, 2, 3, 1).astype(np.float64), training=False))
        return found.transpose(0, 3, 1, 2) if found.ndim == 4 else found

    @cached_property
    def _exact(self) -> Any:
        keras = importlib.import_module(type(self.model).__module__.partition(".")[0])
        exact = keras.models.model_from_json(self.model.to_json().replace('"float32"', '"float64"'))
        exact.set_weights(self.model.get_weights())
        keep_constants(exact)
        for layer in exact.layers:
            if hasattr(layer, "finalize_state"):  # a Normalization that was adapted
                layer.finalize_state()
        return exact


@dataclass(frozen=True)
class Kind:
    """How one model is made: by Keras 3 or by Keras 2 (`tf_keras`)."""

    make: Callable[[Any], Any]
    variant: str
    classes: int
    suffix: str
    pixels: bool
    old: bool = False


def _base(keras: Any, variant: str, **arguments: Any) -> Any:
    """The backbone without its top, with the stand-in weights."""
    name, alpha = {V1: ("MobileNet", 0.25), V2: ("MobileNetV2", 0.35)}[variant]
    arguments = {"include_top": False, "weights": None, "input_shape": (*SIZE, 3), **arguments}
    with zero_initializers():
        base = getattr(keras.applications, name)(alpha=alpha, **arguments)
    restore_initializers(base)
    tensors = source_checkpoint(variant, "keras").tensors
    for layer in base.layers:
        for variable in layer.weights:
            word = variable.name.split("/")[-1].removesuffix(":0").removeprefix("depthwise_")
            stored = tensors.get(f"{layer.name}/{word}", tensors.get(f"{layer.name}/depthwise_{word}"))
            if stored is not None and stored.shape == tuple(variable.shape):
                variable.assign(stored)
    return base


def _with_head(model: Any, *heads: str) -> Any:
    """The model with weights in its own layers under which answers neither agree nor saturate."""
    random = np.random.default_rng(7)
    for name in heads:
        kernel, *bias = model.get_layer(name).get_weights()
        values = [
            random.normal(0, 1.5 / np.sqrt(np.prod(kernel.shape[:-1])), kernel.shape),
            *(random.normal(0, 0.1, one.shape) for one in bias),
        ]
        model.get_layer(name).set_weights(values)
    return model


def tutorial(keras: Any, variant: str = V2) -> Any:
    """tensorflow.org, "Transfer learning and fine-tuning": augmentation, preprocess_input, a nested backbone,
    one sigmoid.
    """
    layers = keras.layers
    augmentation = keras.Sequential([layers.RandomFlip("horizontal"), layers.RandomRotation(0.2)])
    image = keras.Input((*SIZE, 3))
    x = keras.applications.mobilenet_v2.preprocess_input(augmentation(image))
    x = _base(keras, variant)(x, training=False)
    x = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(x))
    return _with_head(
        keras.Model(image, layers.Dense(1, activation="sigmoid", name="cat_or_dog")(x)), "cat_or_dog"
    )


def smaller_tutorial(keras: Any) -> Any:
    """The same on MobileNet v1, which has half as many layers."""
    return tutorial(keras, V1)


def sequential(keras: Any) -> Any:
    """A backbone as the first layer of a Sequential, two dense layers behind it."""
    layers = keras.layers
    head = [
        layers.GlobalAveragePooling2D(),
        layers.Dense(128, activation="relu", name="hidden"),
        layers.Dropout(0.5),
        layers.Dense(5, activation="softmax", name="answer"),
    ]
    return _with_head(keras.Sequential([_base(keras, V1), *head]), "hidden", "answer")


def on_output(keras: Any) -> Any:
    """Layers put on `base.output`, so that nothing is nested."""
    layers, base = keras.layers, _base(keras, V1)
    x = layers.GlobalAveragePooling2D(name="pooling")(base.output)
    return _with_head(
        keras.Model(base.input, layers.Dense(5, activation="softmax", name="flowers")(x)), "flowers"
    )


def rescaled(keras: Any) -> Any:
    """Augmentation, which Keras 3 records as training=True, and a Rescaling in front; logits without an
    activation.
    """
    layers = keras.layers
    image = keras.Input((*SIZE, 3))
    x = _base(keras, V1)(layers.Rescaling(1 / 127.5, offset=-1)(layers.RandomFlip("horizontal")(image)))
    return _with_head(
        keras.Model(image, layers.Dense(3, name="logits")(layers.GlobalAveragePooling2D()(x))), "logits"
    )


def normalised(keras: Any) -> Any:
    """A Normalization whose mean and variance its config states."""
    layers = keras.layers
    image = keras.Input((*SIZE, 3))
    x = layers.Normalization(mean=[123.68, 116.78, 103.94], variance=[3411.1, 3265.3, 3295.0])(image)
    x = layers.GlobalAveragePooling2D()(_base(keras, V1)(x, training=False))
    return _with_head(keras.Model(image, layers.Dense(4, activation="softmax", name="answer")(x)), "answer")


def adapted(keras: Any) -> Any:
    """A Normalization that was adapted to data, so that only its weights hold the numbers."""
    layers = keras.layers
    normalization = layers.Normalization()
    normalization.adapt(np.random.default_rng(3).uniform(0, 255, (16, *SIZE, 3)).astype(np.float32))
    image = keras.Input((*SIZE, 3))
    x = layers.GlobalAveragePooling2D()(_base(keras, V1)(normalization(image), training=False))
    return _with_head(keras.Model(image, layers.Dense(4, activation="softmax", name="answer")(x)), "answer")


def pooled(keras: Any) -> Any:
    """A backbone that pools by itself."""
    layers = keras.layers
    return _with_head(
        keras.Sequential([_base(keras, V1, pooling="avg"), layers.Dense(3, name="answer")]), "answer"
    )


def several_dense(keras: Any) -> Any:
    """Dense layers with normalisations between them."""
    layers = keras.layers
    image = keras.Input((*SIZE, 3))
    x = layers.GlobalAveragePooling2D()(_base(keras, V1)(image, training=False))
    x = layers.Dense(64, use_bias=False, name="first")(x)
    x = layers.Activation("relu")(layers.BatchNormalization(name="first_bn")(x))
    x = layers.Dense(32, activation="relu", name="second")(layers.Dropout(0.3)(x))
    model = _with_head(
        keras.Model(image, layers.Dense(6, activation="softmax", name="third")(x)), "first", "second", "third"
    )
    random = np.random.default_rng(9)
    model.get_layer("first_bn").set_weights([random.uniform(0.5, 1.5, 64) for _ in range(4)])
    return model


def features(keras: Any) -> Any:
    """Only the backbone."""
    return _base(keras, V1)


def own_classes(keras: Any) -> Any:
    """keras.applications' own top for another number of classes."""
    return _with_head(_base(keras, V2, include_top=True, classes=7), "predictions")


def own_classes_v1(keras: Any) -> Any:
    """MobileNet v1's top is a 1x1 convolution between reshapes."""
    return _with_head(_base(keras, V1, include_top=True, classes=7), "conv_preds")


KINDS: Mapping[str, Kind] = {
    "tutorial-keras": Kind(tutorial, V2, 1, ".keras", True),
    "tutorial-h5": Kind(smaller_tutorial, V1, 1, ".h5", True),
    "tutorial-old-h5": Kind(smaller_tutorial, V1, 1, ".h5", True, old=True),
    "sequential-keras": Kind(sequential, V1, 5, ".keras", False),
    "sequential-old-h5": Kind(sequential, V1, 5, ".h5", False, old=True),
    "sequential-weights": Kind(sequential, V1, 5, ".weights.h5", False),
    "on-output-h5": Kind(on_output, V1, 5, ".h5", False),
    "rescaled-keras": Kind(rescaled, V1, 3, ".keras", True),
    "normalised-h5": Kind(normalised, V1, 4, ".h5", True),
    "adapted-keras": Kind(adapted, V1, 4, ".keras", True),
    "pooled-keras": Kind(pooled, V1, 3, ".keras", False),
    "several-dense-old-h5": Kind(several_dense, V1, 6, ".h5", False, old=True),
    "features-keras": Kind(features, V1, 0, ".keras", False),
    "own-classes-weights": Kind(own_classes, V2, 7, ".weights.h5", False),
    "tutorial-old-folder": Kind(smaller_tutorial, V1, 1, "", True, old=True),
    "several-dense-folder": Kind(several_dense, V1, 6, "", False),
    "own-classes-v1-h5": Kind(own_classes_v1, V1, 7, ".h5", False),
}
WHOLE = tuple(name for name, kind in KINDS.items() if kind.suffix in (".keras", ".h5"))
"""The kinds that carry the config of the Keras model."""


def make_finetuned(name: str, folder: Path) -> FineTuned:
    """Makes one of KINDS and saves it into `folder`."""
    kind = KINDS[name]
    import_tensorflow()
    if kind.old:
        import tf_keras as keras
    else:
        keras = import_keras()
    model, path = kind.make(keras), folder / f"{name}{kind.suffix}"
    if kind.suffix == ".weights.h5":
        model.save_weights(path)
    elif not kind.suffix:  # a SavedModel
        model.save(path, save_format="tf") if kind.old else model.export(path, verbose=False)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "This file format is considered legacy"
            model.save(path)
    return FineTuned(path, kind.variant, kind.classes, model, kind.pixels)
