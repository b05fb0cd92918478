"""TensorFlow's names and axis order, for Keras and for TF-slim; nothing here imports a framework.

Keras and slim keep convolution kernels as (rows, columns, channels / groups, filters), depthwise kernels as
(rows, columns, channels, multiplier), those of transposed convolutions as (rows, columns, filters, channels)
and dense kernels as (features, units).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping

import numpy as np

from porter.base.dtypes import Array
from porter.base.errors import MappingError
from porter.filegraph.names import Names
from porter.frameworks import LayerNames
from porter.graph import Graph, Node, Op, Shape, is_depthwise, ops
from porter.graph.ops import is_map
from porter.graph.plan import Plan

COUNTER_NAMES: Mapping[str, str] = {
    "Conv2D": "conv2d",
    "Conv2DTranspose": "conv2d_transpose",
    "DepthwiseConv2D": "depthwise_conv2d",
    "SeparableConv2D": "separable_conv2d",
    "BatchNormalization": "batch_normalization",
    "LayerNormalization": "layer_normalization",
    "RMSNormalization": "rms_normalization",
    "GroupNormalization": "group_normalization",
    "PReLU": "p_re_lu",
    "Dense": "dense",
    "EinsumDense": "einsum_dense",
}
"""Keras classes that hold weights here, with the names that Keras 3 counts them under in a `.weights.h5`."""

_KERNELS = ("kernel", "weights")
# The ResNeXts of keras-applications and TensorNets write a grouped convolution as a depthwise one.
_GROUPED_KERNELS = ("kernel", "depthwise_kernel", "weights", "depthwise_weights")
_DEPTHWISE_KERNELS = ("depthwise_kernel", "kernel", "depthwise_weights", "weights")
_SEPARABLE_KERNELS = frozenset(
    {"depthwise_kernel", "pointwise_kernel", "depthwise_weights", "pointwise_weights"}
)
"""Kernels of a separable convolution, which is one layer and two nodes. The last part of a node's name is one
of them.
"""
_BIASES = ("bias", "biases")
_STATISTICS: Mapping[str, str] = {"mean": "moving_mean", "variance": "moving_variance"}
_VECTOR_RANKS: Mapping[tuple[type[Op], str], tuple[int, ...]] = {
    (ops.PRelu, "alpha"): (1, 3),
    (ops.ChannelScale, "gamma"): (1, 4),
}
"""The ranks of vectors that stand as 1x1xC or 1x1xCx1 in a layer over maps."""
_CLASSES: Mapping[type[Op], str] = {
    ops.ConvTranspose: "Conv2DTranspose",
    ops.Dense: "Dense",
    ops.BatchNorm: "BatchNormalization",
    ops.LayerNorm: "LayerNormalization",
    ops.RmsNorm: "RMSNormalization",
    ops.GroupNorm: "GroupNormalization",
    ops.ChannelScale: "DepthwiseConv2D",
    ops.PRelu: "PReLU",
    **dict.fromkeys((ops.AddArray, ops.MultiplyArray, ops.Tokens), "EinsumDense"),
}


def keras_class(graph: Graph, node: Node) -> str | None:
    """Return the Keras class of the layer that holds a node's weights, such as `Conv2D`; None for a node
    without weights.

    TensorFlow's depthwise kernel refuses unequal strides ("Current implementation only supports equal length
    strides"), so such a node is a grouped Conv2D.
    """
    if isinstance(node.op, ops.Conv):
        rows, columns = node.op.window.stride
        return "DepthwiseConv2D" if is_depthwise(graph, node) and rows == columns else "Conv2D"
    return _CLASSES.get(type(node.op))


def variable_name(op: Op, role: str) -> str:
    """Return the name that a Keras layer's variable has for a role of an op's tensors. Most have the role's
    own name: `kernel` is `kernel`, but a norm's `mean` is `moving_mean`.
    """
    if isinstance(op, ops.ChannelScale):  # its layer is a depthwise convolution
        return {"gamma": "kernel", "beta": "bias"}[role]
    if isinstance(op, ops.RmsNorm):
        return "scale"
    # A trained array (`value`) is held by an EinsumDense.
    return "kernel" if role == "value" else _STATISTICS.get(role, role)


def tensor_names(graph: Graph, node: Node, layer: str) -> dict[str, tuple[str, ...]]:
    """Return, for each role of a node's tensors, the names that a file may give it in `layer`: those of Keras
    2, Keras 3 and slim, likeliest first.

    `layer` may end with a kernel of a separable convolution, such as `block2_sepconv1/depthwise_kernel`.
    """
    roles = node.op.tensors(graph.channels_by_path[node.source])
    layer_name, kernel = split_separable(layer)
    names = {role: tuple(f"{layer_name}/{name}" for name in _spellings(graph, node, role)) for role in roles}
    return {**names, "kernel": (layer,)} if kernel else names


def split_separable(layer: str) -> tuple[str, str]:
    """Split `block2_sepconv1/depthwise_kernel`, the name of a separable convolution's kernel, into the
    layer's name and the kernel's. For any other layer the kernel is "".
    """
    layer_name, _, kernel = layer.rpartition("/")
    return (layer_name, kernel) if kernel in _SEPARABLE_KERNELS else (layer, "")


def _spellings(graph: Graph, node: Node, role: str) -> tuple[str, ...]:
    """Return the names that Keras's and slim's layers may give the variable that holds a role, likeliest
    first.
    """
    name = variable_name(node.op, role)
    if name == "bias":
        return _BIASES
    if name != "kernel":
        return (name,)
    if is_depthwise(graph, node) or isinstance(node.op, ops.ChannelScale):
        return _DEPTHWISE_KERNELS
    return _GROUPED_KERNELS if isinstance(node.op, ops.Conv) and node.op.groups > 1 else _KERNELS


def to_canonical(graph: Graph, node: Node, role: str, array: Array) -> Array:
    """Return a file's array in porter's axis order, as a view where possible.

    A dense node also takes a 1x1 convolution's kernel (1, 1, features, units): the heads of slim and of
    Keras's MobileNet v1. A 1x1 convolution's node takes a dense layer's, (features, units), as (units,
    features). A depthwise node takes (rows, columns, channels, multiplier) and, from a grouped Conv2D, (rows,
    columns, 1, filters).

    Raises:
        MappingError: an array of another rank, or groups of a transposed convolution that read each other's
            channels.
    """
    if role == "value":
        return _canonical_value(graph, node, array)
    if role != "kernel":
        ranks = _VECTOR_RANKS.get((type(node.op), role), (1,))
        return _expect_rank(node, role, array, ranks).reshape(-1)
    if isinstance(node.op, ops.ConvTranspose):
        return _from_block_diagonal(node, node.op, _expect_rank(node, role, array, (4,)))
    if isinstance(node.op, ops.Dense):
        if _expect_rank(node, role, array, (2, 4)).ndim == 4:
            if array.shape[:2] != (1, 1):
                raise MappingError(
                    f"expected a 1x1 kernel for a dense node, got {array.shape}", where=node.path
                )
            # features x units, of the only cell
            array = array[0, 0]
        return array.T
    is_one_cell = isinstance(node.op, ops.Conv) and node.op.window.kernel == (1, 1)
    if _expect_rank(node, role, array, (2, 4) if is_one_cell else (4,)).ndim == 2:
        return array.T  # a dense layer's
    # Of a depthwise layer, filter c * multiplier + m is filter m of channel c.
    if is_depthwise(graph, node) and array.shape[2] != 1:
        rows, columns, channels, multiplier = array.shape
        return array.transpose(2, 3, 0, 1).reshape(channels * multiplier, 1, rows, columns)
    return array.transpose(3, 2, 0, 1)


def channels_last_shape(shape: Shape) -> Shape:
    """Return a shape as Keras has it: that of a map with its channels last."""
    return (*shape[1:], shape[0]) if is_map(shape) else shape


def _is_of_map(graph: Graph, node: Node) -> bool:
    return is_map(graph.open_shapes[node.source])


def _canonical_value(graph: Graph, node: Node, array: Array) -> Array:
    """Return a trained array in porter's axis order and shape. An EinsumDense holds it without its axes of
    one cell, and a map's has the channels last. Raise MappingError for another number of values.
    """
    sizes = node.op.tensors(graph.channels_by_path[node.source])["value"]
    if array.size != math.prod(sizes):
        raise MappingError(f"expected {math.prod(sizes)} values, got {array.shape}", where=node.path)
    if _is_of_map(graph, node):
        return array.reshape(*sizes[1:], sizes[0]).transpose(2, 0, 1)
    return array.reshape(sizes)


def from_canonical(graph: Graph, node: Node, role: str, array: Array) -> Array:
    """Return a tensor in the axes of the Keras layer that `keras_class` names, from porter's. A convolution's
    kernel (filters, channels, rows, columns) becomes (rows, columns, channels, filters), a dense one (units,
    features) becomes (features, units), and vectors stay vectors.

    Args:
        role: what the tensor is for its layer, such as `kernel` or `gamma`.
        array: a dense kernel may come as a 1x1 convolution's, (units, features, 1, 1), for a layer that is
            one.

    Raises:
        MappingError: an array of another rank.
    """
    if role == "value":
        array = array.transpose(1, 2, 0) if _is_of_map(graph, node) else array
        # An EinsumDense has no axes of one cell.
        if isinstance(node.op, ops.OfArray):
            return array.reshape([size for size in array.shape if size != 1])
        return array
    if role != "kernel":
        return _expect_rank(node, role, array, (1,))
    if isinstance(node.op, ops.ConvTranspose):
        return _block_diagonal(node.op, _expect_rank(node, role, array, (4,)))
    if isinstance(node.op, ops.Dense):
        is_convolution = array.ndim == 4
        return array.transpose(2, 3, 1, 0) if is_convolution else _expect_rank(node, role, array, (2,)).T
    _expect_rank(node, role, array, (4,))
    if keras_class(graph, node) == "DepthwiseConv2D":
        filters, _, rows, columns = array.shape
        channels = graph.channels_by_path[node.source]
        return array.reshape(channels, filters // channels, rows, columns).transpose(2, 3, 0, 1)
    return array.transpose(2, 3, 1, 0)


def _block_diagonal(op: ops.ConvTranspose, kernel: Array) -> Array:
    """Return the kernel of a Conv2DTranspose (rows, columns, filters, channels) from porter's (channels,
    filters / groups, rows, columns). Keras's layer has neither groups nor, on a CPU, a dilation, so zeros
    stand between the groups and in the holes of the dilated kernel.
    """
    stored = np.zeros((op.window.extent(0), op.window.extent(1), op.filters, len(kernel)), kernel.dtype)
    for block, part in zip(_group_kernels(op, stored), np.split(kernel, op.groups), strict=True):
        block[...] = part.transpose(2, 3, 1, 0)
    return stored


def _from_block_diagonal(node: Node, op: ops.ConvTranspose, stored: Array) -> Array:
    """Undo `_block_diagonal`: return the kernel of each group, (rows, columns, filters, channels) as
    TensorFlow stores it, in torch's order, and the groups one after the other.

    Raises:
        MappingError: there are numbers other than zero between the groups, or in the holes of a dilated
            kernel.
    """
    kernel = np.concatenate([block.transpose(3, 2, 0, 1) for block in _group_kernels(op, stored)])
    if np.count_nonzero(kernel) != np.count_nonzero(stored):
        raise MappingError(
            f"expected zeros between {op.groups} groups and in the holes of a dilated kernel", where=node.path
        )
    return kernel


def _group_kernels(op: ops.ConvTranspose, stored: Array) -> list[Array]:
    """Return a view of each group's kernel, rows × columns × filters × channels, within that of a
    Conv2DTranspose: the cells that a dilation leaves, and of these the block of the group's own filters and
    channels.
    """
    filters, channels = stored.shape[2] // op.groups, stored.shape[3] // op.groups
    cells = stored[:: op.window.dilation[0], :: op.window.dilation[1]]
    filters_of = [slice(group * filters, (group + 1) * filters) for group in range(op.groups)]
    channels_of_group = [slice(group * channels, (group + 1) * channels) for group in range(op.groups)]
    return [cells[:, :, *block] for block in zip(filters_of, channels_of_group, strict=True)]


def _expect_rank(node: Node, role: str, array: Array, ranks: Collection[int]) -> Array:
    """Return the array, or refuse it if its rank is none of `ranks`."""
    if array.ndim not in ranks:
        wanted = " or ".join(map(str, ranks))
        raise MappingError(f"expected a {role} of rank {wanted}, got shape {array.shape}", where=node.path)
    return array


def expect_cover(missing: Collection[str], unexpected: Collection[str], where: object = None) -> None:
    """Refuse weights and a model that do not cover each other, if there are names in either list.

    Args:
        missing: names of the model's tensors that the weights lack.
        unexpected: names of the weights that no layer takes.

    Raises:
        MappingError: both lists are in the message.
    """
    if missing or unexpected:
        raise MappingError(
            f"tensors and model differ: missing {_join_names(missing)}; unexpected {_join_names(unexpected)}",
            where=where,
        )


def _join_names(names: Collection[str], most: int = 5) -> str:
    """Return the first names, sorted, with the number of those left out; `none` without names."""
    shown = ", ".join(sorted(names)[:most]) or "none"
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def layer_names(graph: Graph, layers: LayerNames) -> dict[str, str]:
    """Return the Keras layer name of every node: the name in `layers` of the node that holds its weights if
    there is one, otherwise that node's path, with `_` for `/`.

    Raises:
        MappingError: `layers` gives two nodes the same name.
    """
    names: dict[str, str] = {}
    free = Names()
    for path in graph.calls:
        if path in layers:
            layer_name, kernel = split_separable(layers[path])
            name = layer_name.replace("/", "_")
            if kernel:  # `sepconv1_depthwise` and `sepconv1_pointwise`
                name += f"_{kernel.split('_')[0]}"
            if name in free.taken:
                raise MappingError(f"two nodes have the layer name '{name}'", where=path)
            names[path] = free.take(name)
    # Nodes without a name in `layers` get what these leave.
    for path in graph.calls:
        if path not in layers:
            names[path] = free.take(path.replace("/", "_"))
    return {node.path: names[node.holder] for node in graph.nodes}


def port_keys(plan: Plan, layers: LayerNames) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the names by path and role that a file saved from a port's model may give its tensors; see
    porter.frameworks.dialects.PortDialect.port_keys. Keras's layers have only the tensors that the graph has.
    """
    graph = plan.lowered
    names = layer_names(graph, layers)
    return {
        (node.path, role): spellings
        for node in graph.nodes
        for role, spellings in tensor_names(graph, node, names[node.path]).items()
    }


def pad_name(layer: str) -> str:
    """Return the name of the pad layer before `layer`, as keras.applications forms it.

    `conv1_conv`, `pool1_pool`, `block_1_depthwise` and `conv_dw_2` have `conv1_pad`, `pool1_pad`,
    `block_1_pad` and `conv_pad_2`.
    """
    name, count = re.subn(r"_(conv|pool|depthwise|dw)(_\d+)?$", r"_pad\2", layer)
    return name if count else f"{layer}_pad"
