"""Each op of a graph as a torch layer: a class of torch.nn, one of layers.py, or a function. Imports no
torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from porter.formats.torch_export.plain import PLAIN as ROWS, AtenRow
from porter.frameworks.code.layer_arguments import constants, padding_of_cut, pair
from porter.frameworks.code.plan_layers import Layer, plain
from porter.graph import Op, Shape, ops
from porter.graph.blocks.parameters import PlainValue
from porter.graph.ops import AXES, Function, Mode, channels_axis, channels_in, is_map
from porter.padding import Pads, Realisation, Window

_METHODS: Mapping[Function, str] = {"mean": "mean", "max": "amax", "norm": "norm"}
REDUCTIONS: Mapping[str, tuple[str, int]] = {
    f"{function}_{axis}": (method, dim)
    for function, method in _METHODS.items()
    for dim, axis in enumerate(AXES, 1)
}
"""Functions of one value over one of its axes: torch's method, and its `dim`."""
OF_NUMBERS = frozenset(
    {"abs", "exp", "log", "sqrt", "reciprocal", "sin", "cos", "sign", "floor", "ceil", "round", "erf"}
)
"""Functions of each number, by torch's names."""
FUNCTIONS = frozenset({"add", "multiply", "divide", "maximum", "minimum", "concat", *REDUCTIONS, *OF_NUMBERS})
"""Kinds that are not modules in a generated class: its `forward` says them."""
GLOBAL_POOLS: Mapping[str, str] = {
    "global_avg_pool": "AdaptiveAvgPool2d",
    "global_max_pool": "AdaptiveMaxPool2d",
}
"""Kinds that are a pool to 1x1 and then a Flatten, with torch's class of the pool."""
MAP_OF_FEATURES = Layer("Unflatten", {"dim": 1, "unflattened_size": (-1, 1, 1)})
"""Features as a map of one cell."""
WITH_TENSORS = frozenset(
    {"BatchNorm1d", "BatchNorm2d", "LayerNorm", "LayerNorm2d", "RMSNorm", "RMSNorm2d", "GroupNorm"}
    | {"ChannelScale", "PReLU"}
    | {"Conv2d", "ConvTranspose2d", "CroppedConvTranspose2d", "Linear", "AddArray", "MultiplyArray", "Tokens"}
)
"""Kinds that have entries in a state_dict."""
IN_PLACE = frozenset({"ReLU", "ReLU6", "LeakyReLU", "ELU", "SiLU", "Hardswish", "Hardtanh"})
"""Kinds that can overwrite the value that they read."""

_EXTENSIONS: Mapping[Mode, str] = {
    "edge": "ReplicationPad2d",
    "reflect": "ReflectionPad2d",
    "symmetric": "SymmetricPad2d",
    "wrap": "CircularPad2d",
}
_MAX_DENOMINATOR, _FLOAT64_ROUNDING = 1000, 1e-14
"""Scales that are a fraction of at most so many parts, but for the rounding of a float64, have no places just
below a cell.
"""
_NEAREST_MODES = {
    ("asymmetric", "floor"): "nearest",
    ("half_pixel", "round_prefer_ceil"): "nearest-exact",
}
"""torch's modes of a resize to the nearest cell, by porter's coordinates and rounding."""
_MAX_NEAREST_FACTOR = 40
"""The largest factor at which torch's mode `nearest` repeats every cell equally often: at 41, rounding to
float32 moves a cell.
"""


def _batch_norm(op: ops.BatchNorm, shape: Shape) -> Layer:
    """Return a batch norm of maps or of features; torch's has both a scale and a centre, or neither."""
    kind = "BatchNorm2d" if is_map(shape) else "BatchNorm1d"
    affine = op.scale or op.center
    return Layer(
        kind,
        {"num_features": channels_in(shape), "eps": op.epsilon, "momentum": op.momentum, "affine": affine},
    )


