"""How Caffe says each op that it has: its layers, of which the last has the op's path. Windowed ops are in
porter.frameworks.caffe.sites. Every layer is one that Caffe 1.0 has, and OpenCV.

A few ops are compositions that are exact in every number: cells are moved by convolutions of a single one.
What is made of other ops is in porter.graph.lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from porter.base.errors import GraphError
from porter.filegraph.tensors.functions import SELU_ALPHA, SELU_GAMMA
from porter.frameworks.caffe.maker import CaffeNode, CaffeParameter, norm_name
from porter.frameworks.caffe.sites import window_parameters
from porter.frameworks.numpy.nets import NO_PADS, NetArray, place_cut, share_of_old
from porter.frameworks.single_ones import (
    ChannelChoice,
    Spread,
    channel_choice_kernel,
    gathering_kernel,
    spreading_kernel,
)
from porter.graph import Op, ops
from porter.graph.ops import is_map
from porter.padding import subtract_pads

Spelling: TypeAlias = Callable[[CaffeNode[Any]], object]


Parameters: TypeAlias = Mapping[str, CaffeParameter]


def _one_layer(
    kind: str, parameters: Callable[[Any], Parameters] = lambda op: {}, roles: tuple[str, ...] = ()
) -> Spelling:
    """Return the spelling of an op as one layer, of the values that the op takes and of its tensors of these
    roles.
    """
    return lambda node: node.result(kind, *node.inputs, blobs=node.tensors(*roles), **parameters(node.op))


def _eltwise(operation: str) -> Spelling:
    """Return the spelling of an op as an Eltwise of values of one shape."""

    def spelling(node: CaffeNode[Op]) -> None:
        _expect_one_shape(node)
        node.result("Eltwise", *node.inputs, operation=operation)

    return spelling


def _expect_one_shape(node: CaffeNode[Op]) -> None:
    """Refuse values of different shapes, which Caffe's Eltwise does not take."""
    if len({node.maker.shapes[path] for path in node.inputs}) > 1:
        raise GraphError("Caffe's Eltwise takes values of one shape", where=node.path)


def _multiply(node: CaffeNode[ops.Multiply]) -> None:
    """Add a Scale for a map times numbers for each channel, as of a squeeze and excitation; otherwise an
    Eltwise.
    """
    # maps of one cell
    factors = [path for path in node.inputs if node.maker.shapes[path][1:] == (1, 1)]
    have_same_channels = len({node.maker.channels(path) for path in node.inputs}) == 1
    is_scale = len(node.inputs) == 2 and len(factors) == 1 and have_same_channels
    if not is_scale:
        _eltwise("PROD")(node)
        return
    (source,) = (path for path in node.inputs if path not in factors)
    flat = node.step("factors", "Flatten", *factors)
    # From axis 0: a factor for each image and channel.
    node.result("Scale", source, flat, axis=0)


def _clip(node: CaffeNode[ops.Clip]) -> None:
    """Add min(max(x, low), high) as -max(-max(x, low), -high), because Caffe's Eltwise has no minimum. 6 -
    relu(6 - x) would round.
    """
    value, low = node.source, node.op.low
    if low == 0:
        value = node.step("low", "ReLU", value)
    else:
        lowest = node.maker.add_filled(node.part("least"), value, low)
        value = node.step("low", "Eltwise", value, lowest, operation="MAX")
    negative = node.maker.add_negative(node.part("negative"), value)
    highest = node.maker.add_filled(node.part("most"), value, -node.op.high)
    node.maker.add_negative(node.path, node.step("high", "Eltwise", negative, highest, operation="MAX"))


def _selu(node: CaffeNode[ops.Selu]) -> None:
    elu = node.step("elu", "ELU", *node.inputs, alpha=SELU_ALPHA)
    node.result("Power", elu, scale=SELU_GAMMA)


def _softplus(node: CaffeNode[ops.Softplus]) -> None:
    """Add a BNLL. Raise GraphError for a softplus that is cut, which is x where x is large."""
    if node.op.cut:
        raise GraphError("Caffe's BNLL is log(1 + exp(x)) for every x, not x above 20", where=node.path)
    node.result("BNLL", *node.inputs)


def _batch_norm(node: CaffeNode[ops.BatchNorm]) -> None:
    """Add a BatchNorm, which only normalises, and a Scale behind it where the norm has a scale or a
    centre.
    """
    has_scale = node.op.scale or node.op.center
    name = norm_name(node.path) if has_scale else node.path
    # The last blob is what Caffe divides both statistics by.
    blobs: list[NetArray] = [*node.tensors("mean", "variance"), np.ones(1)]
    parameters: dict[str, CaffeParameter] = {
        "eps": node.op.epsilon,
        "moving_average_fraction": share_of_old(node.op.momentum),
    }
    normed = node.maker.add("BatchNorm", name, *node.inputs, blobs=blobs, use_global_stats=True, **parameters)
    if has_scale:
        _add_scale(node, normed)


