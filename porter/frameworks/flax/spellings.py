"""Each op of a graph as a layer of flax.nnx, a function of jax.numpy, or one of layers.py. Imports no JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from porter.base.errors import PaddingError
from porter.frameworks.code.language import Layer, Spellings, plain
from porter.graph import Op, Shape, ops
from porter.graph.blocks.parameters import PlainValue
from porter.graph.ops import CHANNELS_LAST, channels_in, is_map
from porter.padding import Convention, Front, Pads, Realisation, Site, Window

_REDUCTIONS = {"mean": "jnp.mean", "max": "jnp.max", "norm": "jnp.linalg.norm"}
FUNCTIONS = frozenset({"add", "multiply", "divide", "maximum", "minimum", "concat"})
"""Kinds that are said where they are applied."""
WITH_TENSORS = frozenset(
    {
        "nnx.Conv",
        "nnx.ConvTranspose",
        "nnx.Linear",
        "nnx.BatchNorm",
        "nnx.LayerNorm",
        "nnx.RMSNorm",
        "nnx.GroupNorm",
    }
    | {"GroupedConvTranspose", "ChannelScale", "PReLU", "AddArray", "MultiplyArray", "Tokens", "nnx.Dropout"}
)
"""Kinds that are modules and have variables, a dropout its random numbers; all others are functions."""
MAP_OF_FEATURES = Layer("jnp.expand_dims", {"axis": (1, 2)})


def _norm(kind: str, size: str = "num_features") -> Callable[[Any, Shape], Layer]:
    """A spelling of norms by this class, whose argument `size` is the number of channels."""

    def layer(op: Any, shape: Shape) -> Layer:
        arguments: dict[str, PlainValue] = {
            size: channels_in(shape),
            "epsilon": op.epsilon,
            "use_scale": op.scale,
        }
        arguments |= {"use_bias": op.center} if hasattr(op, "center") else {}
        arguments |= {"num_groups": op.groups} if isinstance(op, ops.GroupNorm) else {}
        # Flax's own way, the mean of squares less the mean's square, loses half of a float32's places.
        return Layer(
            kind,
            arguments
            | (
                {"momentum": 1 - op.momentum}
                if isinstance(op, ops.BatchNorm)
                else {"use_fast_variance": False}
            ),
        )

    return layer


def _transposed(op: ops.ConvTranspose, shape: Shape) -> Layer:
    """Pads of the convolution over the map whose cells are a stride apart."""
    top, bottom, left, right = (
        op.window.extent(index // 2) - 1 - cells for index, cells in enumerate(op.cut)
    )
    ends: dict[str, PlainValue] = {
        "in_features": channels_in(shape),
        "out_features": op.filters,
        "kernel_size": op.window.kernel,
    }
    inner: dict[str, PlainValue] = {"strides": op.window.stride, "padding": ((top, bottom), (left, right))}
    inner |= {"kernel_dilation": op.window.dilation, "use_bias": op.bias}
    if op.groups > 1:
        return Layer("GroupedConvTranspose", {**ends, **inner, "groups": op.groups})
    return Layer("nnx.ConvTranspose", {**ends, **inner, "transpose_kernel": True})


def _reduce(op: ops.Reduce, shape: Shape) -> Layer:
    own: dict[str, PlainValue] = (
        {"axis": 1 + op.over} if op.of_arrays else {"axis": op.over or -1, "keepdims": True}
    )
    return Layer(_REDUCTIONS[op.function], own)


def _axes(shape: Shape) -> Mapping[int, int]:
    """The place of each axis of a value among those of a batch."""
    order = CHANNELS_LAST if is_map(shape) else range(len(shape))
    return {axis: number for number, axis in enumerate(order, 1)}


def _pad(op: ops.Pad | ops.ExtendMap, shape: Shape) -> Layer:
    own: dict[str, PlainValue] = (
        {"mode": op.mode} if isinstance(op, ops.ExtendMap) else {"constant_values": op.fill or 0}
    )
    width: PlainValue = ((0, 0), *(op.ends.get(axis, (0, 0)) for axis in _axes(shape)))
    return Layer("jnp.pad", {"pad_width": width, **own})


def _crop(op: ops.Crop, shape: Shape) -> Layer:
    cuts = [(axis_of_layer, op.cuts[axis]) for axis, axis_of_layer in _axes(shape).items() if axis in op.cuts]
    return Layer(
        "crop",
        {"cells": tuple((axis_of_layer, cut.start, cut.stop, cut.step) for axis_of_layer, cut in cuts)},
    )


def _rearrange(op: ops.Rearrange, shape: Shape) -> Layer:
    """The pattern with the channels of maps last."""
    before = [[f"{name}={size}" if size else name for name, size in axis] for axis in op.moves.split]
    sides = ((before, is_map(shape)), ([list(axis) for axis in op.moves.joined], op.map))
    texts = (
        " ".join(_axis(side[axis]) for axis in (CHANNELS_LAST if of_map else range(len(side))))
        for side, of_map in sides
    )
    return Layer("rearrange", {"pattern": " -> ".join(texts)})


def _axis(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 and "=" not in parts[0] else f"({' '.join(parts)})"


def _resize(op: ops.Resize | ops.ResizeLike, shape: Shape) -> Layer:
    """The layer `resize`, with the arguments that count in the op's mode."""
    arguments: dict[str, PlainValue] = {"mode": op.mode, "coordinates": op.coordinates}
    if isinstance(op, ops.Resize):
        arguments |= {"size": op.size} if op.size else {"scale": op.scale}
    arguments |= {"rounding": op.rounding} if op.mode == "nearest" else {}
    return Layer("resize", arguments | ({"a": op.a, "inside": op.inside} if op.mode == "cubic" else {}))