def _layer_norm(op: ops.LayerNorm, shape: Shape) -> Layer:
    """Return a layer norm; on maps it is porter's own, over the channels of each cell."""
    kind = "LayerNorm2d" if is_map(shape) else "LayerNorm"
    return Layer(
        kind,
        {
            "normalized_shape": channels_in(shape),
            "eps": op.epsilon,
            "elementwise_affine": op.scale or op.center,
        },
    )


def _rms_norm(op: ops.RmsNorm, shape: Shape) -> Layer:
    """Return an RMS norm; on maps it is porter's own, over the channels of each cell."""
    kind = "RMSNorm2d" if is_map(shape) else "RMSNorm"
    return Layer(
        kind, {"normalized_shape": channels_in(shape), "eps": op.epsilon, "elementwise_affine": op.scale}
    )


def _group_norm(op: ops.GroupNorm, shape: Shape) -> Layer:
    """Return a GroupNorm; torch's has both a scale and a centre, or neither."""
    sizes: dict[str, PlainValue] = {"num_groups": op.groups, "num_channels": channels_in(shape)}
    return Layer("GroupNorm", {**sizes, "eps": op.epsilon, "affine": op.scale or op.center})


def _conv_transpose(op: ops.ConvTranspose, shape: Shape) -> Layer:
    """Return a ConvTranspose2d if its arguments can say the cut."""
    channels: dict[str, PlainValue] = {"in_channels": channels_in(shape), "out_channels": op.filters}
    sizes = {**channels, **_window(op.window)}
    further: dict[str, PlainValue] = {
        "dilation": pair(op.window.dilation),
        "groups": op.groups,
        "bias": op.bias,
    }
    native = padding_of_cut(op)
    if native is None:
        return Layer("CroppedConvTranspose2d", {**sizes, "crop": torch_pads(op.cut), **further})
    padding, output_padding = map(pair, native)
    return Layer(
        "ConvTranspose2d", {**sizes, "padding": padding, "output_padding": output_padding, **further}
    )


def _global_pool(kind: str) -> Callable[[Any, Shape], Layer]:
    """Return the spelling of a global pool, which keeps its axes of one cell only if the op does."""
    return lambda op, shape: Layer(GLOBAL_POOLS[kind], {"output_size": 1}) if op.keep else Layer(kind)


def _hard_sigmoid(op: ops.HardSigmoid, shape: Shape) -> Layer:
    """Return torch's Hardsigmoid, with a slope of 1/6 and an offset of 0.5, otherwise porter's own."""
    if (op.slope, op.offset) == (1 / 6, 0.5):
        return Layer("Hardsigmoid")
    return Layer("HardSigmoid", {"slope": op.slope, "offset": op.offset})


def _block_layer(kind: str, factor: str) -> Callable[[Any, Shape], Layer]:
    """Return the spelling of an op on blocks: torch's own layer has the channel first, porter's the cell."""
    return lambda op, shape: (
        Layer(kind, {factor: op.block})
        if op.order == "CRD"
        else Layer(type(op).__name__, {"block": op.block})
    )


def _upsample(op: ops.Upsample, shape: Shape) -> Layer:
    """Return an Upsample to the nearest cell, by torch's older mode where its rounding is exact."""
    mode = "nearest" if max(op.rows, op.columns) <= _MAX_NEAREST_FACTOR else "nearest-exact"
    return Layer("Upsample", {"scale_factor": pair((op.rows, op.columns)), "mode": mode})


