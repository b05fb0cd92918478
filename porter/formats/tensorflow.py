"""Imports TensorFlow, which reads its own files and runs models; and what its kernels compute with, for
several formats.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from porter.base.errors import NotInstalled
from porter.base.package import install
from porter.formats.triton import load_triton

FLOAT_TYPE = 1
"""types.proto: DT_FLOAT."""


def import_tensorflow() -> Any:
    """Return the `tensorflow` module, imported without its start-up messages.

    Raises:
        NotInstalled: TensorFlow is not installed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # TensorFlow imports Keras, if it is installed
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # torch may run a model on the same GPU
    load_triton()
    if sys.modules.get("tensorflow") is not None:
        return sys.modules["tensorflow"]
    try:
        with quiet_stderr():
            return import_module("tensorflow")
    except ImportError as error:
        raise NotInstalled(f"TensorFlow cannot be imported: {error}", next=install("tf")) from None


@contextmanager
def quiet_stderr() -> Iterator[None]:
    """Drop the output of C++ to file descriptor 2.

    TensorFlow 2.21 announces oneDNN while it is loaded, before its logger reads TF_CPP_MIN_LOG_LEVEL.
    Switching oneDNN off would silence it too, but doubles the time per image. Python exceptions pass through.
    """
    saved = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def has_cubic_shares(factors: Iterable[float]) -> bool:
    """Return whether a cubic resize by these factors takes shares that are in TensorFlow's table of 1024.
    Powers of two do (core/kernels/image/resize_bicubic_op.cc, kTableSize).
    """
    return all(factor in _POWERS_OF_TWO for factor in factors)


_POWERS_OF_TWO = frozenset(2.0**power for power in range(10))
