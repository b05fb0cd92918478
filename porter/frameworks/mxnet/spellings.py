"""How MXNet says each op that it has: its operators, of which the last has the op's path. Windowed ops are in
porter.frameworks.mxnet.sites.

A few ops are compositions that are exact in every number, such as channels that a convolution of zeros and
ones chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from porter.base.errors import GraphError
from porter.formats.mxnet.plain import OPS_OF_NUMBERS
from porter.frameworks.mxnet.maker import NAMES, MxnetAttribute, MxnetNode
from porter.frameworks.mxnet.sites import filter_attributes, window_attributes
from porter.frameworks.numpy.nets import NetArray, PortTensor, place_cut, share_of_old
from porter.frameworks.single_ones import (
    ChannelChoice,
    Spread,
    channel_choice_kernel,
    gathering_kernel,
    spreading_kernel,
)
from porter.graph import Op, ops
from porter.graph.ops import is_map

Spelling: TypeAlias = Callable[[MxnetNode[Any]], object]
_GLOBAL: Mapping[str, MxnetAttribute] = {"global_pool": True, "kernel": (1, 1)}


def _one_node(
    op: str, attributes: Callable[[Any], Mapping[str, MxnetAttribute]] = lambda op: {}, *roles: str
) -> Spelling:
    """Return the spelling of an op as one node, of the values that the op takes and of its tensors of these
    roles.
    """
    return lambda node: node.result(op, *node.inputs, *node.tensors(*roles), **attributes(node.op))


def _pairwise(of_one_shape: str, broadcasting: str) -> Spelling:
    """Return a spelling that adds a node of two values for each value after the first: `of_one_shape` where
    all have one shape, otherwise `broadcasting`.
    """

    def spelling(node: MxnetNode[Op]) -> None:
        """Add the nodes of the node's values, from left to right."""
        first, *between, last = node.inputs
        have_one_shape = len({node.maker.shapes[path] for path in node.inputs}) == 1
        kind = of_one_shape if have_one_shape else broadcasting
        value = first
        for path in between:
            value = node.step("part", kind, value, path)
        node.result(kind, value, last)

    return spelling


def _add_per_channel(node: MxnetNode[Op], *steps: tuple[str, NetArray | None]) -> None:
    """Add a node for each step, an operator of a value and of one number for each channel; steps without
    numbers are left out.
    """
    value = node.source
    present_steps = [(kind, numbers) for kind, numbers in steps if numbers is not None]
    for number, (kind, numbers) in enumerate(present_steps, 1):
        variable = node.maker.add_variable(f"{node.name}_{kind.removeprefix('broadcast_')}", numbers)
        # The last node has the path.
        ending = "" if number == len(present_steps) else "scaled"
        value = node.step(ending, kind, value, variable)


def _channel_scale(node: MxnetNode[ops.ChannelScale]) -> None:
    """Add a product with the trained gamma and, if the op has a bias, a sum with its beta, each one number
    for each channel.
    """
    shape = node.maker.shape_along_channels(node.path)
    beta = PortTensor(node.path, "beta", shape) if node.op.bias else None
    _add_per_channel(node, ("broadcast_mul", PortTensor(node.path, "gamma", shape)), ("broadcast_add", beta))


def _affine(node: MxnetNode[ops.Affine]) -> None:
    """Add x * scale + offset: by operators of one number where there is one for all channels, without a step
    that changes nothing; otherwise by arrays with a number for each channel.
    """
    op = node.op
    if len(op.scale) == len(op.offset) == 1:
        source = node.source
        if op.offset == (0,):
            node.result("_mul_scalar", source, scalar=op.scale[0])
            return
        if op.scale != (1,):
            source = node.step("scaled", "_mul_scalar", source, scalar=op.scale[0])
        node.result("_plus_scalar", source, scalar=op.offset[0])
        return
    shape = node.maker.shape_along_channels(node.path)
    axes_of_cells = (1,) * (len(shape) - 2)
    scale, offset = (
        # one number, or one for each channel
        np.broadcast_to(np.reshape(numbers, (1, -1, *axes_of_cells)), shape)
        for numbers in (op.scale, op.offset)
    )
    _add_per_channel(node, ("broadcast_mul", scale), ("broadcast_add", offset))


