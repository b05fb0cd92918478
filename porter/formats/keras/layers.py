"""Keras's layers in porter's ops, one reader each. A reader raises NoOp where porter has no op."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from porter.base.left_out import LeftOut
from porter.filegraph.arithmetic import clip, combine
from porter.filegraph.builder import LARGEST_FLOAT32, Value
from porter.filegraph.file_graph import Stored
from porter.filegraph.moves import concat, flatten, transpose
from porter.filegraph.walk import NoOp, Read, apply, leave_out
from porter.formats.keras import arrays, norms
from porter.formats.keras.activations import activated, activation_name
from porter.formats.keras.classes import VARIABLES
from porter.formats.keras.config import is_foreign
from porter.formats.keras.flow import Call
from porter.formats.keras.layer import Layer, count, number, pair
from porter.formats.keras.resizing import resize_of
from porter.formats.keras.versions import COSINE, modern
from porter.graph import ops
from porter.padding import LOWEST, Convention, Pads, Window

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
    *("SpatialDropout1D", "SpatialDropout2D", "StochasticDepth"),
}
"""Layers that give their input back outside of training; RandomCrop only if its input has its size. StochasticDepth is
keras.applications' own."""
_TRAINED = (IDENTITY_AT_INFERENCE | {"BatchNormalization", "SpectralNormalization"}) - {"ActivityRegularization", "Identity"}
"""Layers that compute another function when they are called with training=True."""
FUSING = frozenset({"Conv2D", "Conv2DTranspose", "Dense", "DepthwiseConv2D", "EinsumDense", "SeparableConv2D"})
"""Layers that also have an `activation` argument."""


def is_in_training(call: Call) -> bool:
    """Whether a call computes in inference what its layer computes in training.

    Keras 3 writes training=True for every call of an augmentation layer, because that is the argument's default, and its `predict`
    sets it to False (keras/src/models/functional.py, operation_fn).
    """
    return call.training is True and call.kind in _TRAINED and not (call.given.keras3 and call.kind in AUGMENTATIONS)


def read_layer(layer: Layer) -> Read:
    """What a layer is, without its `activation` argument if it is one of FUSING.

    Raises:
        NoOp: porter has no op for the layer.
        PaddingError: its numbers make no window.
        ValueError, TypeError: the config lacks an argument that the layer needs, or has a wrong one.
    """
    kind = layer.op
    if kind in IDENTITY_AT_INFERENCE and (kind != "RandomCrop" or _has_size(layer)):
        if kind not in _TRAINED:
            return layer.walk.view(layer.source)
        rates = (layer.arguments.get(name) for name in ("rate", "stddev", "drop_path_rate"))
        rate = next((float(each) for each in rates if isinstance(each, int | float)), None)
        return leave_out(layer.walk, LeftOut(layer.name, kind, rate), layer.source)
    reader = _READERS.get(kind)
    if kind == "RandomCrop":
        raise NoOp("RandomCrop, which resizes in inference: call it with training=False and export the model")
    if reader is None:
        raise NoOp(kind)
    if layer.arguments.get("data_format") not in (None, "channels_last"):
        raise NoOp(f"{kind} with channels first")
    if others := sorted(layer.tensors.keys() - _known(kind, layer.tensors)):
        # For example LoRA's, which the layer adds to its kernel (keras/src/layers/core/dense.py, `kernel`).
        raise NoOp(f"{kind} that also has {', '.join(others)[:80]}")
    return reader(layer)


def _known(kind: str, held: Collection[str]) -> Collection[str]:
    """The variables that a class may have; all that are `held` if their names say nothing."""
    if kind == "DepthwiseConv2D":
        return (*VARIABLES[kind], "kernel")  # Keras 3's name
    return VARIABLES.get(kind, held) if kind != "LayerScale" else held