def _constants(values: tuple[float, ...]) -> PlainValue:
    return values[0] if len(values) == 1 else values


PLAIN: Mapping[type[Op], Callable[[Any, Shape], Layer]] = {
    **{
        op: plain(f"nnx.{op.name}")
        for op in (ops.Relu, ops.Relu6, ops.Selu, ops.Sigmoid, ops.Tanh, ops.Softmax, ops.LogSoftmax)
    },
    **{op: plain(f"nnx.{op.name}", "alpha") for op in (ops.Elu, ops.Celu)},
    **{
        op: plain(f"jnp.{op.name}")
        for op in (ops.Abs, ops.Exp, ops.Log, ops.Sqrt, ops.Reciprocal, ops.Sin, ops.Cos, ops.Sign)
    },
    **{op: plain(f"jnp.{op.name}") for op in (ops.Floor, ops.Ceil, ops.Round)},
    **{op: plain(op.name) for op in (ops.Add, ops.Multiply, ops.Divide, ops.Maximum, ops.Minimum)},
    ops.Erf: plain("jax.lax.erf"),
    ops.ConvTranspose: _transposed,
    ops.Dense: lambda op, shape: Layer(
        "nnx.Linear", {"in_features": channels_in(shape), "out_features": op.units, "use_bias": op.bias}
    ),
    ops.BatchNorm: _norm("nnx.BatchNorm"),
    ops.LayerNorm: _norm("nnx.LayerNorm"),
    ops.RmsNorm: _norm("nnx.RMSNorm"),
    ops.GroupNorm: _norm("nnx.GroupNorm"),
    ops.LocalResponseNorm: plain("local_response_norm", "size", "alpha", "beta", "bias"),
    ops.ChannelScale: lambda op, shape: Layer(
        "ChannelScale", {"features": channels_in(shape), "use_bias": op.bias}
    ),
    ops.Affine: lambda op, shape: Layer(
        "affine", {"scale": _constants(op.scale), "offset": _constants(op.offset)}
    ),
    ops.ThresholdedRelu: plain("thresholded_relu", "threshold"),
    ops.Clip: plain("jnp.clip", min="low", max="high"),
    ops.LeakyRelu: plain("nnx.leaky_relu", negative_slope="slope"),
    ops.PRelu: lambda op, shape: Layer("PReLU", {"features": channels_in(shape)}),
    ops.Softplus: lambda op, shape: Layer("cut_softplus" if op.cut else "nnx.softplus"),
    ops.Softsign: plain("nnx.soft_sign"),
    ops.HardSigmoid: lambda op, shape: (
        Layer("nnx.hard_sigmoid")
        if op == ops.HardSigmoid()
        else Layer("hard_sigmoid", {"slope": op.slope, "offset": op.offset})
    ),
    ops.Swish: plain("nnx.silu"),
    ops.HardSwish: plain("nnx.hard_silu"),
    ops.Mish: plain("jax.nn.mish"),
    ops.Gelu: plain("nnx.gelu", "approximate"),
    ops.Power: plain("power", "exponent"),
    ops.Step: plain("step", "inclusive"),
    ops.Reduce: _reduce,
    ops.GlobalAvgPool: lambda op, shape: Layer("jnp.mean", {"axis": (1, 2), "keepdims": op.keep}),
    ops.GlobalMaxPool: lambda op, shape: Layer("jnp.max", {"axis": (1, 2), "keepdims": op.keep}),
    ops.AdaptivePool: plain("adaptive_pool", "rows", "columns", "function"),
    ops.ConcatChannels: plain("concat"),
    ops.Join: lambda op, shape: Layer("join", {"axis": 1 + op.axis}),
    ops.Identity: plain("nnx.identity"),
    ops.Dropout: lambda op, shape: Layer(
        "nnx.Dropout", {"rate": op.rate, "broadcast_dims": (1, 2) if op.maps else ()}
    ),
    ops.Flatten: lambda op, shape: Layer(
        "flatten", {"order": op.order if (op.rows, op.columns) != (1, 1) else "HWC"}
    ),
    ops.AsMap: lambda op, shape: MAP_OF_FEATURES,
    ops.Pad: _pad,
    ops.ExtendMap: _pad,
    ops.Crop: _crop,
    ops.ChannelShuffle: plain("channel_shuffle", "groups"),
    ops.DepthToSpace: plain("depth_to_space", "block", "order"),
    ops.SpaceToDepth: plain("space_to_depth", "block", "order"),
    ops.Upsample: plain("upsample", "rows", "columns"),
    ops.Resize: _resize,
    ops.ResizeLike: _resize,
    ops.PadLike: lambda op, shape: Layer("pad_like", {"rows": op.rows, "columns": op.columns}),
    ops.CropLike: lambda op, shape: Layer("crop_like", {"rows": op.rows, "columns": op.columns}),
    ops.Rearrange: _rearrange,
    ops.MatMul: plain("matmul", "transpose"),
    ops.Attention: plain("attention", "heads", "scale"),
    ops.OfArray: lambda op, shape: Layer(
        type(op).__name__, {"shape": tuple(op.sizes[axis] for axis in _axes(shape))}
    ),
    ops.Tokens: lambda op, shape: Layer("Tokens", {"count": op.count, "features": channels_in(shape)}),
}


