"""Imports TensorFlow and Keras for every module of this folder that runs something."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from porter.errors import MissingFramework, UsageError
from porter.extras import install

_DEVICES = {"cpu": "/CPU", "cuda": "/GPU"}


def import_tensorflow() -> Any:
    """The `tensorflow` module.

    Raises:
        MissingFramework: TensorFlow or Keras is not installed, or Keras runs on another backend in this process.
    """
    import_keras()
    return import_module("tensorflow")


def import_keras() -> Any:
    """The `keras` module on its TensorFlow backend, imported without TensorFlow's start-up messages.

    Raises:
        MissingFramework: TensorFlow or Keras is not installed, or Keras runs on another backend in this process.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # torch may run a model on the same GPU
    try:
        if sys.modules.get("tensorflow") is None:
            with _quiet_stderr():
                import_module("tensorflow")
        keras = import_module("keras")
    except ImportError as error:
        raise MissingFramework(f"TensorFlow and Keras 3 cannot be imported: {error}", next=install("tf")) from None
    if keras.config.backend() != "tensorflow":
        raise MissingFramework(
            f"Keras runs on its '{keras.config.backend()}' backend in this process", next="set KERAS_BACKEND=tensorflow"
        )
    return keras


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Drops the output of C++ to file descriptor 2.

    TensorFlow 2.21 announces oneDNN while it is loaded, before its logger reads TF_CPP_MIN_LOG_LEVEL. Switching oneDNN off
    would silence it too, but doubles the time per image. Python exceptions pass through.
    """
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def tensorflow_device(device: str) -> str:
    """TensorFlow's name of porter's `cpu`, `cuda` or `cuda:N`.

    Raises:
        UsageError: there is no such device, or TensorFlow sees none of that kind.
    """
    kind, _, number = device.partition(":")
    if kind not in _DEVICES or not (number or "0").isdecimal():
        raise UsageError(f"there is no device '{device}'", next=f"devices are {', '.join(_DEVICES)}")
    if kind == "cuda" and int(number or 0) >= (found := len(import_tensorflow().config.list_physical_devices("GPU"))):
        raise UsageError(
            f"TensorFlow sees {found or 'no'} GPUs, so there is no '{device}'",
            next="install tensorflow[and-cuda], or use --device cpu",
        )
    return f"{_DEVICES[kind]}:{number or 0}"


@contextmanager
def quiet_logger(tensorflow: Any) -> Iterator[None]:
    """Silences TensorFlow's Python logger, except for errors."""
    logger = tensorflow.get_logger()
    before = logger.level
    logger.setLevel("ERROR")
    try:
        yield
    finally:
        logger.setLevel(before)
