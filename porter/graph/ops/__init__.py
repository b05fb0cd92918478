"""The ops of a graph: what each computes, its shape rule, its tensors, and whether its values can be negative.

A value is a map, C×H×W, or features, C. Tensors are canonical: convolution kernels are (filters, channels / groups, rows,
columns), those of transposed convolutions (channels, filters / groups, rows, columns), dense kernels (units, features), everything
else a vector of channels.
"""

from __future__ import annotations

from collections.abc import Mapping

from porter.graph.ops.activations import (
    Clip,
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    PRelu,
    Relu,
    Relu6,
    Selu,
    Sigmoid,
    Softmax,
    Softplus,
    Softsign,
    Swish,
    Tanh,
    ThresholdedRelu,
)
from porter.graph.ops.joins import Add, Concat, Divide, Maximum, Merge, Minimum, Multiply
from porter.graph.ops.layers import USUAL_MOMENTUM, Affine, BatchNorm, ChannelScale, Dense, GroupNorm, LayerNorm, LocalResponseNorm
from porter.graph.ops.maps import (
    AsMap,
    ChannelShuffle,
    Crop,
    DepthToSpace,
    ExtendMap,
    Flatten,
    Identity,
    PadChannels,
    PadMap,
    SliceChannels,
    Upsample,
)
from porter.graph.ops.op import LARGER, MOST_CONSTANTS, Axis, Function, Mode, Op, Order, Shape, Tensors, shape_text
from porter.graph.ops.windows import AvgPool, Conv, ConvTranspose, GlobalAvgPool, GlobalMaxPool, MaxPool, Reduce, expect_groups

__all__ = [
    "LARGER",
    "MOST_CONSTANTS",
    "OPS",
    "USUAL_MOMENTUM",
    "Add",
    "Affine",
    "AsMap",
    "AvgPool",
    "Axis",
    "BatchNorm",
    "ChannelScale",
    "ChannelShuffle",
    "Clip",
    "Concat",
    "Conv",
    "ConvTranspose",
    "Crop",
    "Dense",
    "DepthToSpace",
    "Divide",
    "Elu",
    "ExtendMap",
    "Flatten",
    "Function",
    "Gelu",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "GroupNorm",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "LayerNorm",
    "LeakyRelu",
    "LocalResponseNorm",
    "MaxPool",
    "Maximum",
    "Merge",
    "Minimum",
    "Mode",
    "Multiply",
    "Op",
    "Order",
    "PRelu",
    "PadChannels",
    "PadMap",
    "Reduce",
    "Relu",
    "Relu6",
    "Selu",
    "Shape",
    "Sigmoid",
    "SliceChannels",
    "Softmax",
    "Softplus",
    "Softsign",
    "Swish",
    "Tanh",
    "Tensors",
    "ThresholdedRelu",
    "Upsample",
    "expect_groups",
    "shape_text",
]

OPS: Mapping[str, type[Op]] = {
    op.name: op
    for op in (
        *(Conv, ConvTranspose, MaxPool, AvgPool, GlobalAvgPool, GlobalMaxPool, Reduce),
        *(Dense, BatchNorm, LayerNorm, GroupNorm, LocalResponseNorm, ChannelScale, Affine),
        *(Relu, Relu6, ThresholdedRelu, Clip, LeakyRelu, PRelu, Elu, Selu, Sigmoid, Tanh, Softplus, Softsign, HardSigmoid),
        *(Swish, HardSwish, Gelu, Softmax),
        *(Add, Multiply, Divide, Maximum, Minimum, Concat),
        *(Identity, Flatten, AsMap, PadMap, ExtendMap, Crop, PadChannels, SliceChannels, ChannelShuffle, DepthToSpace, Upsample),
    )
}
"""Every op by its name. Each destination and each format has a table of those that it knows; a test compares them with this one."""
