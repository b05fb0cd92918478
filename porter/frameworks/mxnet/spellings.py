"""How MXNet says each op that it has: its operators, of which the last has the op's path. Windowed ops are in
porter.frameworks.mxnet.sites.

A few ops are compositions that are exact in every number, such as channels that a convolution of zeros and
ones chooses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from porter.base.errors import GraphError
from porter.formats.mxnet.plain import OF_NUMBERS
from porter.frameworks.mxnet.maker import NAMES, Attribute, SymbolMaker
from porter.frameworks.mxnet.sites import filters, sides
from porter.frameworks.numpy.nets import NONE, Held, Trained
from porter.frameworks.single_ones import Choice, Spread, choosing, gathering, spreading
from porter.graph import Node, Op, ops
from porter.graph.ops import is_map
from porter.padding import less

Spelling: TypeAlias = Callable[[SymbolMaker, Node, Any], object]
_LARGEST = float(np.finfo(np.float32).max)


def _plain(
    op: str, stated: Callable[[Any], Mapping[str, Attribute]] = lambda op: {}, *roles: str
) -> Spelling:
    """One node of the values that the op takes, and of its tensors of these roles."""

    def spelling(maker: SymbolMaker, node: Node, said: Op) -> None:
        name = maker.values[node.path]
        maker.node(op, name, *node.inputs, *maker.trained(node.path, name, *roles), **stated(said))

    return spelling


def _in_turn(alike: str, other: str) -> Spelling:
    """A node of two values for each value after the first: `alike` where they have one shape."""

    def spelling(maker: SymbolMaker, node: Node, op: Op) -> None:
        *before, last = node.inputs
        kind, name = (
            alike if len({maker.shapes[path] for path in node.inputs}) == 1 else other,
            maker.values[node.path],
        )
        first = reduce(lambda value, path: maker.node(kind, maker.name(f"{name}_part"), value, path), before)
        maker.node(kind, name, first, last)

    return spelling


def _by_channel(maker: SymbolMaker, node: Node, *steps: tuple[str, Held | None]) -> None:
    """Operators of a value and of one number for each channel."""
    name, (value,), held = (
        maker.values[node.path],
        node.inputs,
        [step for step in steps if step[1] is not None],
    )
    for place, (kind, numbers) in enumerate(held, 1):
        assert numbers is not None
        variable = maker.variable(f"{name}_{kind.removeprefix('broadcast_')}", numbers)
        value = maker.node(
            kind, name if place == len(held) else maker.name(f"{name}_scaled"), value, variable
        )


def _channel_scale(maker: SymbolMaker, node: Node, op: ops.ChannelScale) -> None:
    shape = maker.along_channels(node.path)
    beta = Trained(node.path, "beta", shape) if op.bias else None
    _by_channel(maker, node, ("broadcast_mul", Trained(node.path, "gamma", shape)), ("broadcast_add", beta))


def _affine(maker: SymbolMaker, node: Node, op: ops.Affine) -> None:
    if len(op.scale) == len(op.offset) == 1:
        name, (source,) = maker.values[node.path], node.inputs
        if op.offset == (0,):
            maker.node("_mul_scalar", name, source, scalar=op.scale[0])
            return
        if op.scale != (1,):
            source = maker.node("_mul_scalar", maker.name(f"{name}_scaled"), source, scalar=op.scale[0])
        maker.node("_plus_scalar", name, source, scalar=op.offset[0])
        return
    shape = maker.along_channels(node.path)
    scale, offset = (
        np.broadcast_to(np.reshape(numbers, (1, -1, *(1,) * (len(shape) - 2))), shape)
        for numbers in (op.scale, op.offset)
    )
    _by_channel(maker, node, ("broadcast_mul", scale), ("broadcast_add", offset))


def _factors(maker: SymbolMaker, node: Node, op: ops.BatchNorm | ops.GroupNorm) -> list[str]:
    """Variables of a norm's gamma and beta: MXNet's norms have both, where the source lacks one too."""
    path, name, channels = node.path, maker.values[node.path], maker.channels(node.path)
    gamma: Held = Trained(path, "gamma", (channels,)) if op.scale else np.ones(channels)
    beta: Held = Trained(path, "beta", (channels,)) if op.center else np.zeros(channels)
    return [maker.variable(f"{name}_gamma", gamma), maker.variable(f"{name}_beta", beta)]


def _batch_norm(maker: SymbolMaker, node: Node, op: ops.BatchNorm) -> None:
    name, shape = maker.values[node.path], (maker.channels(node.path),)
    factors, roles = _factors(maker, node, op), ("mean", "variance")
    states = [
        maker.variable(f"{name}_{NAMES[role]}", Trained(node.path, role, shape), state=True) for role in roles
    ]
    stated: dict[str, Attribute] = {
        "eps": op.epsilon,
        "momentum": round(1 - op.momentum, 9),
        "fix_gamma": not op.scale,
    }
    maker.node("BatchNorm", name, *node.inputs, *factors, *states, **stated)


def _instance_norm(maker: SymbolMaker, node: Node, op: ops.GroupNorm) -> None:
    if op.groups != maker.channels(node.path) or not is_map(maker.shapes[node.path]):
        raise GraphError("porter writes MXNet's InstanceNorm, not norms of several channels", where=node.path)
    maker.node(
        "InstanceNorm", maker.values[node.path], *node.inputs, *_factors(maker, node, op), eps=op.epsilon
    )


def _response_norm(maker: SymbolMaker, node: Node, op: ops.LocalResponseNorm) -> None:
    if op.size % 2 == 0:
        raise GraphError(f"MXNet's LRN takes an odd number of channels, not {op.size}", where=node.path)
    numbers = {"alpha": op.alpha * op.size, "beta": op.beta, "knorm": op.bias}
    maker.node("LRN", maker.values[node.path], *node.inputs, nsize=op.size, **numbers)


def _softplus(maker: SymbolMaker, node: Node, op: ops.Softplus) -> None:
    if not op.cut:
        raise GraphError("MXNet's softrelu is x above 20, not log(1 + exp(x))", where=node.path)
    maker.node("Activation", maker.values[node.path], *node.inputs, act_type="softrelu")


def _gelu(maker: SymbolMaker, node: Node, op: ops.Gelu) -> None:
    if op.approximate:
        raise GraphError("MXNet's GELU is the exact one, not that of a tanh", where=node.path)
    maker.node("LeakyReLU", maker.values[node.path], *node.inputs, act_type="gelu")


def _swish(maker: SymbolMaker, node: Node, op: ops.Swish) -> None:
    name = maker.values[node.path]
    share = maker.node("Activation", maker.name(f"{name}_share"), *node.inputs, act_type="sigmoid")
    maker.node("elemwise_mul", name, *node.inputs, share)


def _celu(maker: SymbolMaker, node: Node, op: ops.Celu) -> None:
    """What is below 0, over alpha, goes through an ELU."""
    name = maker.values[node.path]
    below = maker.node("clip", maker.name(f"{name}_below"), *node.inputs, **_clip(-math.inf, 0.0))
    share = maker.node("_mul_scalar", maker.name(f"{name}_share"), below, scalar=1 / op.alpha)
    curve = maker.node("LeakyReLU", maker.name(f"{name}_curve"), share, act_type="elu", slope=op.alpha)
    over = maker.node("Activation", maker.name(f"{name}_over"), *node.inputs, act_type="relu")
    maker.node("elemwise_add", name, over, curve)


def _mish(maker: SymbolMaker, node: Node, op: ops.Mish) -> None:
    """tanh is 1 where softrelu is x."""
    name = maker.values[node.path]
    smooth = maker.node("Activation", maker.name(f"{name}_smooth"), *node.inputs, act_type="softrelu")
    share = maker.node("Activation", maker.name(f"{name}_share"), smooth, act_type="tanh")
    maker.node("elemwise_mul", name, *node.inputs, share)


def _step(maker: SymbolMaker, node: Node, op: ops.Step) -> None:
    kind = "_greater_equal_scalar" if op.inclusive else "_greater_scalar"
    maker.node(kind, maker.values[node.path], *node.inputs, scalar=0.0)


def _hard_sigmoid(maker: SymbolMaker, node: Node, op: ops.HardSigmoid) -> None:
    """MXNet's own holds its numbers as float32, which rounds a sixth; scalars are float64."""
    name = maker.values[node.path]
    line = maker.node("_mul_scalar", maker.name(f"{name}_scaled"), *node.inputs, scalar=op.slope)
    line = maker.node("_plus_scalar", maker.name(f"{name}_line"), line, scalar=op.offset)
    maker.node("clip", name, line, a_min=0.0, a_max=1.0)


