"""Keras's layers: their variables, and those of their arguments that say what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from porter.formats.keras.config import snake_case


class LayerClass(NamedTuple):
    """A class in keras.layers.

    Attributes:
        arguments: those that are taken from a config where the layer is run.
        variables: in the order in which the class makes them. A bias comes last, so a layer without one has
            one less.
    """

    arguments: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


_WINDOW = ("strides", "padding", "data_format")
_CONVOLUTION = (*_WINDOW, "kernel_size", "dilation_rate", "use_bias")
_AFFINE = ("axis", "epsilon", "scale", "center")
_NORM, _WEIGHTS = ("gamma", "beta"), ("kernel", "bias")
_DEPTHWISE, _SEPARABLE = ("depthwise_kernel", "bias"), ("depthwise_kernel", "pointwise_kernel", "bias")
CLASSES: Mapping[str, LayerClass] = {
    "Attention": LayerClass(("use_scale", "score_mode")),
    **{
        f"{kind}{axes}": LayerClass((*_WINDOW, "pool_size"))
        for kind in ("AveragePooling", "MaxPooling")
        for axes in ("1D", "2D")
    },
    **{
        f"Adaptive{kind}Pooling{axes}": LayerClass(("output_size", "data_format"))
        for kind in ("Average", "Max")
        for axes in ("1D", "2D")
    },
    "CenterCrop": LayerClass(("height", "width", "data_format")),
    "BatchNormalization": LayerClass((*_AFFINE, "momentum"), (*_NORM, "moving_mean", "moving_variance")),
    "Concatenate": LayerClass(("axis",)),
    **{f"Conv{axes}": LayerClass((*_CONVOLUTION, "filters", "groups"), _WEIGHTS) for axes in ("1D", "2D")},
    **{
        f"Conv{axes}Transpose": LayerClass((*_CONVOLUTION, "filters", "output_padding"), _WEIGHTS)
        for axes in ("1D", "2D")
    },
    "Cropping1D": LayerClass(("cropping",)),
    "Cropping2D": LayerClass(("cropping", "data_format")),
    "Dense": LayerClass(("units", "use_bias"), _WEIGHTS),
    **{
        f"DepthwiseConv{axes}": LayerClass((*_CONVOLUTION, "depth_multiplier"), ("depthwise_kernel", "bias"))
        for axes in ("1D", "2D")
    },
    "Dot": LayerClass(("axes", "normalize")),
    "ELU": LayerClass(("alpha",)),
    "Flatten": LayerClass(("data_format",)),
    "GlobalAveragePooling1D": LayerClass(("data_format", "keepdims")),
    "GlobalAveragePooling2D": LayerClass(("data_format", "keepdims")),
    "GlobalMaxPooling1D": LayerClass(("data_format", "keepdims")),
    "GlobalMaxPooling2D": LayerClass(("data_format", "keepdims")),
    "GroupNormalization": LayerClass((*_AFFINE, "groups"), _NORM),
    "LayerNormalization": LayerClass(_AFFINE, _NORM),
    "Maximum": LayerClass(),
    "Minimum": LayerClass(),
    "MultiHeadAttention": LayerClass(
        ("num_heads", "key_dim", "value_dim", "use_bias", "output_shape", "attention_axes"),
        tuple(f"{part}/{name}" for part in ("query", "key", "value", "output") for name in _WEIGHTS),
    ),
    "Multiply": LayerClass(),
    "Normalization": LayerClass(("axis", "invert"), ("mean", "variance", "count")),
    "PReLU": LayerClass(("shared_axes",), ("alpha",)),
    "Permute": LayerClass(("dims",)),
    "RMSNormalization": LayerClass(("axis", "epsilon"), ("scale",)),
    "Rescaling": LayerClass(),
    "Reshape": LayerClass(("target_shape",)),
    "Resizing": LayerClass(
        (
            "height",
            "width",
            "interpolation",
            "data_format",
            "crop_to_aspect_ratio",
            "pad_to_aspect_ratio",
            "fill_value",
        )
    ),
    **{
        f"SeparableConv{axes}": LayerClass((*_CONVOLUTION, "filters", "depth_multiplier"), _SEPARABLE)
        for axes in ("1D", "2D")
    },
    "Softmax": LayerClass(("axis",)),
    "Subtract": LayerClass(),
    "UnitNormalization": LayerClass(("axis",)),
    "UpSampling1D": LayerClass(("size",)),
    "UpSampling2D": LayerClass(("size", "interpolation", "data_format")),
    "ZeroPadding1D": LayerClass(("padding",)),
    "ZeroPadding2D": LayerClass(("padding", "data_format")),
}
"""The classes that are built where a file is run; none of them runs code from it."""
VARIABLES: Mapping[str, tuple[str, ...]] = {
    **{kind: known.variables for kind, known in CLASSES.items() if known.variables},
    "EinsumDense": _WEIGHTS,
    "LayerScale": ("gamma",),  # keras.applications' own; a whole model calls it as Keras happens to number it
}
"""The variables that porter knows, of the layers that have any."""
COUNTED = {
    **{snake_case(kind): names for kind, names in VARIABLES.items()},
    **{
        f"{before}{part}_dense": _WEIGHTS
        for part in ("query", "key", "value", "output")
        for before in ("", "_")
    },
}
"""The same by the words with which Keras counts layers, and those of the layers in a MultiHeadAttention."""
