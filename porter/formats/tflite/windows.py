"""TensorFlow Lite's convolutions, pools, pads and resizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from porter.base.name_tables import by_name
from porter.filegraph import tensorflow
from porter.filegraph.dataflow import StoredTensor
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.tensorflow import pads_by_axis
from porter.filegraph.tensors.tensor import Tensor
from porter.formats.tflite import schema
from porter.formats.tflite.model import Operator
from porter.graph import ops
from porter.graph.ops import LARGEST_FLOAT32
from porter.padding import LOWEST, Convention, Window

KERNELS = ("CONV_2D", "DEPTHWISE_CONV_2D")


def expect_stored(kernel: Tensor, axes: int) -> StoredTensor:
    """Return a stored kernel; raise Unsupported for one that is computed, or has other axes."""
    tensor = kernel.walk.weights(kernel.source)
    if tensor is None or len(tensor.shape) != axes or 0 in tensor.shape:
        raise Unsupported("whose kernel is not stored")
    return tensor


def _stored_tensors(kernel: StoredTensor, bias: Tensor | None, axes: str) -> dict[str, Stored]:
    """Return a convolution's tensors by role: its kernel, and a bias if the operator reads one. Raise
    Unsupported for a bias that is computed.

    Args:
        axes: the order of the kernel's axes.
    """
    vector = None if bias is None else bias.walk.weights(bias.source)
    if bias is not None and vector is None:
        raise Unsupported("whose bias is not stored")
    tensors = {"kernel": Stored(kernel.name, axes)}
    if vector is not None:
        tensors["bias"] = Stored(vector.name)
    return tensors


def _read_window(node: Operator, sides: tuple[int, int]) -> tuple[Window, Convention]:
    """Return the window that an operator's options state, and its padding."""
    dilations = schema.DILATIONS.get(node.op)
    dilation = node.pair(dilations) if dilations else (1, 1)
    rule: Literal["same", "valid"] = "same" if node.padding == "SAME" else "valid"
    return Window(sides, node.pair(schema.STRIDES), dilation), Convention(rule)


def _conv(node: Operator, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a convolution. Kernels are filters×rows×columns×channels/groups, those by channel
    1×rows×columns×filters.
    """
    is_depthwise = node.op == "DEPTHWISE_CONV_2D"
    kernel = expect_stored(weights, 4)
    filters = kernel.shape[3 if is_depthwise else 0]
    channels = x.value.channels or kernel.shape[3]
    groups = channels if is_depthwise else channels // kernel.shape[3]
    window, convention = _read_window(node, (kernel.shape[1], kernel.shape[2]))
    tensors = _stored_tensors(kernel, bias, "IHWO" if is_depthwise else "OHWI")
    return x.conv(ops.Conv(filters, window, convention, groups), tensors)


def _transposed_conv(
    node: Operator, sizes: Tensor, weights: Tensor, x: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Return a transposed convolution, from the sizes that it gives, a kernel filters×rows×columns×channels,
    and the map that it spreads.
    """
    target = sizes.dims()
    kernel = expect_stored(weights, 4)
    # All axes of the map, in TensorFlow's order.
    x_sizes = x.walk.views.own_view(x.value).known_sizes
    if len(target) != 4 or len(x_sizes) != 4:
        raise Unsupported("to a size that is not stated")
    window, _ = _read_window(node, (kernel.shape[1], kernel.shape[2]))
    pads = tensorflow.transposed_conv_cuts(window, x_sizes[1:3], target[1:3], node.padding)
    tensors = _stored_tensors(kernel, bias, "IHWO")
    return x.apply_op(ops.ConvTranspose(kernel.shape[0], window, pads, bias="bias" in tensors), **tensors)


def _pool(node: Operator, x: Tensor) -> Tensor:
    """Return a pool. An average does not count cells outside its map. For a largest number, pads of float32's
    lowest are pads of -inf.
    """
    flow = x.walk.flow
    window, convention = _read_window(node, node.pair(schema.POOL_SIDES))
    if node.op == "AVERAGE_POOL_2D":
        return x.pool("mean", window, convention)
    # Such a pad stands before the pool as an operator of its own.
    before = flow.nodes[node.source[0]]
    if before.op == "PADV2" and flow.number(before.inputs[2]) == -LARGEST_FLOAT32:
        unpadded, pads = (x.scope.tensor(source) for source in before.inputs[:2])
        x = unpadded.pad(pads_by_axis(pads), LOWEST)
    return x.pool("max", window, replace(convention, fill=LOWEST))


def _pad(node: Operator, x: Tensor, pads: Tensor, fill: Tensor | None = None) -> Tensor:
    """Return a value with a pad of one number, or with its own cells mirrored."""
    if node.op == "MIRROR_PAD":
        is_symmetric = node.option(schema.MIRROR_PAD_IS_SYMMETRIC)
        return x.extend(pads_by_axis(pads), "symmetric" if is_symmetric else "reflect")
    return x.pad(pads_by_axis(pads), 0.0 if fill is None else fill.number())


def _resize(node: Operator, x: Tensor, sizes: Tensor) -> Tensor:
    """Return a map resized to the nearest or between the nearest cells."""
    is_linear = node.op == "RESIZE_BILINEAR"
    aligns_corners, half_pixels = map(node.option, schema.ALIGN_CORNERS_HALF_PIXELS[node.op])
    return tensorflow.resize_to(x, sizes, tensorflow.resize_rule(is_linear, half_pixels, aligns_corners))


FUNCTIONS: Mapping[str, Callable[..., Tensor]] = by_name(
    {
        **dict.fromkeys(KERNELS, _conv),
        "AVERAGE_POOL_2D MAX_POOL_2D": _pool,
        "MIRROR_PAD PAD PADV2": _pad,
        "RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR": _resize,
        "TRANSPOSE_CONV": _transposed_conv,
    }
)