def holds_tensors(kind: str) -> bool:
    """Whether layers of a class may have tensors; layers of an unknown class may."""
    return kind in VARIABLES or kind not in _READERS.keys() | IDENTITY_AT_INFERENCE | {"InputLayer"}


def _has_size(layer: Layer) -> bool:
    """Whether the input has the size that a layer crops or resizes it to."""
    size = layer.input.shape[1:] if layer.input.shape else None
    return (layer.arguments["height"], layer.arguments["width"]) == size


def _window(layer: Layer, kernel: str, strides: Any) -> Window:
    stride = layer.arguments.get("strides") or strides
    return Window(pair(layer.arguments[kernel]), pair(stride), pair(layer.arguments.get("dilation_rate") or 1))


def _convention(layer: Layer, fill: float = 0.0) -> Convention:
    rule = layer.arguments.get("padding", "valid")
    if rule not in ("valid", "same"):
        raise NoOp(f"{layer.op} with padding {rule!r:.40}")
    return Convention(rule, fill=fill)


def _weights(layer: Layer, kernel: Stored) -> dict[str, Stored]:
    return {"kernel": kernel, **({"bias": layer.tensor("bias")} if layer.flag("use_bias") else {})}


def _conv(layer: Layer) -> Read:
    tensors = _weights(layer, layer.tensor("kernel", "HWIO"))
    window, groups = _window(layer, "kernel_size", 1), count(layer.arguments.get("groups", 1))
    op = ops.Conv(count(layer.arguments["filters"]), window, _convention(layer), groups)
    return layer.build.conv(layer.name, layer.input, op, tensors)


def _depthwise(layer: Layer) -> Read:
    """The kernel's shape has the number of channels. Keras 3 calls it `kernel`."""
    kernel = "depthwise_kernel" if "depthwise_kernel" in layer.tensors else "kernel"
    return _by_channel(layer, layer.name, _weights(layer, layer.tensor(kernel, "HWIM")), layer.arrays[kernel].shape)


def _by_channel(layer: Layer, name: str, tensors: Mapping[str, Stored], shape: tuple[int, ...]) -> Value:
    if len(shape) != 4:
        raise NoOp(f"{layer.op} without its weights in the file")
    filters = shape[2] * count(layer.arguments.get("depth_multiplier", 1))
    op = ops.Conv(filters, _window(layer, "kernel_size", 1), _convention(layer), shape[2])
    return layer.build.conv(name, layer.input, op, tensors)


def _separable(layer: Layer) -> Read:
    depthwise, tensors = layer.tensor("depthwise_kernel", "HWIM"), _weights(layer, layer.tensor("pointwise_kernel", "HWIO"))
    between = _by_channel(layer, f"{layer.name}:depthwise", {"kernel": depthwise}, layer.arrays["depthwise_kernel"].shape)
    op = ops.Conv(count(layer.arguments["filters"]), Window((1, 1)), Convention())
    return layer.build.conv(layer.name, between, op, tensors)


def _transposed(layer: Layer) -> Read:
    """Keras's transposed convolution: the gradient of a convolution whose input has the size that `_cut` leaves."""
    window, convention = _window(layer, "kernel_size", 1), _convention(layer)
    groups, more = layer.arguments.get("groups", 1), layer.arguments.get("output_padding")
    if window.dilation != (1, 1) or groups != 1:
        raise NoOp(f"{layer.op} with groups or a dilation")
    extra = (None, None) if more is None else pair(more)
    cuts = [_cut(convention.rule == "same", *sizes) for sizes in zip(window.kernel, window.stride, extra, strict=True)]
    tensors = _weights(layer, layer.tensor("kernel", "HWIO"))
    filters = count(layer.arguments["filters"])
    return layer.add(ops.ConvTranspose(filters, window, (*cuts[0], *cuts[1]), bias="bias" in tensors), **tensors)


