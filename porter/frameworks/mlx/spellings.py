"""Each op of a graph as a layer of mlx.nn, a function of mlx.core, or one of layers.py. Imports no MLX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from porter.frameworks.code.channels_last import (
    OWN,
    front_layer,
    pad_arguments,
    reduce_arguments,
    sides,
)
from porter.frameworks.code.layer_arguments import padding_of_cut, pair
from porter.frameworks.code.plan_layers import Layer, Spellings, plain
from porter.graph import Op, Shape, ops
from porter.graph.blocks.parameters import PlainValue
from porter.graph.ops import channels_in
from porter.padding import Realisation, Window

_REDUCTIONS = {"mean": "mx.mean", "max": "mx.max", "norm": "mx.linalg.norm"}
MODULES = frozenset(
    {
        "nn.Conv2d",
        "nn.ConvTranspose2d",
        "nn.Linear",
        "nn.BatchNorm",
        "nn.LayerNorm",
        "nn.RMSNorm",
        "nn.GroupNorm",
        "nn.PReLU",
        "nn.MaxPool2d",
        "nn.AvgPool2d",
        "nn.Dropout",
        "nn.Dropout2d",
        "nn.Identity",
    }
    | {"CroppedConvTranspose2d", "ChannelScale", "AddArray", "MultiplyArray", "Tokens"}
)
"""Kinds that are modules; all others are functions."""
MAP_OF_FEATURES = Layer("mx.expand_dims", {"axis": (1, 2)})


def _norm(kind: str, size: str = "dims") -> Callable[[Any, Shape], Layer]:
    """Return a spelling of norms as layers of the class `kind`, whose argument `size` is the number of
    channels.
    """

    def spell_norm(op: Any, shape: Shape) -> Layer:
        """Return the layer of a norm for an input of this shape, with the op's epsilon, scale and offset."""
        arguments: dict[str, PlainValue] = {}
        if isinstance(op, ops.GroupNorm):
            arguments["num_groups"] = op.groups
        arguments |= {size: channels_in(shape), "eps": op.epsilon}
        if isinstance(op, ops.RmsNorm):
            return Layer(kind, arguments)
        if isinstance(op, ops.BatchNorm):
            arguments["momentum"] = op.momentum
        # MLX has a scale wherever it has an offset; see porter.frameworks.mlx.layout.variables.
        arguments["affine"] = op.scale or op.center
        if isinstance(op, ops.LayerNorm):
            # A layer norm may have a scale without an offset. Where it has neither, `affine` is off, and
            # `bias` stays at its default.
            arguments["bias"] = op.center or not op.scale
        if isinstance(op, ops.GroupNorm):
            # MLX's own way takes every n-th channel as a group.
            arguments["pytorch_compatible"] = True
        return Layer(kind, arguments)

    return spell_norm


def _transposed(op: ops.ConvTranspose, shape: Shape) -> Layer:
    """Spell a transposed convolution by MLX's own layer where it computes the same, otherwise by that of
    layers.py. MLX computes another size where the padding is larger than what a kernel reaches.
    """
    window, native = op.window, padding_of_cut(op)
    sizes: dict[str, PlainValue] = {"in_channels": channels_in(shape), "out_channels": op.filters}
    sizes |= _sizes(window)
    dilation: dict[str, PlainValue] = {"dilation": pair(window.dilation)}
    if native is not None and op.groups == 1:
        padding, output_padding = native
        if all(cells < window.extent(axis) for axis, cells in enumerate(padding)):
            cut: dict[str, PlainValue] = {"padding": pair(padding), "output_padding": pair(output_padding)}
            return Layer("nn.ConvTranspose2d", {**sizes, **cut, **dilation, "bias": op.bias})
    crop: dict[str, PlainValue] = {"crop": sides(op.cut)}
    further: dict[str, PlainValue] = {**dilation, "groups": op.groups, "bias": op.bias}
    return Layer("CroppedConvTranspose2d", {**sizes, **crop, **further})