def _resize(op: ops.Resize, shape: Shape) -> Layer:
    """Return an Upsample where torch computes the same, otherwise porter's own Resize.

    nn.Upsample has one coefficient, and two rules for the nearest cell. It rounds places down as float32,
    also in float64 (aten/src/ATen/native/cpu/UpSampleKernel.cpp, floorf), by which a place just below a cell
    becomes the cell: a float32's 0.6 has some.
    """
    target: dict[str, PlainValue] = (
        {"scale_factor": pair(tuple(map(_as_integer, op.scale)))} if op.scale else {"size": op.size}
    )
    # A resize to a stated size has no scale, and so no fractions.
    fractions = [_nearest_fraction(scale) for scale in op.scale]
    has_exact_places = all(fraction.denominator <= _MAX_DENOMINATOR for fraction in fractions)
    mode = None
    if has_exact_places:
        mode = _interpolation_mode(op) or _NEAREST_MODES.get((op.coordinates, op.rounding))
    if mode is not None and op.mode == "nearest":
        return Layer("Upsample", {**target, "mode": mode})
    if mode is not None:
        return Layer("Upsample", {**target, "mode": mode, "align_corners": op.coordinates == "align_corners"})
    # the new size, or each scale as numerator and denominator
    cells: Any = op.size or tuple(fraction.as_integer_ratio() for fraction in fractions)
    return Layer(
        "Resize", {"mode": op.mode, "coordinates": op.coordinates, "cells": cells, **_rule_of_mode(op)}
    )


def _rule_of_mode(op: ops.Resize | ops.ResizeLike) -> dict[str, PlainValue]:
    """Return the arguments of porter's Resize that only the op's mode reads."""
    if op.mode == "nearest":
        return {"rounding": op.rounding}
    return {"a": op.a, "inside": op.inside}


def _resize_like(op: ops.ResizeLike, shape: Shape) -> Layer:
    """Return a resize to another map's size, by torch's own modes where one computes the same."""
    mode = _interpolation_mode(op)
    if mode is not None:
        return Layer("ResizeLike", {"mode": mode, "align_corners": op.coordinates == "align_corners"})
    return Layer("Resize", {"mode": op.mode, "coordinates": op.coordinates, **_rule_of_mode(op)})


def _interpolation_mode(op: ops.Resize | ops.ResizeLike) -> str | None:
    """Return torch's own mode of a linear or a cubic resize, `bilinear` or `bicubic`; None where torch
    computes no such resize.
    """
    if op.mode == "nearest" or op.coordinates == "asymmetric":
        return None
    if op.mode == "linear":
        return "bilinear"
    is_cubic_of_torch = op.a == -0.75 and not op.inside
    return "bicubic" if is_cubic_of_torch else None


def _nearest_fraction(scale: float) -> Fraction:
    """Return a scale as a fraction of small numbers if it is one but for rounding: 0.6 is 3/5, of which a
    float64 lacks a little; a float32's 0.6 is itself.
    """
    exact = Fraction(scale)
    simple = exact.limit_denominator(_MAX_DENOMINATOR)
    return simple if abs(simple - exact) <= _FLOAT64_ROUNDING * scale else exact


def _as_integer(scale: float) -> float:
    """Return a whole number as an int, for the text of model.py."""
    return int(scale) if scale == int(scale) else scale


def _spelling_of_row(row: AtenRow) -> Callable[[Any, Shape], Layer]:
    """Return a spelling of an op as the layer that a row of porter.formats.torch_export.plain says."""
    return lambda op, shape: Layer(row.kind, row.write(op))