def _cut(same: bool, kernel: int, stride: int, more: int | None) -> tuple[int, int]:
    """Cells that are cut at both ends (keras/src/backend/common/backend_utils.py, _get_output_shape_given_tf_padding)."""
    stated = None if more is None else (2 * (kernel // 2) if same else 0) - more
    less = stated if stated is not None else kernel - stride if same else min(kernel - stride, 0)
    first = max(less, 0) // 2 if same else 0
    return first, less - first


def _pool(layer: Layer) -> Read:
    largest = layer.op == "MaxPooling2D"
    window, convention = _window(layer, "pool_size", layer.arguments["pool_size"]), _convention(layer, LOWEST if largest else 0.0)
    return layer.build.pool(layer.name, layer.input, "max" if largest else "mean", window, convention)


def _global_pool(layer: Layer) -> Read:
    keep = bool(layer.arguments.get("keepdims"))
    return layer.add(ops.GlobalAvgPool(keep) if layer.op == "GlobalAveragePooling2D" else ops.GlobalMaxPool(keep))


def _dense(layer: Layer) -> Read:
    tensors = _weights(layer, layer.tensor("kernel", "IO"))
    view = layer.walk.by_cell(layer.source)
    return layer.walk.views.like(view, layer.build.dense(layer.name, view.value, count(layer.arguments["units"]), tensors))


def _relu(layer: Layer) -> Read:
    if "max_value" not in layer.arguments:  # every Keras writes it, but a user's class with that name in an .h5 may not
        raise NoOp("ReLU that is not Keras's own")
    slope, most = number(layer.arguments.get("negative_slope") or 0), layer.arguments["max_value"]
    threshold = number(layer.arguments.get("threshold") or 0)
    if threshold and (slope or most is not None):
        raise NoOp(f"ReLU with threshold {threshold:g} and another bound or slope")
    if threshold:
        return apply(layer.walk, layer, layer.source, ops.ThresholdedRelu(threshold))
    high = np.inf if most is None else number(most)
    if not slope:
        return clip(layer.walk, layer, layer.source, 0.0, high)
    bound = [] if most is None else [ops.Clip(-LARGEST_FLOAT32, high)]
    return apply(layer.walk, layer, layer.source, ops.LeakyRelu(slope), *bound)


def _leaky(layer: Layer) -> Read:
    return apply(layer.walk, layer, layer.source, ops.LeakyRelu(number(layer.arguments.get("negative_slope", 0.3))))


def read_activation(layer: Layer) -> Read:
    """The `activation` argument: a name, or since Keras 3 a layer that is an activation.

    Raises:
        NoOp: porter has no op for it.
    """
    stated = layer.arguments.get("activation")
    name = activation_name(stated)
    if name == "linear":
        return layer.walk.view(layer.source)
    if name is not None:
        return activated(replace(layer, op=name, arguments={}))
    config = stated.get("config") if isinstance(stated, dict) else stated
    if isinstance(stated, dict) and isinstance(config, dict) and stated["class_name"] in _AS_ACTIVATIONS and not is_foreign(stated):
        kind, arguments = modern(stated["class_name"], config)
        return read_layer(replace(layer, op=kind, arguments=arguments, tensors={}))
    raise NoOp(f"activation of the user's own: {config!r:.60}")


def _named(name: str) -> Callable[[Layer], Read]:
    return lambda layer: activated(replace(layer, op=name))


def _combined(kind: str) -> Callable[[Layer], Read]:
    return lambda layer: combine(layer.walk, layer, kind, layer.inputs)


def _custom_scale(layer: Layer) -> Read:
    """Inception-ResNet's own layer: the first value, and the second one scaled."""
    if layer.arguments.keys() - {"name", "trainable", "dtype"} != {"scale"} or len(layer.inputs) != 2:
        raise NoOp("CustomScaleLayer that is not keras.applications' own")
    first, second = layer.walk.values(layer.inputs)
    scaled = layer.build.affine(f"{layer.name}:scaled", second, (number(layer.arguments["scale"]),), (0.0,))
    return layer.build.add(layer.name, ops.Add(), first, scaled)


def _layer_scale(layer: Layer) -> Read:
    """ConvNeXt's own layer."""
    if not {"init_values", "projection_dim"} <= layer.arguments.keys() or len(layer.tensors) != 1:
        raise NoOp("LayerScale that is not keras.applications' own")
    return layer.each(ops.ChannelScale(), gamma=layer.tensor(*layer.tensors))


def sides(value: Any) -> Pads:
    """Top, bottom, left, right of a ZeroPadding2D or Cropping2D: a number, (rows, columns), or ((top, bottom), (left, right)).

    Raises:
        PaddingError: they are not numbers of cells.
    """
    (top, bottom), (left, right) = (pair(side) for side in pair(value))
    return Convention("explicit", (top, bottom, left, right)).pads


def _resized(layer: Layer) -> Read:
    """UpSampling2D and Resizing."""
    shape = layer.input.shape or ()
    op = resize_of(layer.op, layer.arguments, (shape[1], shape[2]) if len(shape) == 3 else (None, None))
    if op is None:
        return layer.walk.view(layer.source)
    if op.mode == "nearest" and op.scale:
        return layer.add(ops.Upsample(int(op.scale[0]), int(op.scale[1])))
    return layer.add(op)


def _center_crop(layer: Layer) -> Read:
    """CenterCrop gives its input back if it has its size."""
    if not _has_size(layer):
        raise NoOp("{} to {}x{}".format(layer.op, layer.arguments["height"], layer.arguments["width"]))
    return layer.walk.view(layer.source)


_AS_ACTIVATIONS = frozenset({"ELU", "LeakyReLU", "ReLU", "Softmax"})
SEVERAL = frozenset(
    {
        *("Add", "Attention", "Average", "Concatenate", "CustomScaleLayer", "Dot", COSINE),
        *("Maximum", "Minimum", "MultiHeadAttention", "Multiply", "Subtract"),
    }
)
"""Layers of several values."""
_READERS: Mapping[str, Callable[[Layer], Read]] = {
    "Activation": read_activation,
    "Add": _combined("Add"),
    "Attention": arrays.read_plain_attention,
    "Average": _combined("Mean"),
    "AveragePooling2D": _pool,
    "BatchNormalization": norms.read_batch_norm,
    "CenterCrop": _center_crop,
    "Concatenate": lambda layer: concat(layer.walk, layer, layer.inputs, layer.arguments.get("axis", -1)),
    "Conv2D": _conv,
    "Conv2DTranspose": _transposed,
    "Cropping2D": lambda layer: layer.add(ops.CropMap(sides(layer.arguments["cropping"]))),
    "CustomScaleLayer": _custom_scale,
    COSINE: arrays.read_cosine,
    "Dense": _dense,
    "DepthwiseConv2D": _depthwise,
    "Dot": arrays.read_dot,
    "ELU": _named("elu"),
    "EinsumDense": arrays.read_einsum,
    "Flatten": lambda layer: flatten(layer.walk, layer, layer.source, 1),
    "GlobalAveragePooling1D": partial(arrays.read_pool, "mean"),
    "GlobalAveragePooling2D": _global_pool,
    "GlobalMaxPooling1D": partial(arrays.read_pool, "max"),
    "GlobalMaxPooling2D": _global_pool,
    "GroupNormalization": norms.read_group_norm,
    "LayerNormalization": norms.read_layer_norm,
    "LayerScale": _layer_scale,
    "LeakyReLU": _leaky,
    "MaxPooling2D": _pool,
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
    "Resizing": _resized,
    "SeparableConv2D": _separable,
    "Softmax": _named("softmax"),
    "Subtract": _combined("Sub"),
    "UnitNormalization": norms.read_unit_norm,
    "UpSampling2D": _resized,
    "ZeroPadding2D": lambda layer: layer.build.pad(layer.name, layer.input, sides(layer.arguments.get("padding", 1))),
}