def _norm_factors(node: MxnetNode[ops.BatchNorm | ops.GroupNorm]) -> list[str]:
    """Add variables for a norm's gamma and beta and return their names: MXNet's norms have both, where the
    source lacks one too.
    """
    path, name, channels = node.path, node.name, node.channels
    gamma: NetArray = PortTensor(path, "gamma", (channels,)) if node.op.scale else np.ones(channels)
    beta: NetArray = PortTensor(path, "beta", (channels,)) if node.op.center else np.zeros(channels)
    return [node.maker.add_variable(f"{name}_gamma", gamma), node.maker.add_variable(f"{name}_beta", beta)]


def _batch_norm(node: MxnetNode[ops.BatchNorm]) -> None:
    """Add a BatchNorm, whose mean and variance are states: variables that training updates, and that no
    gradient changes.
    """
    shape = (node.channels,)
    factors, roles = _norm_factors(node), ("mean", "variance")
    states = [
        node.maker.add_variable(f"{node.name}_{NAMES[role]}", PortTensor(node.path, role, shape), state=True)
        for role in roles
    ]
    attributes: dict[str, MxnetAttribute] = {
        "eps": node.op.epsilon,
        "momentum": share_of_old(node.op.momentum),
        "fix_gamma": not node.op.scale,
    }
    node.result("BatchNorm", *node.inputs, *factors, *states, **attributes)


def _instance_norm(node: MxnetNode[ops.GroupNorm]) -> None:
    """Add an InstanceNorm for a group norm of maps with one channel in each group. Raise GraphError for any
    other.
    """
    if node.op.groups != node.channels or not is_map(node.shape):
        raise GraphError("porter writes MXNet's InstanceNorm, not norms of several channels", where=node.path)
    node.result("InstanceNorm", *node.inputs, *_norm_factors(node), eps=node.op.epsilon)


def _response_norm(node: MxnetNode[ops.LocalResponseNorm]) -> None:
    """Add an LRN, which normalises each number by the `size` channels around it."""
    op = node.op
    # MXNet divides alpha by the size, porter does not.
    numbers = {"alpha": op.alpha * op.size, "beta": op.beta, "knorm": op.bias}
    node.result("LRN", *node.inputs, nsize=op.size, **numbers)


def _softplus(node: MxnetNode[ops.Softplus]) -> None:
    """Add a softrelu. Raise GraphError for a softplus that is not cut, because MXNet's softrelu gives x
    itself where x is above 20.
    """
    if not node.op.cut:
        raise GraphError("MXNet's softrelu is x above 20, not log(1 + exp(x))", where=node.path)
    node.result("Activation", *node.inputs, act_type="softrelu")


def _step(node: MxnetNode[ops.Step]) -> None:
    kind = "_greater_equal_scalar" if node.op.inclusive else "_greater_scalar"
    node.result(kind, *node.inputs, scalar=0.0)


def _hard_swish(node: MxnetNode[ops.HardSwish]) -> None:
    """Add a hard swish that divides by 6, because a sixth is rounded in float32, and 6 is not."""
    shifted = node.step("moved", "_plus_scalar", node.source, scalar=3.0)
    cut = node.step("cut", "clip", shifted, a_min=0.0, a_max=6.0)
    product = node.step("product", "elemwise_mul", node.source, cut)
    node.result("_div_scalar", product, scalar=6.0)


def _reduce(node: MxnetNode[ops.ReduceMap]) -> None:
    """Add a mean or the like of a map along an axis, which keeps one cell. Raise GraphError for a norm."""
    if node.op.function == "norm":
        raise GraphError("porter writes no norm along an axis for MXNet", where=node.path)
    node.result(node.op.function, *node.inputs, axis=(1 + node.op.over,), keepdims=True)