PLAIN: Mapping[type[Op], Callable[[Any, Shape], Layer]] = {
    **{row.op: _spelling_of_row(row) for row in ROWS.values()},
    ops.ConvTranspose: _conv_transpose,
    ops.GlobalAvgPool: _global_pool("global_avg_pool"),
    ops.GlobalMaxPool: _global_pool("global_max_pool"),
    ops.AdaptivePool: lambda op, shape: Layer(
        f"{type(op).__name__}2d", {"output_size": pair((op.rows, op.columns))}
    ),
    ops.ReduceMap: lambda op, shape: Layer(f"{op.function}_{op.axis}"),
    ops.Dense: lambda op, shape: Layer(
        "Linear", {"in_features": channels_in(shape), "out_features": op.units, "bias": op.bias}
    ),
    ops.BatchNorm: _batch_norm,
    ops.LayerNorm: _layer_norm,
    ops.RmsNorm: _rms_norm,
    ops.GroupNorm: _group_norm,
    ops.LocalResponseNorm: lambda op, shape: Layer(
        "LocalResponseNorm", {"size": op.size, "alpha": op.alpha * op.size, "beta": op.beta, "k": op.bias}
    ),
    ops.ChannelScale: lambda op, shape: Layer(
        "ChannelScale", {"channels": channels_in(shape), "bias": op.bias}
    ),
    ops.Affine: lambda op, shape: Layer(
        "Affine", {"scale": constants(op.scale), "offset": constants(op.offset)}
    ),
    ops.ThresholdedRelu: lambda op, shape: Layer("Threshold", {"threshold": op.threshold, "value": 0.0}),
    ops.Clip: plain("Hardtanh", min_val="low", max_val="high"),
    ops.PRelu: lambda op, shape: Layer("PReLU", {"num_parameters": channels_in(shape)}),
    ops.Elu: plain("ELU", "alpha"),
    ops.Softplus: lambda op, shape: Layer(
        "Softplus", *(() if op.cut else ({"threshold": 40}, "torch's own threshold, 20, loses 2e-9"))
    ),
    ops.Softsign: plain("Softsign"),
    ops.Power: plain("Power", "exponent"),
    ops.HardSigmoid: _hard_sigmoid,
    ops.Gelu: lambda op, shape: Layer("GELU", {"approximate": "tanh" if op.approximate else "none"}),
    **dict.fromkeys(
        (ops.Softmax, ops.LogSoftmax),
        lambda op, shape: Layer(type(op).__name__, {"dim": 1 + channels_axis(shape)}),
    ),
    ops.Step: plain("Step", "inclusive"),
    ops.Add: plain("add"),
    ops.Multiply: plain("multiply"),
    ops.Divide: plain("divide"),
    ops.Maximum: plain("maximum"),
    ops.Minimum: plain("minimum"),
    ops.ConcatChannels: plain("concat"),
    ops.Identity: plain("Identity"),
    ops.Dropout: lambda op, shape: Layer("Dropout2d" if op.maps else "Dropout", {"p": op.rate}),
    ops.Flatten: lambda op, shape: Layer(
        "Flatten" if op.order == "CHW" or op.rows == op.columns == 1 else "FlattenCells"
    ),
    ops.AsMap: lambda op, shape: MAP_OF_FEATURES,
    ops.PadMap: lambda op, shape: constant_pad(op.pads, op.fill),
    ops.ExtendMap: lambda op, shape: Layer(_EXTENSIONS[op.mode], {"padding": torch_pads(op.pads)}),
    ops.CropMap: lambda op, shape: Layer(
        "ZeroPad2d", {"padding": tuple(-n for n in torch_pads(op.pads))}, "negative pads crop"
    ),
    ops.PadChannels: plain("PadChannels", "before", "after"),
    ops.SliceChannels: plain("SliceChannels", "start", "stop", "step"),
    ops.ChannelShuffle: plain("ChannelShuffle", "groups"),
    ops.DepthToSpace: _block_layer("PixelShuffle", "upscale_factor"),
    ops.SpaceToDepth: _block_layer("PixelUnshuffle", "downscale_factor"),
    ops.Upsample: _upsample,
    ops.Rearrange: lambda op, shape: (
        Layer("Rearrange", {"pattern": op.pattern}) if op.moves.joined else Layer("Flatten", {"start_dim": 0})
    ),
    ops.MatMul: plain("MatMul", "transpose"),
    ops.Attention: plain("Attention", "heads", "scale"),
    ops.Join: lambda op, shape: Layer("Join", {"dim": 1 + op.axis}),
    ops.CropAxis: lambda op, shape: Layer(
        "CropAxis", {"dim": 1 + op.axis, "before": op.before, "after": op.after, "step": op.step}
    ),
    ops.PadAxis: lambda op, shape: Layer(
        "PadAxis", {"dim": 1 + op.axis, "before": op.before, "after": op.after, "value": op.fill}
    ),
    ops.ReduceAxis: lambda op, shape: Layer(
        "Reduce", {"function": _METHODS[op.function], "dim": 1 + op.axis}
    ),
    ops.OfArray: lambda op, shape: Layer(type(op).__name__, {"sizes": op.sizes}),
    ops.Tokens: lambda op, shape: Layer("Tokens", {"count": op.count, "width": channels_in(shape)}),
    ops.Resize: _resize,
    ops.ResizeLike: _resize_like,
    ops.AsLarge: lambda op, shape: Layer(type(op).__name__, {"rows": op.rows, "columns": op.columns}),
}
"""How torch says an op for an input of some shape. Windowed ops, which need a realisation, are in
WINDOWED.
"""


