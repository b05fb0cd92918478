"""The function of one Keras layer in porter's ops, from its config and its variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from porter.errors import PaddingError
from porter.filegraph.file_graph import Foreign, OutputActivation
from porter.formats.keras.flow import Call
from porter.formats.keras.layer import Layer, Step, count, flag
from porter.formats.keras.scaling import normalization, rescaling
from porter.formats.keras.versions import OPERATION
from porter.formats.keras.windows import convolution, pool
from porter.graph import (
    Add,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    GlobalAvgPool,
    GlobalMaxPool,
    Relu,
    Relu6,
)

AUGMENTATIONS = frozenset(
    {
        *("AugMix", "CutMix", "Equalization", "MixUp", "RandAugment", "Solarization"),
        *("RandomBrightness", "RandomColorDegeneration", "RandomColorJitter", "RandomContrast", "RandomCrop"),
        *("RandomElasticTransform", "RandomErasing", "RandomFlip", "RandomGaussianBlur", "RandomGrayscale", "RandomHeight"),
        *("RandomHue", "RandomInvert", "RandomPerspective", "RandomPosterization", "RandomRotation", "RandomSaturation"),
        *("RandomSharpness", "RandomShear", "RandomTranslation", "RandomWidth", "RandomZoom"),
    }
)
IDENTITY_AT_INFERENCE = AUGMENTATIONS | {
    *("ActivityRegularization", "AlphaDropout", "Dropout", "GaussianDropout", "GaussianNoise", "Identity"),
    *("SpatialDropout1D", "SpatialDropout2D"),
}
"""Layers that give their input back outside of training; RandomCrop only if the size is right (`_changes_size`)."""
_TRAINED = frozenset({*IDENTITY_AT_INFERENCE, "BatchNormalization"}) - {"ActivityRegularization", "Identity"}
"""Layers that compute another function when they are called with training=True."""

_ROLES: Mapping[str, str] = {
    "kernel": "kernel",
    "depthwise_kernel": "kernel",
    "bias": "bias",
    "gamma": "gamma",
    "beta": "beta",
    "moving_mean": "mean",
    "moving_variance": "variance",
}
"""A variable's role in porter.graph."""
_WITH_ROLES = frozenset({"BatchNormalization", "Conv2D", "Dense", "DepthwiseConv2D"})
"""Layers whose variables porter knows, each by its role."""


def is_in_training(call: Call) -> bool:
    """Whether a call computes in inference what its layer computes in training.

    Keras 3 writes training=True for every call of an augmentation layer, because that is the argument's default, and its `predict`
    sets it to False (keras/src/models/functional.py, operation_fn).
    """
    return call.training is True and call.kind in _TRAINED and not (call.given.keras3 and call.kind in AUGMENTATIONS)


def activation_step(value: Any) -> Step | None:
    """The step that an `activation` argument names; None where it does nothing.

    Keras 3 writes its own activations as texts, and a user's function as an object. Before Keras had a `relu6`, it was an
    activation of keras.applications.mobilenet (Keras 2.0.6 to 2.2.0).
    """
    if value is None:
        return None
    if not isinstance(value, str):
        name = value.get("config") if isinstance(value, dict) else None
        return Foreign(f"activation of the user's own: {name!r:.60}")
    name = value.removeprefix("keras.applications.mobilenet.").removeprefix("keras.activations.")
    steps: dict[str, Step | None] = {
        "linear": None,
        "relu": Relu(),
        "relu6": Relu6(),
        "softmax": OutputActivation("softmax"),
        "sigmoid": OutputActivation("sigmoid"),
    }
    return steps[name] if name in steps else Foreign(f"activation '{name:.60}'")


def layer_step(layer: Layer) -> Step | None:
    """The step that a layer computes before its activation; None where it gives its input back.

    Raises:
        ValueError, TypeError, KeyError: the config lacks an argument that the layer needs, or has a wrong one.
    """
    if layer.kind in IDENTITY_AT_INFERENCE and not _changes_size(layer):
        return None
    maker = _MAKERS.get(layer.kind)
    if maker is None:
        return Foreign(layer.kind)
    if layer.arguments.get("data_format") not in (None, "channels_last"):
        return Foreign(f"{layer.kind} with channels first")
    if layer.kind in _WITH_ROLES and (others := sorted(layer.variables.keys() - _ROLES.keys())):
        # For example LoRA's, which the layer adds to its kernel (keras/src/layers/core/dense.py, `kernel`).
        return Foreign(f"{layer.kind} that also has {', '.join(others)[:80]}")
    try:
        return maker(layer)
    except PaddingError as error:
        return Foreign(f"{layer.kind} with {error.message}")


def layer_roles(variables: Iterable[str], step: Step | None) -> dict[str, str]:
    """Role to variable, for a layer's variables by name. Where porter.graph has no roles for them, the names are the roles."""
    if isinstance(step, Conv | Dense | BatchNorm):
        return {_ROLES[name]: name for name in variables if name in _ROLES}
    return {name: name for name in variables}