def _hard_swish(maker: SymbolMaker, node: Node, op: ops.HardSwish) -> None:
    name, (source,) = maker.values[node.path], node.inputs
    moved = maker.node("_plus_scalar", maker.name(f"{name}_moved"), source, scalar=3.0)
    cut = maker.node("clip", maker.name(f"{name}_cut"), moved, a_min=0.0, a_max=6.0)
    maker.node(
        "_div_scalar",
        name,
        maker.node("elemwise_mul", maker.name(f"{name}_product"), source, cut),
        scalar=6.0,
    )


def _global_pool(kind: str) -> Spelling:
    def spelling(maker: SymbolMaker, node: Node, op: ops.GlobalAvgPool | ops.GlobalMaxPool) -> None:
        name = maker.values[node.path]
        pooled = maker.node(
            "Pooling",
            name if op.keep else maker.name(f"{name}_cell"),
            *node.inputs,
            pool_type=kind,
            global_pool=True,
            kernel=(1, 1),
        )
        if not op.keep:
            maker.node("Flatten", name, pooled)

    return spelling


def _reduce(maker: SymbolMaker, node: Node, op: ops.ReduceMap) -> None:
    if op.function == "norm":
        raise GraphError("porter writes no norm along an axis for MXNet", where=node.path)
    maker.node(op.function, maker.values[node.path], *node.inputs, axis=(1 + op.over,), keepdims=True)