def _flatten(node: MxnetNode[ops.Flatten]) -> None:
    """Add a Flatten; where the cells come before the channels, behind a transpose."""
    source = node.source
    if node.op.order == "HWC" and (node.op.rows, node.op.columns) != (1, 1):
        source = node.step("channels_last", "transpose", source, axes=(0, 2, 3, 1))
    node.result("Flatten", source)


def _extend_map(node: MxnetNode[ops.ExtendMap]) -> None:
    """Add a Pad that repeats the edge or reflects the map. Raise GraphError for any other mode."""
    if node.op.mode not in ("edge", "reflect"):
        raise GraphError(f"MXNet's Pad knows no mode {node.op.mode}", where=node.path)
    node.maker.add_pad(node.name, node.source, node.op.pads, mode=node.op.mode)


def _choose_channels(node: MxnetNode[ChannelChoice]) -> None:
    """Add a choice of channels, such as a shuffle or a pad by channels of zeros: a slice where they are a
    range, otherwise a product with a kernel of zeros and ones.
    """
    source, op = node.source, node.op
    if isinstance(op, ops.SliceChannels) and op.step == 1:
        node.result("slice_axis", source, axis=1, begin=op.start, end=op.stop)
    else:
        node.maker.add_channel_sums(node.name, source, channel_choice_kernel(op, node.maker.channels(source)))


def _conv_transpose(node: MxnetNode[ops.ConvTranspose]) -> None:
    """Add a Deconvolution. A cut that is the same on opposite sides is stated as its pads; any other is cut,
    or added, behind it.
    """
    op, place = node.op, place_cut(node.op)
    filters = filter_attributes(op.filters, op.groups, op.bias and not place.bias_behind)
    attributes = window_attributes(op.window, place.stated) | filters
    variables = node.tensors("kernel") if place.bias_behind else node.tensors("kernel", "bias")
    # The last node has the path.
    ending = "" if place.behind is None else "whole"
    uncut = node.step(ending, "Deconvolution", *node.inputs, *variables, **attributes)
    if place.behind is None:
        return
    name = node.part("moved" if place.bias_behind else "")
    cut = node.maker.add_pad_or_crop(name, uncut, place.behind)
    if place.bias_behind:
        tensor = PortTensor(node.path, "bias", node.maker.shape_along_channels(node.path))
        bias = node.maker.add_variable(f"{node.name}_bias", tensor)
        node.result("broadcast_add", cut, bias)


def _spread_cells(node: MxnetNode[Spread]) -> None:
    """Add a Deconvolution by a fixed kernel of zeros and ones, which makes a block of cells of each cell: of
    one channel for an Upsample, of several for a DepthToSpace.
    """
    kernel, groups = spreading_kernel(node.op, node.maker.channels(node.source))
    window, filters = kernel.shape[2:], filter_attributes(kernel.shape[1] * groups, groups, False)
    node.result(
        "Deconvolution",
        *node.inputs,
        node.maker.add_variable(f"{node.name}_weight", kernel),
        kernel=window,
        stride=window,
        **filters,
    )


def _space_to_depth(node: MxnetNode[ops.SpaceToDepth]) -> None:
    """Add a Convolution by a fixed kernel of zeros and ones, which makes channels of the cells of a block."""
    kernel = gathering_kernel(node.op, node.maker.channels(node.source))
    window, filters = (node.op.block, node.op.block), filter_attributes(len(kernel), 1, False)
    node.result(
        "Convolution",
        *node.inputs,
        node.maker.add_variable(f"{node.name}_weight", kernel),
        kernel=window,
        stride=window,
        **filters,
    )