def _changes_size(layer: Layer) -> bool:
    """Whether a RandomCrop, which crops the middle outside of training, gives another size than its input's."""
    return layer.kind == "RandomCrop" and (layer.arguments["height"], layer.arguments["width"]) != layer.shape.size


def _dense(layer: Layer) -> Step:
    bias = flag(layer.arguments, "use_bias")
    if not layer.shape.per_channel:
        return Foreign(f"Dense over a {layer.shape} map")
    if "kernel" not in layer.variables or (bias and "bias" not in layer.variables):
        return Foreign("Dense without its weights in the file")
    return Dense(count(layer.arguments["units"]), bias)


def _batch_norm(layer: Layer) -> Step:
    axis = layer.arguments.get("axis", -1)
    if axis not in (-1, 1 if layer.shape.flat else 3):
        return Foreign(f"BatchNormalization over axis {axis!r:.20}")
    if layer.arguments.get("renorm"):
        return Foreign("BatchNormalization with renorm")
    if layer.arguments.get("mode", 0) != 0:
        return Foreign(f"BatchNormalization in Keras 1's mode {layer.arguments['mode']!r:.20}")
    scale, center = flag(layer.arguments, "scale"), flag(layer.arguments, "center")
    wanted = {"gamma": scale, "beta": center, "moving_mean": True, "moving_variance": True}
    if any(name not in layer.variables for name, needed in wanted.items() if needed):
        return Foreign("BatchNormalization without its weights in the file")
    # Rounded, because 1 - 0.999 is not 0.001 in binary.
    return BatchNorm(float(layer.arguments["epsilon"]), round(1 - float(layer.arguments.get("momentum", 0.99)), 12), scale, center)


def _global_pool(layer: Layer) -> Step:
    return GlobalAvgPool() if layer.kind == "GlobalAveragePooling2D" else GlobalMaxPool()


def _relu(layer: Layer) -> Step:
    if "max_value" not in layer.arguments:  # every Keras writes it, but a user's class with that name in an .h5 may not
        return Foreign("ReLU that is not Keras's own")
    most = layer.arguments["max_value"]
    others = {"max_value": most not in (None, 6)} | {
        name: bool(layer.arguments.get(name)) for name in ("negative_slope", "threshold")
    }
    if any(others.values()):
        said = ", ".join(f"{name} {layer.arguments[name]!r:.20}" for name, unusual in others.items() if unusual)
        return Foreign(f"ReLU with {said}")
    return Relu() if most is None else Relu6()


def _activation(layer: Layer) -> Step | None:
    return activation_step(layer.arguments["activation"])


def _softmax(layer: Layer) -> Step:
    axis = layer.arguments.get("axis", -1)
    return OutputActivation("softmax") if axis in (-1, 1 if layer.shape.flat else 3) else Foreign(f"Softmax over axis {axis!r:.20}")


def _merge(layer: Layer) -> Step:
    if layer.kind == "Add":
        return Add()
    axis = layer.arguments.get("axis", -1)
    return Concat() if axis in (-1, 1 if layer.shape.flat else 3) else Foreign(f"Concatenate over axis {axis!r:.20}")


def _reshape(layer: Layer) -> Step | None:
    return None if layer.shape.per_channel else Foreign(f"{layer.kind} of a {layer.shape} map")


def _resize(layer: Layer) -> Step | None:
    """Resizing and CenterCrop give their input back if it has their size."""
    size = (layer.arguments["height"], layer.arguments["width"])
    return None if size == layer.shape.size else Foreign(f"{layer.kind} to {size[0]}x{size[1]}")


def _rescaling(layer: Layer) -> Step:
    return rescaling(layer.arguments)


def _normalization(layer: Layer) -> Step:
    return normalization(layer.arguments, layer.shape.flat, layer.variables)


_Maker = Callable[[Layer], Step | None]
_MAKERS: Mapping[str, _Maker] = {
    "Conv2D": convolution,
    "DepthwiseConv2D": convolution,
    "Dense": _dense,
    "BatchNormalization": _batch_norm,
    "MaxPooling2D": pool,
    "AveragePooling2D": pool,
    "GlobalAveragePooling2D": _global_pool,
    "GlobalMaxPooling2D": _global_pool,
    "ReLU": _relu,
    "Activation": _activation,
    "Softmax": _softmax,
    "Add": _merge,
    "Concatenate": _merge,
    "Flatten": _reshape,
    "Reshape": _reshape,
    "Resizing": _resize,
    "CenterCrop": _resize,
    "Rescaling": _rescaling,
    "Normalization": _normalization,
}
_WITHOUT_TENSORS = (
    frozenset({*_MAKERS, *IDENTITY_AT_INFERENCE, "InputLayer", "TFOpLambda", "ZeroPadding2D"}) - _WITH_ROLES - {"Normalization"}
)


def holds_tensors(kind: str) -> bool:
    """Whether layers of a class may have tensors; layers of an unknown class may."""
    return kind not in _WITHOUT_TENSORS and not kind.startswith(OPERATION)
