"""Keras's layers in porter's ops, one reader each. A reader raises Unsupported where porter has no op."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from porter.base.errors import some
from porter.base.left_out import LeftOut
from porter.filegraph.arithmetic import clip, combine
from porter.filegraph.dims import product
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.moves import concat, flatten, transpose
from porter.filegraph.walk import Read, apply, leave_out
from porter.formats.keras import arrays, norms
from porter.formats.keras.activations import activated, activation_name
from porter.formats.keras.classes import VARIABLES
from porter.formats.keras.config import is_foreign
from porter.formats.keras.flow import Call
from porter.formats.keras.layer import Layer, count, expect_kinds, number, whole
from porter.formats.keras.versions import COSINE, modern
from porter.formats.keras.windows import ROWS, WINDOWS, has_size, read_row, weights
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
_TRAINED = (IDENTITY_AT_INFERENCE | {"BatchNormalization", "SpectralNormalization"}) - {
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


def is_in_training(call: Call) -> bool:
    """Whether a call computes in inference what its layer computes in training.

    Keras 3 writes training=True for every call of an augmentation layer, because that is the argument's
    default, and its `predict` sets it to False (keras/src/models/functional.py, operation_fn).
    """
    return (
        call.training is True
        and call.kind in _TRAINED
        and not (call.given.keras3 and call.kind in AUGMENTATIONS)
    )


def read_layer(layer: Layer) -> Read:
    """What a layer is, without its `activation` argument if it is one of FUSING.

    Raises:
        Unsupported: porter has no op for the layer.
        PaddingError: its numbers make no window.
        ValueError: the config lacks an argument that the layer needs, or has a wrong one.
    """
    kind = layer.op
    if kind in IDENTITY_AT_INFERENCE and (kind != "RandomCrop" or has_size(layer)):
        if kind not in _TRAINED:
            return layer.walk.view(layer.source)
        rates = (layer.arguments.get(name) for name in ("rate", "stddev", "drop_path_rate"))
        rate = next((float(each) for each in rates if isinstance(each, int | float)), None)
        return leave_out(layer.walk, LeftOut(layer.name, kind, rate), layer.source)
    reader = _READERS.get(kind)
    if kind == "RandomCrop":
        raise Unsupported("that resizes in inference: call it with training=False and export the model")
    if reader is None:
        raise Unsupported("")
    if layer.arguments.get("data_format") not in (None, "channels_last") and kind != "Flatten":
        raise Unsupported("with channels first")
    if others := sorted(layer.tensors.keys() - _known(kind, layer.tensors)):
        # For example LoRA's, which the layer adds to its kernel (keras/src/layers/core/dense.py, `kernel`).
        raise Unsupported(f"that also has {some(others)}")
    expect_kinds(layer.arguments)
    return reader(layer)


def _known(kind: str, held: Collection[str]) -> Collection[str]:
    """The variables that a class may have; all that are `held` if their names say nothing."""
    if kind.startswith("DepthwiseConv"):
        return (*VARIABLES[kind], "kernel")  # Keras 3's name
    return VARIABLES.get(kind, held) if kind != "LayerScale" else held


def holds_tensors(kind: str) -> bool:
    """Whether layers of a class may have tensors; layers of an unknown class may."""
    return kind in VARIABLES or kind not in _READERS.keys() | IDENTITY_AT_INFERENCE | {"InputLayer"}


def _flatten(layer: Layer) -> Read:
    """Of channels first, these come last (keras/src/layers/reshaping/flatten.py, `call`)."""
    view, sizes = layer.walk.view(layer.source), layer.walk.sizes(layer.source) or ()
    if layer.arguments.get("data_format") != "channels_first" or len(sizes) < 3:
        return flatten(layer.walk, layer, layer.source, 1)
    turned = view.transposed([0, *range(2, len(sizes)), 1])
    return turned.reshaped([sizes[0], product(sizes[1:])])


def _dense(layer: Layer) -> Read:
    tensors = weights(layer, layer.tensor("kernel", "IO"))
    view = layer.walk.by_cell(layer.source)
    return layer.walk.views.like(
        view, layer.build.dense(layer.name, view.value, count(layer.arguments["units"]), tensors)
    )


def _relu(layer: Layer) -> Read:
    # Every Keras writes it, but a user's class with that name in an .h5 may not.
    if "max_value" not in layer.arguments:
        raise Unsupported("that is not Keras's own")
    slope, most = number(layer.arguments.get("negative_slope") or 0), layer.arguments["max_value"]
    threshold = number(layer.arguments.get("threshold") or 0)
    if threshold and (slope or most is not None):
        raise Unsupported(f"with threshold {threshold:g} and another bound or slope")
    if threshold:
        return apply(layer.walk, layer, layer.source, ops.ThresholdedRelu(threshold))
    high = np.inf if most is None else number(most)
    if not slope:
        return clip(layer.walk, layer, layer.source, 0.0, high)
    bound = [] if most is None else [ops.Clip(-LARGEST_FLOAT32, high)]
    return apply(layer.walk, layer, layer.source, ops.LeakyRelu(slope), *bound)


def read_activation(layer: Layer) -> Read:
    """The `activation` argument: a name, or since Keras 3 a layer that is an activation.

    Raises:
        Unsupported: porter has no op for it.
    """
    stated = layer.arguments.get("activation")
    name = activation_name(stated)
    if name == "linear":
        return layer.walk.view(layer.source)
    if name is not None:
        try:
            return activated(replace(layer, op=name, arguments={}))
        except Unsupported as error:
            raise Unsupported(f"with activation '{name:.60}' {error}") from error
    config = stated.get("config") if isinstance(stated, dict) else stated
    if (
        isinstance(stated, dict)
        and isinstance(config, dict)
        and str(stated["class_name"]) in _AS_ACTIVATIONS
        and not is_foreign(stated)
    ):
        kind, arguments = modern(stated["class_name"], config)
        return read_layer(replace(layer, op=kind, arguments=arguments, tensors={}))
    raise Unsupported(f"with activation of the user's own: {config!r:.60}")


def _named(name: str) -> Callable[[Layer], Read]:
    return lambda layer: activated(replace(layer, op=name))


def _combined(kind: str) -> Callable[[Layer], Read]:
    return lambda layer: combine(layer.walk, layer, kind, layer.inputs)


def _custom_scale(layer: Layer) -> Read:
    """Inception-ResNet's own layer: the first value, and the second one scaled."""
    if layer.arguments.keys() - {"name", "trainable", "dtype"} != {"scale"} or len(layer.inputs) != 2:
        raise Unsupported("that is not keras.applications' own")
    first, second = layer.walk.values(layer.inputs)
    scaled = layer.build.affine(f"{layer.name}:scaled", second, (number(layer.arguments["scale"]),), (0.0,))
    return layer.build.add(layer.name, ops.Add(), first, scaled)