PLAIN: Mapping[type[Op], Spelling] = {
    ops.ConvTranspose: _conv_transpose,
    ops.GlobalAvgPool: _one_node("Pooling", lambda op: {"pool_type": "avg", **_GLOBAL}),
    ops.GlobalMaxPool: _one_node("Pooling", lambda op: {"pool_type": "max", **_GLOBAL}),
    ops.ReduceMap: _reduce,
    ops.Dense: _one_node(
        "FullyConnected", lambda op: {"num_hidden": op.units, "no_bias": not op.bias}, "kernel", "bias"
    ),
    ops.BatchNorm: _batch_norm,
    ops.GroupNorm: _instance_norm,
    ops.LocalResponseNorm: _response_norm,
    ops.ChannelScale: _channel_scale,
    ops.Affine: _affine,
    ops.Relu: _one_node("Activation", lambda op: {"act_type": "relu"}),
    ops.Clip: _one_node("clip", lambda op: {"a_min": op.low, "a_max": op.high}),
    ops.LeakyRelu: _one_node("LeakyReLU", lambda op: {"act_type": "leaky", "slope": op.slope}),
    ops.PRelu: _one_node("LeakyReLU", lambda op: {"act_type": "prelu"}, "alpha"),
    ops.Elu: _one_node("LeakyReLU", lambda op: {"act_type": "elu", "slope": op.alpha}),
    ops.Selu: _one_node("LeakyReLU", lambda op: {"act_type": "selu"}),
    ops.Gelu: _one_node("LeakyReLU", lambda op: {"act_type": "gelu"}),
    ops.Sigmoid: _one_node("Activation", lambda op: {"act_type": "sigmoid"}),
    ops.Tanh: _one_node("Activation", lambda op: {"act_type": "tanh"}),
    ops.Softplus: _softplus,
    ops.Softsign: _one_node("Activation", lambda op: {"act_type": "softsign"}),
    ops.HardSwish: _hard_swish,
    ops.Softmax: _one_node("softmax", lambda op: {"axis": 1}),
    ops.LogSoftmax: _one_node("log_softmax", lambda op: {"axis": 1}),
    ops.Step: _step,
    **{type(op): _one_node(name) for name, op in OPS_OF_NUMBERS.items()},
    ops.Power: _one_node("_power_scalar", lambda op: {"scalar": op.exponent}),
    ops.Add: _pairwise("elemwise_add", "broadcast_add"),
    ops.Multiply: _pairwise("elemwise_mul", "broadcast_mul"),
    ops.Divide: _pairwise("elemwise_div", "broadcast_div"),
    ops.Maximum: _pairwise("broadcast_maximum", "broadcast_maximum"),
    ops.Minimum: _pairwise("broadcast_minimum", "broadcast_minimum"),
    ops.ConcatChannels: lambda node: node.result("Concat", *node.inputs, dim=1, num_args=len(node.inputs)),
    **dict.fromkeys((ops.Identity, ops.Dropout), _one_node("_mul_scalar", lambda op: {"scalar": 1.0})),
    ops.Flatten: _flatten,
    ops.AsMap: _one_node("Reshape", lambda op: {"shape": (0, 0, 1, 1)}),
    ops.Rearrange: _one_node("Reshape", lambda op: {"shape": (-1,)}),
    ops.PadMap: lambda node: node.maker.add_pad(node.name, node.source, node.op.pads, node.op.fill),
    ops.ExtendMap: _extend_map,
    ops.CropMap: lambda node: node.maker.add_crop(node.name, node.source, node.op.pads),
    ops.PadChannels: _choose_channels,
    ops.SliceChannels: _choose_channels,
    ops.ChannelShuffle: _choose_channels,
    ops.DepthToSpace: _spread_cells,
    ops.SpaceToDepth: _space_to_depth,
    ops.Upsample: _spread_cells,
}
"""Ops without a padding site that MXNet has, or of which its operators compose the same numbers."""


def lacks_op(op: Op) -> bool:
    """Say whether MXNet lacks an op, or this kind of it: its LRN takes an odd number of channels, a pool
    gives a map, its GELU is the exact one, and its softrelu is cut. Its hard sigmoid is not in PLAIN, because
    it holds its numbers as float32, which rounds a sixth.
    """
    match op:
        case ops.GlobalPool():
            return not op.keep
        case ops.LocalResponseNorm():
            return op.size % 2 == 0
        case ops.Gelu():
            return op.approximate
        case ops.Softplus():
            return not op.cut
    return type(op) not in PLAIN
