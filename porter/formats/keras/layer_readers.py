"""Keras's layers in porter's ops, one reader each. A reader raises Unsupported where porter has no op."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from porter.base.errors import some
from porter.base.left_out import LeftOut
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.readers import call_with_inputs
from porter.filegraph.tensors.several import concat, merge_all
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.walk import leave_out
from porter.formats.keras import attention, norms, products
from porter.formats.keras.activations import activation_name, apply_activation
from porter.formats.keras.config import is_foreign
from porter.formats.keras.flow import LayerCall
from porter.formats.keras.layer_variables import VARIABLES
from porter.formats.keras.stated_layer import KerasLayer, Reader, count, expect_kinds, number, whole_number
from porter.formats.keras.versions import COSINE, modern
from porter.formats.keras.windows import ROWS, WINDOWS, is_already_of_size, kernel_and_bias, read_row
from porter.graph import ops
from porter.graph.ops import LARGEST_FLOAT32

AUGMENTATIONS = frozenset(
    {
        "AugMix",
        "CutMix",
        "Equalization",
        "MixUp",
        "RandAugment",
        "Solarization",
        "RandomBrightness",
        "RandomColorDegeneration",
        "RandomColorJitter",
        "RandomContrast",
        "RandomCrop",
        "RandomElasticTransform",
        "RandomErasing",
        "RandomFlip",
        "RandomGaussianBlur",
        "RandomGrayscale",
        "RandomHeight",
        "RandomHue",
        "RandomInvert",
        "RandomPerspective",
        "RandomPosterization",
        "RandomRotation",
        "RandomSaturation",
        "RandomSharpness",
        "RandomShear",
        "RandomTranslation",
        "RandomWidth",
        "RandomZoom",
    }
)
IDENTITY_AT_INFERENCE = AUGMENTATIONS | {
    "ActivityRegularization",
    "AlphaDropout",
    "Dropout",
    "GaussianDropout",
    "GaussianNoise",
    "Identity",
    "SpatialDropout1D",
    "SpatialDropout2D",
    "StochasticDepth",
}
"""Layers that give their input back outside of training; RandomCrop only if its input has its size.
StochasticDepth is keras.applications' own.
"""
_TRAINING_DEPENDENT = (IDENTITY_AT_INFERENCE | {"BatchNormalization", "SpectralNormalization"}) - {
    "ActivityRegularization",
    "Identity",
}
"""Layers that compute another function when they are called with training=True."""
_CONVOLUTIONS = ("Conv", "DepthwiseConv", "SeparableConv")
FUSING = frozenset(
    {"Dense", "EinsumDense", *(f"{kind}{axes}" for kind in _CONVOLUTIONS for axes in ("1D", "2D"))}
) | {
    "Conv1DTranspose",
    "Conv2DTranspose",
}
"""Layers that also have an `activation` argument."""


def is_in_training(call: LayerCall) -> bool:
    """Return whether a call computes in inference what its layer computes in training.

    Keras 3 writes training=True for every call of an augmentation layer, because that is the argument's
    default, and its `predict` sets it to False (keras/src/models/functional.py, operation_fn).
    """
    return (
        call.training is True
        and call.kind in _TRAINING_DEPENDENT
        and not (call.inbound.keras3 and call.kind in AUGMENTATIONS)
    )


def read_layer(layer: KerasLayer, *values: Tensor) -> Any:
    """Return what a layer gives, before its `activation` argument if it is one of FUSING. A layer that does
    nothing in inference gives its first value; one that trains otherwise, such as a dropout, is recorded as
    left out.

    Raises:
        Unsupported: porter has no op for the layer.
        PaddingError: its numbers make no window.
        ValueError: the config lacks an argument that the layer needs, or has a wrong one.
    """
    kind = layer.op
    x = values[0]
    if kind == "RandomCrop" and not is_already_of_size(layer, x):
        raise Unsupported("that resizes in inference: call it with training=False and export the model")
    if kind in IDENTITY_AT_INFERENCE:
        if kind not in _TRAINING_DEPENDENT:
            return x
        rates = (layer.arguments.get(name) for name in ("rate", "stddev", "drop_path_rate"))
        rate = next((float(stated) for stated in rates if isinstance(stated, int | float)), None)
        return leave_out(x.walk, LeftOut(layer.name, kind, rate), x.reference)
    reader = _READERS.get(kind)
    if reader is None:
        raise Unsupported("")
    if layer.arguments.get("data_format") not in (None, "channels_last") and kind != "Flatten":
        raise Unsupported("with channels first")
    if unknown := sorted(layer.tensors.keys() - _variables_of(kind, layer.tensors)):
        # For example LoRA's, which the layer adds to its kernel (keras/src/layers/core/dense.py, `kernel`).
        raise Unsupported(f"that also has {some(unknown)}")
    expect_kinds(layer.arguments)
    return call_with_inputs(reader, layer, *values)


def _variables_of(kind: str, present: Collection[str]) -> Collection[str]:
    """Return the variables that a class may have. Return all that are `present` for a class whose names are
    not known, and for LayerScale, whose only variable has any name.
    """
    if kind.startswith("DepthwiseConv"):
        return (*VARIABLES[kind], "kernel")  # Keras 3's name
    return VARIABLES.get(kind, present) if kind != "LayerScale" else present


def holds_tensors(kind: str) -> bool:
    """Return whether layers of a class may have tensors; layers of an unknown class may."""
    return kind in VARIABLES or kind not in _READERS.keys() | IDENTITY_AT_INFERENCE | {"InputLayer"}


def _read_flatten(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a Flatten; channels that come first are put last
    (keras/src/layers/reshaping/flatten.py, `call`).
    """
    if layer.arguments.get("data_format") != "channels_first" or x.rank < 3:
        return x.flatten(1)
    return x.transpose([0, *range(2, x.rank), 1]).flatten(1)


