"""How calls of torch's layers are written: which arguments stand by their places, and which are left out as
defaults.
"""

from __future__ import annotations

from collections.abc import Mapping

from porter.frameworks.code.own_layers import definitions
from porter.frameworks.torch.spellings import IN_PLACE
from porter.graph.blocks.parameters import PlainValue

NORMS = ("BatchNorm1d", "BatchNorm2d")
NORM_DEFAULTS: Mapping[str, PlainValue] = {"eps": 1e-5, "momentum": 0.1, "affine": True}

POSITIONAL: Mapping[str, tuple[str, ...]] = {
    "AdaptiveAvgPool2d": ("output_size",),
    "AddArray": ("sizes",),
    "AdaptiveMaxPool2d": ("output_size",),
    "Attention": ("heads",),
    "AvgPool2d": ("kernel_size",),
    "BatchNorm1d": ("num_features",),
    "BatchNorm2d": ("num_features",),
    "ChannelScale": ("channels",),
    "ChannelShuffle": ("groups",),
    "ConstantPad2d": ("padding", "value"),
    "Conv2d": ("in_channels", "out_channels", "kernel_size"),
    "ConvTranspose2d": ("in_channels", "out_channels", "kernel_size"),
    "CroppedConvTranspose2d": ("in_channels", "out_channels", "kernel_size"),
    "DepthToSpace": ("block",),
    "GroupNorm": ("num_groups", "num_channels"),
    "CropAxis": ("dim", "before", "after"),
    "CropLike": ("rows", "columns"),
    "Hardtanh": ("min_val", "max_val"),
    "Join": ("dim",),
    "LayerNorm": ("normalized_shape",),
    "LayerNorm2d": ("normalized_shape",),
    "LeakyReLU": ("negative_slope",),
    "Linear": ("in_features", "out_features"),
    "LocalResponseNorm": ("size",),
    "MaxPool2d": ("kernel_size",),
    "MultiplyArray": ("sizes",),
    "PadAxis": ("dim", "before", "after"),
    "PadLike": ("rows", "columns"),
    "PReLU": ("num_parameters",),
    "PaddedAvgPool2d": ("kernel_size", "stride", "padding"),
    "PixelShuffle": ("upscale_factor",),
    "PixelUnshuffle": ("downscale_factor",),
    "RMSNorm": ("normalized_shape",),
    "RMSNorm2d": ("normalized_shape",),
    "Rearrange": ("pattern",),
    "Reduce": ("function", "dim"),
    "Resize": ("mode", "coordinates"),
    "ResizeLike": ("mode", "align_corners"),
    "SameAvgPool2d": ("kernel_size", "stride"),
    "SamePad2d": ("kernel_size", "stride"),
    "SliceChannels": ("start", "stop"),
    "SpaceToDepth": ("block",),
    "Tokens": ("count", "width"),
    "Unflatten": ("dim", "unflattened_size"),
    "ZeroPad2d": ("padding",),
}

_WINDOW: Mapping[str, PlainValue] = {
    "padding": 0,
    "dilation": 1,
    "ceil_mode": False,
    "count_include_pad": True,
}
_CONV: Mapping[str, PlainValue] = {
    "stride": 1,
    "padding": 0,
    "output_padding": 0,
    "dilation": 1,
    "groups": 1,
    "bias": True,
}
_LAYER_NORM: Mapping[str, PlainValue] = {"eps": 1e-5, "elementwise_affine": True}
DEFAULTS: Mapping[str, Mapping[str, PlainValue]] = {
    **{key: {"inplace": False} for key in IN_PLACE},
    "Affine": {"scale": 1.0, "offset": 0.0},
    "AvgPool2d": _WINDOW,
    "BatchNorm1d": NORM_DEFAULTS,
    "BatchNorm2d": NORM_DEFAULTS,
    "ChannelScale": {"bias": False},
    "Conv2d": _CONV,
    "ConvTranspose2d": _CONV,
    "CroppedConvTranspose2d": _CONV,
    "CropAxis": {"step": 1},
    "ELU": {"alpha": 1.0, "inplace": False},
    "GELU": {"approximate": "none"},
    "GroupNorm": {"eps": 1e-5, "affine": True},
    "LayerNorm": _LAYER_NORM,
    "LayerNorm2d": _LAYER_NORM,
    "Linear": {"bias": True},
    "LocalResponseNorm": {"alpha": 1e-4, "beta": 0.75, "k": 1.0},
    "MatMul": {"transpose": False},
    "MaxPool2d": _WINDOW,
    "PadAxis": {"value": 0.0},
    "PaddedAvgPool2d": {"counted": (0, 0, 0, 0)},
    "RMSNorm": {"elementwise_affine": True},
    "RMSNorm2d": {"elementwise_affine": True},
    "Resize": {"cells": (), "rounding": "round_prefer_floor", "a": -0.75, "inside": False},
    "SameAvgPool2d": {"lower": False},
    "SamePad2d": {"dilation": 1, "lower": False, "value": 0.0},
    "SliceChannels": {"step": 1},
    "Upsample": {"mode": "nearest", "align_corners": False},
}
"""Torch's own defaults, and those of layers.py."""


OWN_LAYERS = definitions("porter.frameworks.torch", "layers.py", "resizing.py")
"""The text of each layer that torch.nn lacks, by its name; and of the functions that these call."""