def _flatten(maker: SymbolMaker, node: Node, op: ops.Flatten) -> None:
    name, (source,) = maker.values[node.path], node.inputs
    if op.order == "HWC" and (op.rows, op.columns) != (1, 1):
        source = maker.node("transpose", maker.name(f"{name}_channels_last"), source, axes=(0, 2, 3, 1))
    maker.node("Flatten", name, source)


def _extended(maker: SymbolMaker, node: Node, op: ops.ExtendMap) -> None:
    if op.mode not in ("edge", "reflect"):
        raise GraphError(f"MXNet's Pad knows no mode {op.mode}", where=node.path)
    maker.padded(maker.values[node.path], node.inputs[0], op.pads, mode=op.mode)


def _chosen(maker: SymbolMaker, node: Node, op: Choice) -> None:
    name, (source,) = maker.values[node.path], node.inputs
    if isinstance(op, ops.SliceChannels) and op.step == 1:
        maker.node("slice_axis", name, source, axis=1, begin=op.start, end=op.stop)
    else:
        maker.chosen(name, source, choosing(op, maker.channels(source)))


def _transposed(maker: SymbolMaker, node: Node, op: ops.ConvTranspose) -> None:
    """What is cut alike from both sides are its pads; anything else is cut, or added, behind it."""
    path, name, (top, bottom, left, right) = node.path, maker.values[node.path], op.cut
    alike = (top, left) == (bottom, right) and min(op.cut) >= 0
    late = op.bias and min(op.cut) < 0  # cells that only the bias reaches
    stated = sides(op.window, op.cut if alike else NONE) | filters(
        op.filters, op.groups, op.bias and not late
    )
    held = maker.trained(path, name, "kernel", *([] if late else ["bias"]))
    whole = maker.node(
        "Deconvolution", name if alike else maker.name(f"{name}_whole"), *node.inputs, *held, **stated
    )
    if not alike:
        moved = maker.moved(maker.name(f"{name}_moved") if late else name, whole, less(NONE, op.cut))
        if late:
            bias = maker.variable(f"{name}_bias", Trained(path, "bias", maker.along_channels(path)))
            maker.node("broadcast_add", name, moved, bias)


def _spread(maker: SymbolMaker, node: Node, op: Spread) -> None:
    name, (kernel, groups) = maker.values[node.path], spreading(op, maker.channels(node.inputs[0]))
    sides, own = kernel.shape[2:], filters(kernel.shape[1] * groups, groups, False)
    maker.node(
        "Deconvolution",
        name,
        *node.inputs,
        maker.variable(f"{name}_weight", kernel),
        kernel=sides,
        stride=sides,
        **own,
    )


def _space_to_depth(maker: SymbolMaker, node: Node, op: ops.SpaceToDepth) -> None:
    name, kernel = maker.values[node.path], gathering(op, maker.channels(node.inputs[0]))
    sides, own = (op.block, op.block), filters(len(kernel), 1, False)
    maker.node(
        "Convolution",
        name,
        *node.inputs,
        maker.variable(f"{name}_weight", kernel),
        kernel=sides,
        stride=sides,
        **own,
    )