def _conv(op: ops.Conv, channels: int, realisation: Realisation) -> Layer:
    """Return a Conv2d that reads `channels` channels, with the native pads of the realisation, the way in
    which the plan makes the pads that the op has; others are a layer in front.
    """
    channels_in_out: dict[str, PlainValue] = {"in_channels": channels, "out_channels": op.filters}
    dilation = {"dilation": pair(op.window.dilation)}
    arguments = {**channels_in_out, **_window(op.window), **_padding(realisation), **dilation}
    return Layer("Conv2d", {**arguments, "groups": op.groups, "bias": op.bias})


def _max_pool(op: ops.MaxPool, channels: int, realisation: Realisation) -> Layer:
    """Return a MaxPool2d with the pads and the rounding of the realisation. `channels` is unused; all
    windowed spellings have these parameters.
    """
    dilation = {"dilation": pair(op.window.dilation)}
    return Layer(
        "MaxPool2d", {**_window(op.window), **_padding(realisation), **dilation, **_ceil_mode(realisation)}
    )


def _avg_pool(op: ops.AvgPool, channels: int, realisation: Realisation) -> Layer:
    """Return an AvgPool2d, or one of porter's own where torch cannot count the cells of the average
    (`realisation.counted`): SameAvgPool2d for pads by a rule, PaddedAvgPool2d for pads in numbers. `channels`
    is unused.
    """
    # `front`: the pads of a layer in front of the pool.
    front, window = realisation.front, _window(op.window)
    # torch would count all pads of a layer in front, or none of its own.
    if realisation.counted is not None and front is not None:
        if front.rule != "explicit":
            return Layer("SameAvgPool2d", {**window, "lower": front.rule == "same_lower"})
        return Layer(
            "PaddedAvgPool2d",
            {**window, "padding": torch_pads(front.pads), "counted": torch_pads(realisation.counted)},
        )
    counted = {"count_include_pad": realisation.native.average == "clipped_window"}
    return Layer("AvgPool2d", {**window, **_padding(realisation), **_ceil_mode(realisation), **counted})


WINDOWED: Mapping[type[Op], Callable[[Any, int, Realisation], Layer]] = {
    ops.Conv: _conv,
    ops.MaxPool: _max_pool,
    ops.AvgPool: _avg_pool,
}
"""How torch says a windowed op for so many channels, after a pad layer if the realisation has one."""


def constant_pad(pads: Pads, fill: float) -> Layer:
    """Return the layer that adds cells of `fill` at the top, bottom, left and right."""
    arguments: dict[str, PlainValue] = {"padding": torch_pads(pads)}
    # as text, because -0.0 == 0.0, and it must stay
    is_positive_zero = str(fill) in ("0", "0.0")
    if is_positive_zero:
        return Layer("ZeroPad2d", arguments)
    return Layer("ConstantPad2d", {**arguments, "value": fill})


def torch_pads(pads: Pads) -> tuple[int, int, int, int]:
    """Return pads in the order in which torch states them: left, right, top, bottom."""
    top, bottom, left, right = pads
    return left, right, top, bottom


def _window(window: Window) -> dict[str, PlainValue]:
    return {"kernel_size": pair(window.kernel), "stride": pair(window.stride)}


def _padding(realisation: Realisation) -> dict[str, PlainValue]:
    """Return the argument `padding` from the native pads, which are alike on both sides: top is bottom, left
    is right.
    """
    top, _, left, _ = realisation.native.pads
    return {"padding": pair((top, left))}


def _ceil_mode(realisation: Realisation) -> dict[str, PlainValue]:
    return {"ceil_mode": realisation.native.rounding == "ceil"}
