"""Keras models and frozen graphs as evaluations run them: many photos, logits only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array
from porter.base.errors import UsageError
from porter.base.ways_to_run import Run
from porter.data.preprocess import Preprocess
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks import Classifier, expect_run
from porter.frameworks.batches import make_cpu_classifier
from porter.frameworks.tf.frozen.run import GraphRunner
from porter.frameworks.tf.run import tap_value, tf32
from porter.frameworks.tf.runtime import import_keras, quiet_logger, tensorflow_device


def classifier(model: Any, protocol: Preprocess, device: str, how: Run, tap: str | None = None) -> Classifier:
    """Return a classifier of photos that runs a Keras model on `device`, or a frozen graph or one of
    TF-slim's networks on the CPU; see porter.frameworks.Engine.classifier. Its logits are the value called
    `tap`, or else the first output.

    Raises:
        UsageError: there is no such device, or TensorFlow has no such run.
    """
    expect_run(how, "TensorFlow", ("fp32", "tf32"))
    name = tensorflow_device(device)
    if isinstance(model, GraphRunner):
        if tap is None:
            raise UsageError("name the value to take from the frozen graph: it gives no output by default")
        return make_cpu_classifier(lambda images: model(images, (tap,))[tap], protocol)
    return _keras_classifier(model, protocol, name, how.precision == "tf32", tap)


def _keras_classifier(
    model: Any, protocol: Preprocess, device: str, allow_tf32: bool, tap: str | None
) -> Classifier:
    """Return a classifier of photos that runs a Keras model, and normalises their pixels, on TensorFlow's
    `device`, compiled for each size of image. Its logits are the value called `tap`, a layer's name, or else
    the first output.
    """
    tensorflow = import_tensorflow()
    logits_model = import_keras().Model(
        model.inputs, model.outputs[0] if tap is None else tap_value(model, tap)
    )
    compiled: dict[tuple[int, ...], Any] = {}

    def normalise(pixels: Any, divide: Any, mean: Any, std: Any) -> Any:
        """Return pixels N x H x W x RGB as the protocol has them: divided, in its order of channels, minus
        the mean and divided by the deviation.
        """
        is_divided = protocol.resampling.divides_first
        values = pixels if is_divided else tensorflow.cast(pixels, "float32") / divide
        values = values if protocol.channels == "rgb" else values[..., ::-1]
        return (values - mean) / std

    def run(pixels: Any, divide: Any, mean: Any, std: Any) -> Any:
        return logits_model(normalise(pixels, divide, mean, std), training=False)

    def classify(pixels: NDArray[Any]) -> Callable[[], Array]:
        """Compute the logits of photos at once; the function that is returned only gives them."""
        images = pixels.reshape(-1, *pixels.shape[2:])
        # As inputs, because TensorFlow may replace a division by a constant by a product with its rounded
        # reciprocal.
        scaling = [np.asarray(value, np.float32) for value in (protocol.divide, protocol.mean, protocol.std)]
        with tensorflow.device(device), tf32(tensorflow, allow_tf32):
            inputs = [tensorflow.constant(value) for value in (images, *scaling)]
            size = images.shape[1:]
            if size not in compiled:
                specs = [tensorflow.TensorSpec(value.shape, value.dtype) for value in inputs]
                # any number of images, so that a last, smaller batch is not compiled anew
                specs[0] = tensorflow.TensorSpec((None, *size), inputs[0].dtype)
                with quiet_logger(tensorflow):
                    compiled[size] = tensorflow.function(run).get_concrete_function(*specs)
            logits: Array = compiled[size](*inputs).numpy()
        return lambda: logits.reshape(len(logits), -1)

    return classify