def _add_scale(node: CaffeNode[Op], source: str) -> None:
    """Add a Scale layer with the node's gamma, or ones, and beta."""
    blobs: list[NetArray] = node.tensors("gamma", "beta")
    roles = node.maker.tensors[node.path]
    if "gamma" not in roles:
        blobs.insert(0, np.ones(node.channels))
    node.result("Scale", source, blobs=blobs, bias_term="beta" in roles)


def _affine(node: CaffeNode[ops.Affine]) -> None:
    """Add a Power where one scale and one offset hold for all channels, otherwise a Scale."""
    op = node.op
    if len(op.scale) == len(op.offset) == 1:
        node.result("Power", *node.inputs, scale=op.scale[0], shift=op.offset[0])
        return
    blobs = [np.broadcast_to(np.array(numbers), node.channels) for numbers in (op.scale, op.offset)]
    node.result("Scale", *node.inputs, blobs=blobs, bias_term=True)


def _response_norm(node: CaffeNode[ops.LocalResponseNorm]) -> None:
    """Add an LRN, x / (bias + alpha * sum) ** beta. A positive bias other than 1 is taken out of the power as
    a factor: bias ** -beta * x / (1 + alpha / bias * sum) ** beta.
    """
    op = node.op
    # A power of a bias of 0 or less is no factor.
    if op.bias <= 0 or op.bias == 1:
        node.result(
            "LRN",
            *node.inputs,
            local_size=op.size,
            alpha=op.alpha * op.size,
            beta=op.beta,
            k=op.bias,
        )
        return
    # OpenCV 4.14 reads no `k` and takes 1, so the rest of it is a factor.
    alpha = op.alpha * op.size / op.bias
    scaled = node.step("of_one", "LRN", *node.inputs, local_size=op.size, alpha=alpha, beta=op.beta)
    node.result("Power", scaled, scale=op.bias**-op.beta)


def _dense(node: CaffeNode[ops.Dense]) -> None:
    blobs = node.tensors("kernel", "bias")
    node.result("InnerProduct", *node.inputs, blobs=blobs, num_output=node.op.units, bias_term=node.op.bias)


def _flatten(node: CaffeNode[ops.Flatten]) -> None:
    """Add a Flatten, which takes all cells of a channel one after the other. For the order HWC, all channels
    of a cell, the map becomes a line of cells first, of which each is cut out, and these are joined.
    """
    source, cells = node.source, node.op.rows * node.op.columns
    if node.op.order == "HWC" and cells > 1:
        shape = {"dim": (0, node.maker.channels(source), cells, 1)}
        line = node.step("line", "Reshape", source, shape=shape)
        source = node.step("cells", "Concat", *node.maker.add_slices(node.path, line, 2, cells), axis=1)
    node.result("Flatten", source)


def _choose_channels(node: CaffeNode[ChannelChoice]) -> None:
    """Add a choice of channels, such as a shuffle or a pad by channels of zeros, as a product with a kernel
    of zeros and ones: by a Convolution of one cell for maps, an InnerProduct for features.
    """
    source, kernel = node.source, channel_choice_kernel(node.op, node.maker.channels(node.source))
    filters = len(kernel)
    if is_map(node.maker.shapes[source]):
        blobs = [kernel[:, :, np.newaxis, np.newaxis]]
        node.result("Convolution", source, blobs=blobs, num_output=filters, kernel_size=1, bias_term=False)
    else:
        node.result("InnerProduct", source, blobs=[kernel], num_output=filters, bias_term=False)


def _pad_map(node: CaffeNode[ops.PadMap]) -> None:
    """Add pads of zeros, or cut off as many cells where they are negative. Raise GraphError for pads of
    another number.
    """
    if node.op.fill:
        raise GraphError(f"Caffe pads with zeros only, not with {node.op.fill:g}", where=node.path)
    node.maker.add_move(node.path, node.source, node.channels, node.op.pads)


def _conv_transpose(node: CaffeNode[ops.ConvTranspose]) -> None:
    """Add a Deconvolution. A cut that is the same on opposite sides is stated as its pads; any other is cut,
    or added, behind it.
    """
    op, place = node.op, place_cut(node.op)
    kernel, *bias = node.tensors("kernel", "bias")
    own_bias = [] if place.bias_behind else bias
    parameters = window_parameters(op.window, place.stated) | {
        "num_output": op.filters,
        "bias_term": bool(own_bias),
    }
    if op.window.dilation != (1, 1):
        parameters["dilation"] = op.window.dilation
    if op.groups != 1:
        parameters["group"] = op.groups
    # The last layer has the path.
    ending = "" if place.behind is None else "whole"
    uncut = node.step(ending, "Deconvolution", *node.inputs, blobs=[kernel, *own_bias], **parameters)
    if place.behind is None:
        return
    name = node.part("cut" if place.bias_behind else "")
    cut = node.maker.add_move(name, uncut, op.filters, place.behind)
    if place.bias_behind:
        node.result("Scale", cut, blobs=[np.ones(op.filters), *bias], bias_term=True)