def _clip(low: float, high: float) -> Mapping[str, Attribute]:
    return {
        "a_min": low if math.isfinite(low) else -_LARGEST,
        "a_max": high if math.isfinite(high) else _LARGEST,
    }


PLAIN: Mapping[type[Op], Spelling] = {
    ops.ConvTranspose: _transposed,
    ops.GlobalAvgPool: _global_pool("avg"),
    ops.GlobalMaxPool: _global_pool("max"),
    ops.ReduceMap: _reduce,
    ops.Dense: _plain(
        "FullyConnected", lambda op: {"num_hidden": op.units, "no_bias": not op.bias}, "kernel", "bias"
    ),
    ops.BatchNorm: _batch_norm,
    ops.GroupNorm: _instance_norm,
    ops.LocalResponseNorm: _response_norm,
    ops.ChannelScale: _channel_scale,
    ops.Affine: _affine,
    ops.Relu: _plain("Activation", lambda op: {"act_type": "relu"}),
    ops.Relu6: _plain("clip", lambda op: _clip(0.0, 6.0)),
    ops.Clip: _plain("clip", lambda op: _clip(op.low, op.high)),
    ops.LeakyRelu: _plain("LeakyReLU", lambda op: {"act_type": "leaky", "slope": op.slope}),
    ops.PRelu: _plain("LeakyReLU", lambda op: {"act_type": "prelu"}, "alpha"),
    ops.Elu: _plain("LeakyReLU", lambda op: {"act_type": "elu", "slope": op.alpha}),
    ops.Celu: _celu,
    ops.Selu: _plain("LeakyReLU", lambda op: {"act_type": "selu"}),
    ops.Gelu: _gelu,
    ops.Sigmoid: _plain("Activation", lambda op: {"act_type": "sigmoid"}),
    ops.Tanh: _plain("Activation", lambda op: {"act_type": "tanh"}),
    ops.Softplus: _softplus,
    ops.Softsign: _plain("Activation", lambda op: {"act_type": "softsign"}),
    ops.HardSigmoid: _hard_sigmoid,
    ops.Swish: _swish,
    ops.HardSwish: _hard_swish,
    ops.Mish: _mish,
    ops.Softmax: _plain("softmax", lambda op: {"axis": 1}),
    ops.LogSoftmax: _plain("log_softmax", lambda op: {"axis": 1}),
    ops.Step: _step,
    **{type(op): _plain(name) for name, op in OF_NUMBERS.items()},
    ops.Power: _plain("_power_scalar", lambda op: {"scalar": op.exponent}),
    ops.Add: _in_turn("elemwise_add", "broadcast_add"),
    ops.Multiply: _in_turn("elemwise_mul", "broadcast_mul"),
    ops.Divide: _in_turn("elemwise_div", "broadcast_div"),
    ops.Maximum: _in_turn("broadcast_maximum", "broadcast_maximum"),
    ops.Minimum: _in_turn("broadcast_minimum", "broadcast_minimum"),
    ops.ConcatChannels: lambda maker, node, op: maker.node(
        "Concat", maker.values[node.path], *node.inputs, dim=1, num_args=len(node.inputs)
    ),
    **dict.fromkeys((ops.Identity, ops.Dropout), _plain("_mul_scalar", lambda op: {"scalar": 1.0})),
    ops.Flatten: _flatten,
    ops.AsMap: _plain("Reshape", lambda op: {"shape": (0, 0, 1, 1)}),
    ops.Rearrange: _plain("Reshape", lambda op: {"shape": (-1,)}),
    ops.PadMap: lambda maker, node, op: maker.padded(
        maker.values[node.path], node.inputs[0], op.pads, op.fill
    ),
    ops.ExtendMap: _extended,
    ops.CropMap: lambda maker, node, op: maker.cropped(maker.values[node.path], node.inputs[0], op.pads),
    ops.PadChannels: _chosen,
    ops.SliceChannels: _chosen,
    ops.ChannelShuffle: _chosen,
    ops.DepthToSpace: _spread,
    ops.SpaceToDepth: _space_to_depth,
    ops.Upsample: _spread,
}
"""Ops without a padding site that MXNet has, or of which its operators compose the same numbers."""