def _conv(op: ops.Conv, channels: int, realisation: Realisation) -> Layer:
    window, native = op.window, realisation.native  # for a window of one cell both rules pad nothing
    ends: dict[str, PlainValue] = {
        "in_features": channels,
        "out_features": op.filters,
        "kernel_size": window.kernel,
    }
    steps: dict[str, PlainValue] = {
        "strides": _one(window.stride),
        "padding": "SAME" if window.kernel == (1, 1) and native.rule == "valid" else _padding(native),
    }
    inner: dict[str, PlainValue] = {
        "kernel_dilation": _one(window.dilation),
        "feature_group_count": op.groups,
    }
    return Layer("nnx.Conv", {**ends, **steps, **inner, "use_bias": op.bias})


def _max_pool(op: ops.MaxPool, channels: int, realisation: Realisation) -> Layer:
    if op.window.dilation != (1, 1):
        return Layer(
            "dilated_max_pool", {**_window(op.window, realisation.native), "dilation": op.window.dilation}
        )
    return Layer("nnx.max_pool", _window(op.window, realisation.native))


def _avg_pool(op: ops.AvgPool, channels: int, realisation: Realisation) -> Layer:
    window, front = _window(op.window, realisation.native), realisation.front
    if realisation.counted is None:
        return Layer(
            "nnx.avg_pool", {**window, "count_include_pad": realisation.native.average != "real_cells"}
        )
    if front is not None and front.rule != "explicit":
        raise PaddingError(f"the layers of Flax lack '{realisation}'")
    pads = realisation.native.pads if front is None else front.pads
    return Layer(
        "counted_avg_pool", {**window, "padding": _sides(pads), "counted": _sides(realisation.counted)}
    )


def _window(window: Window, native: Convention) -> dict[str, PlainValue]:
    padding = _padding(native)
    return {
        "window_shape": window.kernel,
        "strides": window.stride,
        "padding": padding if isinstance(padding, str) else _sides(native.pads),
    }


def _one(values: tuple[int, int]) -> PlainValue:
    """A single number if both axes agree."""
    return values[0] if values[0] == values[1] else values


def _padding(native: Convention) -> PlainValue:
    if native.rule != "explicit":
        return native.rule.upper()
    return native.pads[0] if len(set(native.pads)) == 1 else _sides(native.pads)


def _sides(pads: Pads) -> PlainValue:
    top, bottom, left, right = pads
    return (top, bottom), (left, right)


def _front(front: Front, site: Site, why: str) -> Layer:
    """The layer in front of a site that pads as its realisation says."""
    (top, bottom, left, right), window = front.pads, site.window
    if front.rule == "explicit":
        arguments: dict[str, PlainValue] = {
            "pad_width": ((0, 0), (top, bottom), (left, right), (0, 0)),
            "constant_values": front.fill or 0,
        }
        return Layer("jnp.pad", arguments, why)
    lower = front.rule == "same_lower"
    sizes: dict[str, PlainValue] = {
        "window_shape": window.kernel,
        "strides": window.stride,
        "dilation": window.dilation,
    }
    return Layer("same_pad", {**sizes, "lower": lower, "fill": front.fill}, why)


SPELLINGS = Spellings(
    "Flax", PLAIN, {ops.Conv: _conv, ops.MaxPool: _max_pool, ops.AvgPool: _avg_pool}, _front
)
"""Every op of a plan as a layer."""