def _read_dense(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a Dense over the last axis, before its activation."""
    tensors = kernel_and_bias(layer, layer.stored("kernel", "IO"))
    return x.linear(count(layer.arguments["units"]), tensors)


def _read_relu(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a ReLU with a slope and a largest value, or with a threshold."""
    # Every Keras writes it, but a user's class with that name in an .h5 may not.
    if "max_value" not in layer.arguments:
        raise Unsupported("that is not Keras's own")
    slope = number(layer.arguments.get("negative_slope") or 0)
    max_value = layer.arguments["max_value"]
    threshold = number(layer.arguments.get("threshold") or 0)
    if threshold and (slope or max_value is not None):
        raise Unsupported(f"with threshold {threshold:g} and another bound or slope")
    if threshold:
        return x.apply_elementwise(ops.ThresholdedRelu(threshold))
    # A slope is for what is below 0, so there is no lower bound with it.
    high = np.inf if max_value is None else number(max_value)
    if not slope:
        return x.clip(0.0, high)
    bound = [] if max_value is None else [ops.Clip(-LARGEST_FLOAT32, high)]
    return x.apply_elementwise(ops.LeakyRelu(slope), *bound)


def read_activation(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a layer's `activation` argument for `x`: the argument is a name, or since Keras 3 a
    layer that is an activation.

    Raises:
        Unsupported: porter has no op for it.
    """
    argument = layer.arguments.get("activation")
    name = activation_name(argument)
    if name == "linear":
        return x
    if name is not None:
        return apply_activation(replace(layer, op=name, arguments={}), x).with_refusal_prefix(
            f"with activation '{name:.60}'"
        )
    # What is left is a layer of Keras's own, described as the model's layers are, or something of the user's.
    config = argument.get("config") if isinstance(argument, dict) else argument
    if (
        isinstance(argument, dict)
        and isinstance(config, dict)
        and str(argument["class_name"]) in _ACTIVATION_LAYERS
        and not is_foreign(argument)
    ):
        kind, arguments = modern(argument["class_name"], config)
        applied: Tensor = read_layer(replace(layer, op=kind, arguments=arguments, tensors={}), x)
        return applied
    raise Unsupported(f"with activation of the user's own: {config!r:.60}")


def _activation_reader(name: str) -> Reader:
    """Return a reader of layers that are the activation of this name."""
    return lambda layer, x: apply_activation(replace(layer, op=name), x)


def _merge_reader(kind: str) -> Reader:
    """Return a reader of layers that merge their values by this kind of op."""
    return lambda layer, *values: merge_all(kind, values)


def _read_custom_scale(layer: KerasLayer, x: Tensor, *further: Tensor) -> Tensor:
    """Return the value of Inception-ResNet's own layer: the sum of the first value and the second one
    scaled.
    """
    if layer.arguments.keys() - {"name", "trainable", "dtype"} != {"scale"} or len(further) != 1:
        raise Unsupported("that is not keras.applications' own")
    return x + number(layer.arguments["scale"]) * further[0]


def _read_layer_scale(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of a LayerScale, a layer that ConvNeXt brings with it."""
    if not {"init_values", "projection_dim"} <= layer.arguments.keys() or len(layer.tensors) != 1:
        raise Unsupported("that is not keras.applications' own")
    return x.apply_along([-1], ops.ChannelScale(), {"gamma": layer.stored(*layer.tensors)})


def _read_reshape(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value with other axes after the batch; one size may be -1, which is what is left."""
    sizes = layer.arguments["target_shape"]
    if not isinstance(sizes, list | tuple) or not all(type(size) is int for size in sizes):
        raise Unsupported(f"to {sizes!r:.40}")
    return x.reshape([x.sizes[0], *sizes])


def _read_permute(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value with its axes after the batch in another order, which count from 1."""
    dims = layer.arguments["dims"]
    if not isinstance(dims, list | tuple):
        raise Unsupported(f"to {dims!r:.40}")
    return x.transpose([0, *dims])


_ACTIVATION_LAYERS = frozenset({"ELU", "LeakyReLU", "ReLU", "Softmax"})
MERGES = frozenset(
    {
        "Add",
        "Attention",
        "Average",
        "Concatenate",
        "CustomScaleLayer",
        "Dot",
        COSINE,
        "Maximum",
        "Minimum",
        "MultiHeadAttention",
        "Multiply",
        "Subtract",
    }
)
"""Layers that read several values."""
_READERS: Mapping[str, Reader] = {
    **WINDOWS,
    **dict.fromkeys(ROWS, read_row),
    "Activation": read_activation,
    "Add": _merge_reader("Add"),
    "Attention": attention.read_plain_attention,
    "Average": _merge_reader("Mean"),
    "BatchNormalization": norms.read_batch_norm,
    "Concatenate": lambda layer, *values: concat(values, whole_number(layer.arguments.get("axis", -1))),
    "CustomScaleLayer": _read_custom_scale,
    COSINE: products.read_cosine,
    "Dense": _read_dense,
    "Dot": products.read_dot,
    "ELU": _activation_reader("elu"),
    "EinsumDense": products.read_einsum,
    "Flatten": _read_flatten,
    "GlobalAveragePooling1D": lambda layer, x: x.mean([1], layer.keeps_axes()),
    "GlobalMaxPooling1D": lambda layer, x: x.max([1], layer.keeps_axes()),
    "GroupNormalization": norms.read_group_norm,
    "LayerNormalization": norms.read_layer_norm,
    "LayerScale": _read_layer_scale,
    "LeakyReLU": lambda layer, x: x.apply_elementwise(
        ops.LeakyRelu(number(layer.arguments.get("negative_slope", 0.3)))
    ),
    "Maximum": _merge_reader("Max"),
    "Minimum": _merge_reader("Min"),
    "MultiHeadAttention": attention.read_attention,
    "Multiply": _merge_reader("Mul"),
    "Normalization": norms.read_normalization,
    "PReLU": norms.read_prelu,
    "Permute": _read_permute,
    "RMSNormalization": norms.read_rms_norm,
    "ReLU": _read_relu,
    "Rescaling": norms.read_rescaling,
    "Reshape": _read_reshape,
    "Softmax": _activation_reader("softmax"),
    "Subtract": _merge_reader("Sub"),
    "UnitNormalization": norms.read_unit_norm,
}
