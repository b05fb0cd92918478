"""Imports Keras, and names devices, for every module that runs something in TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from logging import ERROR, LogRecord, getLogger
from typing import Any

import numpy as np

from porter.base.dtypes import Dtype
from porter.base.errors import NotInstalled, UsageError
from porter.base.options import DEVICE
from porter.base.package import install
from porter.formats.tensorflow import import_tensorflow

_DEVICES = {"cpu": "/CPU", "cuda": "/GPU"}
_RANDOM_INITIALIZERS = {
    "glorot_uniform": "GlorotUniform",
    "GlorotUniform": "GlorotUniform",
    "VarianceScaling": "VarianceScaling",
}
"""Keras's initializers that its code for networks draws large kernels with, by the words for them."""


def import_keras() -> Any:
    """Return the `keras` module on its TensorFlow backend.

    Raises:
        NotInstalled: TensorFlow or Keras is not installed, or Keras runs on another backend in this
            process.
    """
    import_tensorflow()
    try:
        keras = import_module("keras")
    except ImportError as error:
        raise NotInstalled(f"Keras 3 cannot be imported: {error}", next=install("tf")) from None
    if keras.config.backend() != "tensorflow":
        raise NotInstalled(
            f"Keras runs on its '{keras.config.backend()}' backend in this process",
            next="set KERAS_BACKEND=tensorflow",
        )
    return keras


def keras_do(function: str, *arguments: Any, **options: Any) -> Any:
    """Call a function of `keras.ops` by its name, or take a part of a value (`getitem`), and return the
    result; see porter.frameworks.tf.resizing.
    """
    if function == "getitem":
        return arguments[0][arguments[1]]
    return getattr(import_keras().ops, function)(*arguments, **options)


def tensorflow_device(device: str) -> str:
    """Return TensorFlow's name of porter's `cpu`, `cuda` or `cuda:N`.

    Raises:
        UsageError: there is no such device, or TensorFlow sees none of that kind.
    """
    kind, _, stated_number = device.partition(":")
    number = stated_number or "0"
    if kind not in _DEVICES or not number.isdecimal():
        raise UsageError(f"there is no device '{device}'", next=f"devices are {', '.join(_DEVICES)}")
    if kind == "cuda":
        count = len(import_tensorflow().config.list_physical_devices("GPU"))
        if int(number) >= count:
            raise UsageError(
                f"TensorFlow sees {count or 'no'} GPUs, so there is no '{device}'",
                next=f"install tensorflow[and-cuda], or use {DEVICE('cpu')}",
            )
    return f"{_DEVICES[kind]}:{number}"


@contextmanager
def quiet_logger(tensorflow: Any) -> Iterator[None]:
    """Silence TensorFlow's Python loggers, except for errors, within the context."""
    loggers = (tensorflow.get_logger(), getLogger("absl"))
    for logger in loggers:
        logger.addFilter(_is_error)  # the converter sets the level
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_error)


def _is_error(record: LogRecord) -> bool:
    return record.levelno >= ERROR


@contextmanager
def keras_defaults(dtype: Dtype) -> Iterator[None]:
    """Set Keras's defaults within the context: layers are made in `dtype` and with channels last, unless they
    say otherwise, and all of TensorFlow's variables have one name (`_create_under_one_name`).

    Code such as that of keras.applications takes both only from Keras's global state, which is restored
    afterwards. Keras also converts plain numbers to the global type, not to the layer's.
    """
    config = import_keras().config
    # as they are before, to be restored
    policy, floats, layout = config.dtype_policy(), config.floatx(), config.image_data_format()
    config.set_floatx(dtype)  # for the input layer, which ignores the policy
    config.set_dtype_policy(dtype)
    config.set_image_data_format("channels_last")
    try:
        with import_tensorflow().variable_creator_scope(_create_under_one_name):
            yield
    finally:
        config.set_floatx(floats)
        config.set_dtype_policy(policy)
        config.set_image_data_format(layout)


def _create_under_one_name(create: Callable[..., Any], **stated: Any) -> Any:
    """Create a variable with the one name that all have, whatever scope it is in. TensorFlow makes and keeps
    a kernel for every other name (python/ops/resource_variable_ops.py, `debug_name`), which takes half the
    time of building a layer. Keras's own names and paths are not these.
    """
    return create(**{**stated, "name": "variable/"})


@contextmanager
def zero_initializers() -> Iterator[None]:
    """Let variables within the context begin as zeros: random numbers, which weights replace anyway, take
    half the time of a construction. `restore_initializers` gives the layers Keras's own initializers again.
    """
    keras = import_keras()
    classes = {
        name: _zeros_class(getattr(keras.initializers, name)) for name in _RANDOM_INITIALIZERS.values()
    }
    known = {word: classes[name] for word, name in _RANDOM_INITIALIZERS.items()}
    with keras.utils.custom_object_scope({**known, **{kind.__name__: kind for kind in classes.values()}}):
        yield


@cache
def _zeros_class(random_class: Any) -> Any:
    """Return a class of initializers that give zeros in place of random numbers; each keeps the initializer
    of class `random_class` that it replaces in `replaced`, for the config.
    """

    def begin(self: Any, **config: Any) -> None:
        self.replaced = random_class(**config)

    methods = {"__init__": begin, "get_config": lambda self: self.replaced.get_config()}
    return type(f"Undrawn{random_class.__name__}", (import_keras().initializers.Zeros,), methods)


def restore_initializers(model: Any) -> None:
    """Give layers that were made in `zero_initializers` their own initialisers back, for their configs."""
    for layer in model._flatten_layers(include_self=False):
        for name, value in [*vars(layer).items()]:
            if type(value).__name__.startswith("Undrawn"):
                setattr(layer, name, value.replaced)


def keep_constants(model: Any) -> None:
    """Turn the constants of Rescaling layers into numpy numbers, and in float64 those of Normalizations too,
    because Keras rounds plain numbers to float32 first, in any type.
    """
    for layer in model._flatten_layers(include_self=False):
        kind = type(layer).__name__
        if kind == "Rescaling":
            layer.scale, layer.offset = np.float64(layer.scale), np.float64(layer.offset)
        has_constants = kind == "Normalization" and layer.input_mean is not None
        if has_constants and layer.compute_dtype == "float64":
            for name in ("mean", "variance"):
                exact = np.asarray(getattr(layer, f"input_{name}"), np.float64)
                shape = getattr(layer, name).shape
                is_single = exact.size <= 1
                setattr(layer, name, np.broadcast_to(exact, shape) if is_single else exact.reshape(shape))