PLAIN: Mapping[type[Op], Callable[[Any, Shape], Layer]] = {
    **OWN,
    **{op: plain(f"nn.{op.name}") for op in (ops.Relu, ops.Relu6, ops.Softmax, ops.LogSoftmax, ops.Mish)},
    **{op: plain(f"nn.{op.name}", "alpha") for op in (ops.Elu, ops.Celu)},
    **{
        op: plain(f"mx.{op.name}")
        for op in (ops.Abs, ops.Exp, ops.Log, ops.Sqrt, ops.Reciprocal, ops.Sin, ops.Cos, ops.Sign, ops.Erf)
    },
    **{op: plain(f"mx.{op.name}") for op in (ops.Floor, ops.Ceil, ops.Round, ops.Sigmoid, ops.Tanh)},
    **{op: plain(op.name) for op in (ops.Add, ops.Multiply, ops.Divide, ops.Maximum, ops.Minimum)},
    ops.ConvTranspose: _transposed,
    ops.Dense: lambda op, shape: Layer(
        "nn.Linear", {"input_dims": channels_in(shape), "output_dims": op.units, "bias": op.bias}
    ),
    ops.BatchNorm: _norm("nn.BatchNorm", "num_features"),
    ops.LayerNorm: _norm("nn.LayerNorm"),
    ops.RmsNorm: _norm("nn.RMSNorm"),
    ops.GroupNorm: _norm("nn.GroupNorm"),
    ops.Clip: plain("mx.clip", a_min="low", a_max="high"),
    ops.LeakyRelu: lambda op, shape: Layer(
        # It takes the larger of x and slope * x.
        "nn.leaky_relu" if op.slope <= 1 else "steep_leaky_relu",
        {"negative_slope": op.slope},
    ),
    ops.PRelu: lambda op, shape: Layer("nn.PReLU", {"num_parameters": channels_in(shape)}),
    ops.Selu: plain("selu"),
    ops.Softplus: lambda op, shape: Layer("cut_softplus" if op.cut else "nn.softplus"),
    ops.Softsign: plain("nn.softsign"),
    ops.HardSigmoid: plain("hard_sigmoid", "slope", "offset"),
    ops.Swish: plain("nn.silu"),
    ops.HardSwish: plain("nn.hardswish"),
    ops.Gelu: lambda op, shape: Layer("nn.gelu_approx" if op.approximate else "nn.gelu"),
    ops.Reduce: lambda op, shape: Layer(_REDUCTIONS[op.function], reduce_arguments(op)),
    ops.GlobalAvgPool: lambda op, shape: Layer("mx.mean", {"axis": (1, 2), "keepdims": op.keep}),
    ops.GlobalMaxPool: lambda op, shape: Layer("mx.max", {"axis": (1, 2), "keepdims": op.keep}),
    ops.Identity: plain("nn.Identity"),
    ops.Dropout: lambda op, shape: Layer("nn.Dropout2d" if op.maps else "nn.Dropout", {"p": op.rate}),
    ops.AsMap: lambda op, shape: MAP_OF_FEATURES,
    ops.Pad: lambda op, shape: Layer("mx.pad", pad_arguments(op, shape)),
    ops.ExtendMap: lambda op, shape: Layer(
        "wrapping_pad" if op.mode == "wrap" else "mx.pad",
        {slot: value for slot, value in pad_arguments(op, shape).items() if value != "wrap"},
    ),
}


def _conv(op: ops.Conv, channels: int, realisation: Realisation) -> Layer:
    """Spell a convolution with its native pads. MLX pads both ends of an axis alike, by `padding`; where the
    realisation, the way in which the plan makes the stated pads, needs others, a pad layer stands in front.
    `channels` is the number that it reads.
    """
    channel_counts: dict[str, PlainValue] = {"in_channels": channels, "out_channels": op.filters}
    window = {**_sizes(op.window), **_padding(realisation), "dilation": pair(op.window.dilation)}
    return Layer("nn.Conv2d", {**channel_counts, **window, "groups": op.groups, "bias": op.bias})


def _max_pool(op: ops.MaxPool, channels: int, realisation: Realisation) -> Layer:
    """Spell a max pool: MLX's own, or the one of layers.py where it is dilated. `channels` is unused; all
    windowed spellings have these parameters.
    """
    window = {**_sizes(op.window), **_padding(realisation)}
    if op.window.dilation == (1, 1):
        return Layer("nn.MaxPool2d", window)
    return Layer("dilated_max_pool", {**window, "dilation": pair(op.window.dilation)})


def _avg_pool(op: ops.AvgPool, channels: int, realisation: Realisation) -> Layer:
    """Spell an average pool: MLX's own, which counts all pads as cells, or where only some of them count
    (`realisation.counted`) one of layers.py: by a rule SAME, or by pads in numbers. `channels` is unused; all
    windowed spellings have these parameters.
    """
    # `front`: the pads of a layer in front of the pool.
    front, window = realisation.front, _sizes(op.window)
    if realisation.counted is None:
        return Layer("nn.AvgPool2d", {**window, **_padding(realisation)})
    if front is not None and front.rule != "explicit":
        return Layer("same_avg_pool", {**window, "lower": front.rule == "same_lower"})
    pads = realisation.native.pads if front is None else front.pads
    counted = sides(realisation.counted)
    return Layer("counted_avg_pool", {**window, "padding": sides(pads), "counted": counted})


def _sizes(window: Window) -> dict[str, PlainValue]:
    return {"kernel_size": pair(window.kernel), "stride": pair(window.stride)}


def _padding(realisation: Realisation) -> dict[str, PlainValue]:
    """Return the argument `padding` from the native pads, which are alike on both sides: top is bottom, left
    is right.
    """
    top, _, left, _ = realisation.native.pads
    return {"padding": pair((top, left))}


SPELLINGS = Spellings(
    "MLX",
    PLAIN,
    {ops.Conv: _conv, ops.MaxPool: _max_pool, ops.AvgPool: _avg_pool},
    front_layer("mx.pad", lambda window: {**_sizes(window), "dilation": pair(window.dilation)}),
)
"""Every op of a plan as a layer."""