def _layer_scale(layer: Layer) -> Read:
    """ConvNeXt's own layer."""
    if not {"init_values", "projection_dim"} <= layer.arguments.keys() or len(layer.tensors) != 1:
        raise Unsupported("that is not keras.applications' own")
    return layer.each(ops.ChannelScale(), gamma=layer.tensor(*layer.tensors))


_AS_ACTIVATIONS = frozenset({"ELU", "LeakyReLU", "ReLU", "Softmax"})
SEVERAL = frozenset(
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
"""Layers of several values."""
_READERS: Mapping[str, Callable[[Layer], Read]] = {
    **WINDOWS,
    **dict.fromkeys(ROWS, read_row),
    "Activation": read_activation,
    "Add": _combined("Add"),
    "Attention": arrays.read_plain_attention,
    "Average": _combined("Mean"),
    "BatchNormalization": norms.read_batch_norm,
    "Concatenate": lambda layer: concat(
        layer.walk, layer, layer.inputs, whole(layer.arguments.get("axis", -1))
    ),
    "CustomScaleLayer": _custom_scale,
    COSINE: arrays.read_cosine,
    "Dense": _dense,
    "Dot": arrays.read_dot,
    "ELU": _named("elu"),
    "EinsumDense": arrays.read_einsum,
    "Flatten": _flatten,
    "GlobalAveragePooling1D": partial(arrays.read_pool, "mean"),
    "GlobalMaxPooling1D": partial(arrays.read_pool, "max"),
    "GroupNormalization": norms.read_group_norm,
    "LayerNormalization": norms.read_layer_norm,
    "LayerScale": _layer_scale,
    "LeakyReLU": lambda layer: apply(
        layer.walk, layer, layer.source, ops.LeakyRelu(number(layer.arguments.get("negative_slope", 0.3)))
    ),
    "Maximum": _combined("Max"),
    "Minimum": _combined("Min"),
    "MultiHeadAttention": arrays.read_attention,
    "Multiply": _combined("Mul"),
    "Normalization": norms.read_normalization,
    "PReLU": norms.read_prelu,
    "Permute": lambda layer: transpose(layer.walk, layer, layer.source, [0, *layer.arguments["dims"]]),
    "RMSNormalization": norms.read_rms_norm,
    "ReLU": _relu,
    "Rescaling": norms.read_rescaling,
    "Reshape": lambda layer: layer.reshaped(layer.arguments["target_shape"]),
    "Softmax": _named("softmax"),
    "Subtract": _combined("Sub"),
    "UnitNormalization": norms.read_unit_norm,
}
