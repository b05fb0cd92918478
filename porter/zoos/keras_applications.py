"""The zoo's own implementation of ResNeXt, the package keras-applications 1.0.8, made of today's Keras's
layers.

Keras itself has no ResNeXt any more. The package takes the modules of Keras that it builds with as arguments.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

from porter.base.errors import NotInstalled, UsageError
from porter.frameworks.tf.runtime import import_keras
from porter.padding import KnownSize
from porter.zoos.implementation import Implementation
from porter.zoos.keras import build_by
from porter.zoos.tables import KERAS_APPLICATIONS

_PACKAGE = "Keras-Applications==1.0.8"
_HEAD = "probs"


def construct(variant: str, classes: int, size: KnownSize) -> Any:
    """Make the package's model of a variant for images of `size` (rows, columns), giving logits; of Keras's
    global floating type.

    Raises:
        UsageError: there is no such variant, or the package refuses the size.
        NotInstalled: Keras or the package is not installed.
    """
    if variant not in KERAS_APPLICATIONS:
        raise UsageError(
            f"reference 'keras_applications' has no variant '{variant}'",
            next=f"it has {', '.join(KERAS_APPLICATIONS)}",
        )
    keras = import_keras()
    try:
        code = import_module("keras_applications.resnext")
    except ImportError as error:
        raise NotInstalled(
            f"keras-applications cannot be imported: {error}", next=f"pip install {_PACKAGE}"
        ) from None
    backend = SimpleNamespace(  # functions that Keras 3's lacks or has renamed
        backend=lambda: "tensorflow",
        image_data_format=keras.config.image_data_format,
        int_shape=lambda tensor: tuple(tensor.shape),
    )
    modules = {"backend": backend, "layers": keras.layers, "models": keras.models, "utils": keras.utils}
    try:
        model = getattr(code, KERAS_APPLICATIONS[variant])(
            weights=None, classes=classes, input_shape=(*size, 3), **modules
        )
    except ValueError as error:
        raise UsageError(
            f"keras-applications cannot build {variant} at {size[0]}x{size[1]}: {error}"
        ) from None
    # so that it gives logits
    model.get_layer(_HEAD).activation = keras.activations.linear
    return model


def _runs_at_any_size(variant: str) -> bool:
    """Return False: a model has the size of each map in its Reshape layers."""
    return False


IMPLEMENTATION = Implementation(
    build_by("keras_applications", construct, _runs_at_any_size), _runs_at_any_size
)
