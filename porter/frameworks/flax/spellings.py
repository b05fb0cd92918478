"""Each op of a graph as a layer of flax.nnx, a function of jax.numpy, or one of layers.py. Imports no JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from porter.base.errors import PaddingError
from porter.frameworks.code.channels_last import (
    OWN,
    front_layer,
    pad_arguments,
    reduce_arguments,
    sides,
)
from porter.frameworks.code.layer_arguments import pair
from porter.frameworks.code.plan_layers import Layer, Spellings, plain
from porter.graph import Op, Shape, ops
from porter.graph.blocks.parameters import PlainValue
from porter.graph.ops import channels_in
from porter.padding import Convention, Realisation, Window

_REDUCTIONS = {"mean": "jnp.mean", "max": "jnp.max", "norm": "jnp.linalg.norm"}
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
    """Return a spelling of norms as layers of the class `kind`, whose argument `size` is the number of
    channels.
    """

    def spell_norm(op: Any, shape: Shape) -> Layer:
        """Return the layer of a norm for an input of this shape, with the op's epsilon, scale and offset."""
        arguments: dict[str, PlainValue] = {
            size: channels_in(shape),
            "epsilon": op.epsilon,
            "use_scale": op.scale,
        }
        if hasattr(op, "center"):
            arguments["use_bias"] = op.center
        if isinstance(op, ops.GroupNorm):
            arguments["num_groups"] = op.groups
        if isinstance(op, ops.BatchNorm):
            # Flax's momentum is the share of the old value, porter's the share of the new one.
            arguments["momentum"] = 1 - op.momentum
        else:
            # Flax's own way, the mean of squares less the mean's square, loses half of a float32's places.
            arguments["use_fast_variance"] = False
        return Layer(kind, arguments)

    return spell_norm


def _transposed(op: ops.ConvTranspose, shape: Shape) -> Layer:
    """Spell a transposed convolution, of groups by a layer of layers.py. Its pads are those of a convolution
    over the map whose cells are a stride apart: the reach of the kernel less the cells that the op cuts off.
    """
    rows, columns = op.window.extent(0), op.window.extent(1)
    top, bottom, left, right = (
        extent - 1 - cut for extent, cut in zip((rows, rows, columns, columns), op.cut, strict=True)
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


PLAIN: Mapping[type[Op], Callable[[Any, Shape], Layer]] = {
    **OWN,
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
    ops.Reduce: lambda op, shape: Layer(_REDUCTIONS[op.function], reduce_arguments(op)),
    ops.GlobalAvgPool: lambda op, shape: Layer("jnp.mean", {"axis": (1, 2), "keepdims": op.keep}),
    ops.GlobalMaxPool: lambda op, shape: Layer("jnp.max", {"axis": (1, 2), "keepdims": op.keep}),
    ops.Identity: plain("nnx.identity"),
    ops.Dropout: lambda op, shape: Layer(
        "nnx.Dropout", {"rate": op.rate, "broadcast_dims": (1, 2) if op.maps else ()}
    ),
    ops.AsMap: lambda op, shape: MAP_OF_FEATURES,
    ops.Pad: lambda op, shape: Layer("jnp.pad", pad_arguments(op, shape)),
    ops.ExtendMap: lambda op, shape: Layer("jnp.pad", pad_arguments(op, shape)),
}


def _conv(op: ops.Conv, channels: int, realisation: Realisation) -> Layer:
    """Spell a convolution with Flax's own padding, which the realisation states: the way in which the plan
    makes the pads that the op has. `channels` is the number that it reads.
    """
    window, native = op.window, realisation.native
    # A window of one cell has no pads by either rule, and SAME is Flax's default, which model.py need not
    # state.
    needs_no_pads = window.kernel == (1, 1) and native.rule == "valid"
    ends: dict[str, PlainValue] = {
        "in_features": channels,
        "out_features": op.filters,
        "kernel_size": window.kernel,
    }
    steps: dict[str, PlainValue] = {
        "strides": pair(window.stride),
        "padding": "SAME" if needs_no_pads else _padding(native),
    }
    inner: dict[str, PlainValue] = {
        "kernel_dilation": pair(window.dilation),
        "feature_group_count": op.groups,
    }
    return Layer("nnx.Conv", {**ends, **steps, **inner, "use_bias": op.bias})


def _max_pool(op: ops.MaxPool, channels: int, realisation: Realisation) -> Layer:
    """Spell a max pool: Flax's own, or the one of layers.py where it is dilated. `channels` is unused; all
    windowed spellings have these parameters.
    """
    if op.window.dilation != (1, 1):
        return Layer(
            "dilated_max_pool", {**_window(op.window, realisation.native), "dilation": op.window.dilation}
        )
    return Layer("nnx.max_pool", _window(op.window, realisation.native))


def _avg_pool(op: ops.AvgPool, channels: int, realisation: Realisation) -> Layer:
    """Spell an average pool: Flax's own, or where only some pads count (`realisation.counted`) the one of
    layers.py. Raise PaddingError where such pads follow a rule instead of being numbers.
    """
    window, front = _window(op.window, realisation.native), realisation.front
    if realisation.counted is None:
        return Layer(
            "nnx.avg_pool", {**window, "count_include_pad": realisation.native.average != "real_cells"}
        )
    if front is not None and front.rule != "explicit":
        raise PaddingError(f"the layers of Flax lack '{realisation}'")
    pads = realisation.native.pads if front is None else front.pads
    return Layer(
        "counted_avg_pool", {**window, "padding": sides(pads), "counted": sides(realisation.counted)}
    )


def _window(window: Window, native: Convention) -> dict[str, PlainValue]:
    """Return the arguments of a pool that say its window: `window_shape`, `strides` and `padding`."""
    padding = _padding(native)
    return {
        "window_shape": window.kernel,
        "strides": window.stride,
        "padding": padding if isinstance(padding, str) else sides(native.pads),
    }


def _padding(native: Convention) -> PlainValue:
    """Return Flax's `padding`: the word for a rule, such as "VALID", or the pads as one number or by axis."""
    if native.rule != "explicit":
        return native.rule.upper()
    return native.pads[0] if len(set(native.pads)) == 1 else sides(native.pads)


def _cells(window: Window) -> dict[str, PlainValue]:
    """Return the arguments of `same_pad` that say a window."""
    return {"window_shape": window.kernel, "strides": window.stride, "dilation": window.dilation}


SPELLINGS = Spellings(
    "Flax",
    PLAIN,
    {ops.Conv: _conv, ops.MaxPool: _max_pool, ops.AvgPool: _avg_pool},
    front_layer("jnp.pad", _cells),
)
"""Every op of a plan as a layer."""