def _spread_cells(node: CaffeNode[Spread]) -> None:
    """Add a Deconvolution by a fixed kernel of zeros and ones, which makes a block of cells of each cell: of
    one channel for an Upsample, of several for a DepthToSpace.
    """
    kernel, group = spreading_kernel(node.op, node.maker.channels(node.source))
    rows, columns = kernel.shape[2:]
    parameters: dict[str, CaffeParameter] = {
        "kernel_h": rows,
        "kernel_w": columns,
        "stride_h": rows,
        "stride_w": columns,
        "group": group,
    }
    filters = kernel.shape[1] * group
    node.result(
        "Deconvolution", *node.inputs, blobs=[kernel], num_output=filters, bias_term=False, **parameters
    )


def _space_to_depth(node: CaffeNode[ops.SpaceToDepth]) -> None:
    """Add a Convolution by a fixed kernel of zeros and ones, which makes channels of the cells of a block."""
    kernel = gathering_kernel(node.op, node.maker.channels(node.source))
    parameters = {"kernel_size": node.op.block, "stride": node.op.block}
    node.result(
        "Convolution", *node.inputs, blobs=[kernel], num_output=len(kernel), bias_term=False, **parameters
    )


PLAIN: Mapping[type[Op], Spelling] = {
    ops.ConvTranspose: _conv_transpose,
    ops.GlobalAvgPool: _one_layer("Pooling", lambda op: {"pool": "AVE", "global_pooling": True}),
    ops.GlobalMaxPool: _one_layer("Pooling", lambda op: {"pool": "MAX", "global_pooling": True}),
    ops.Dense: _dense,
    ops.BatchNorm: _batch_norm,
    ops.LocalResponseNorm: _response_norm,
    ops.ChannelScale: lambda node: _add_scale(node, node.source),
    ops.Affine: _affine,
    ops.Relu: _one_layer("ReLU"),
    ops.Clip: _clip,
    ops.LeakyRelu: _one_layer("ReLU", lambda op: {"negative_slope": op.slope}),
    ops.PRelu: _one_layer("PReLU", roles=("alpha",)),
    ops.Elu: _one_layer("ELU", lambda op: {"alpha": op.alpha}),
    ops.Selu: _selu,
    ops.Sigmoid: _one_layer("Sigmoid"),
    ops.Tanh: _one_layer("TanH"),
    ops.Softplus: _softplus,
    ops.Softmax: _one_layer("Softmax", lambda op: {"axis": 1}),
    ops.Abs: _one_layer("AbsVal"),
    ops.Exp: _one_layer("Exp"),
    ops.Log: _one_layer("Log"),
    ops.Sqrt: _one_layer("Power", lambda op: {"power": 0.5}),
    ops.Reciprocal: _one_layer("Power", lambda op: {"power": -1.0}),
    ops.Power: _one_layer("Power", lambda op: {"power": op.exponent}),
    ops.Add: _eltwise("SUM"),
    ops.Multiply: _multiply,
    ops.Maximum: _eltwise("MAX"),
    ops.ConcatChannels: _one_layer("Concat", lambda op: {"axis": 1}),
    **dict.fromkeys((ops.Identity, ops.Dropout), _one_layer("Power")),
    ops.Flatten: _flatten,
    ops.AsMap: lambda node: node.result("Reshape", *node.inputs, shape={"dim": (0, 0, 1, 1)}),
    ops.Rearrange: _one_layer("Reshape", lambda op: {"shape": {"dim": (-1,)}}),
    ops.PadMap: _pad_map,
    ops.CropMap: lambda node: node.maker.add_move(
        node.path, node.source, node.channels, subtract_pads(NO_PADS, node.op.pads)
    ),
    ops.PadChannels: _choose_channels,
    ops.SliceChannels: _choose_channels,
    ops.ChannelShuffle: _choose_channels,
    ops.DepthToSpace: _spread_cells,
    ops.SpaceToDepth: _space_to_depth,
    ops.Upsample: _spread_cells,
}
"""Ops without a padding site that Caffe has, or of which its layers compose the same numbers."""


def lacks_op(op: Op) -> bool:
    """Say whether Caffe lacks an op, or this kind of it: its LRN takes an odd number of channels, and a pool
    gives a map.
    """
    match op:
        case ops.LocalResponseNorm():
            return op.size % 2 == 0
        case ops.GlobalPool():
            return not op.keep
    return type(op) not in PLAIN
