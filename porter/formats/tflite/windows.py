"""TensorFlow Lite's convolutions, pools, pads and resizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from porter.base.name_tables import by_name
from porter.filegraph import tensorflow
from porter.filegraph.dataflow import StoredTensor
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.places import Items
from porter.filegraph.tensor import Tensor
from porter.filegraph.tensorflow import pads_by_axis
from porter.formats.tflite.model import Operator
from porter.graph import ops
from porter.graph.ops import LARGEST_FLOAT32
from porter.padding import LOWEST, Convention, Window

KERNELS = ("CONV_2D", "DEPTHWISE_CONV_2D")
_PADDING, _STRIDE_WIDTH, _STRIDE_HEIGHT, _FILTER_WIDTH, _FILTER_HEIGHT = range(5)
"""Fields of the options of all windows in the schema, the last two of a Pool2D's only."""
_SAME = Items(("SAME", "VALID"))


def stored(kernel: Tensor, axes: int) -> StoredTensor:
    """Raises Unsupported for a kernel that is computed, or has other axes."""
    tensor = kernel.walk.weights(kernel.source)
    if tensor is None or len(tensor.shape) != axes or 0 in tensor.shape:
        raise Unsupported("whose kernel is not stored")
    return tensor


def _stored_tensors(kernel: StoredTensor, bias: Tensor | None, axes: str) -> dict[str, Stored]:
    """A kernel, and a bias if the operator reads one."""
    vector = None if bias is None else bias.walk.weights(bias.source)
    if bias is not None and vector is None:
        raise Unsupported("whose bias is not stored")
    bias_by_role = {} if vector is None else {"bias": Stored(vector.name)}
    return {"kernel": Stored(kernel.name, axes), **bias_by_role}


def _window(node: Operator, sides: tuple[int, int], dilations: int | None) -> tuple[Window, Convention]:
    """The window that an operator's options state; `dilations` is where these have the dilations."""
    stride, by = (node.scalar(_STRIDE_HEIGHT, "i"), node.scalar(_STRIDE_WIDTH, "i")), (1, 1)
    if dilations is not None:
        by = (node.scalar(dilations + 1, "i", 1), node.scalar(dilations, "i", 1))
    return Window(sides, stride, by), Convention("valid" if node.scalar(_PADDING, "b") else "same")


def _conv(node: Operator, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
    """Kernels are filters×rows×columns×channels/groups, those by channel 1×rows×columns×filters."""
    by_channel = node.op == "DEPTHWISE_CONV_2D"
    kernel = stored(weights, 4)
    filters = kernel.shape[3 if by_channel else 0]
    channels = x.value.channels or kernel.shape[3]
    groups = channels if by_channel else channels // kernel.shape[3]
    window, convention = _window(node, (kernel.shape[1], kernel.shape[2]), 5 if by_channel else 4)
    tensors = _stored_tensors(kernel, bias, "IHWO" if by_channel else "OHWI")
    return x.conv(ops.Conv(filters, window, convention, groups), tensors)


def _transposed(
    node: Operator, sizes: Tensor, weights: Tensor, x: Tensor, bias: Tensor | None = None
) -> Tensor:
    """The sizes that it gives, a kernel filters×rows×columns×channels, and what it spreads."""
    wanted = sizes.dims()
    kernel = stored(weights, 4)
    before = x.walk.views.of(x.value).known_sizes
    if len(wanted) != 4 or len(before) != 4:
        raise Unsupported("to a size that is not stated")
    window, _ = _window(node, (kernel.shape[1], kernel.shape[2]), None)
    pads = tensorflow.transposed_conv_cuts(
        window, before[1:3], wanted[1:3], _SAME[node.scalar(_PADDING, "b")]
    )
    tensors = _stored_tensors(kernel, bias, "IHWO")
    return x.apply_op(ops.ConvTranspose(kernel.shape[0], window, pads, bias="bias" in tensors), **tensors)


def _pool(node: Operator, x: Tensor) -> Tensor:
    """An average does not count cells outside its map. For a largest number, pads of float32's lowest are
    pads of -inf.
    """
    largest = node.op == "MAX_POOL_2D"
    flow = x.walk.flow
    sides = (node.scalar(_FILTER_HEIGHT, "i"), node.scalar(_FILTER_WIDTH, "i"))
    window, convention = _window(node, sides, None)
    if not largest:
        return x.pool("mean", window, convention)
    before = flow.nodes[node.source[0]]
    if before.op == "PADV2" and flow.number(before.inputs[2]) == -LARGEST_FLOAT32:
        whole, pads = (x.scope.tensor(source) for source in before.inputs[:2])
        x = whole.pad(pads_by_axis(pads), LOWEST)
    return x.pool("max", window, replace(convention, fill=LOWEST))


def _pad(node: Operator, x: Tensor, pads: Tensor, fill: Tensor | None = None) -> Tensor:
    if node.op == "MIRROR_PAD":
        return x.extend(pads_by_axis(pads), "symmetric" if node.scalar(0, "b") else "reflect")
    return x.pad(pads_by_axis(pads), 0.0 if fill is None else fill.number())


def _resize(node: Operator, x: Tensor, sizes: Tensor) -> Tensor:
    linear = node.op == "RESIZE_BILINEAR"
    ends, half = (bool(node.scalar(field, "B")) for field in ((2, 3) if linear else (0, 1)))
    return tensorflow.resize_to(x, sizes, tensorflow.resize_rule(linear, half, ends))


FUNCTIONS: Mapping[str, Callable[..., Tensor]] = by_name(
    {
        **dict.fromkeys(KERNELS, _conv),
        "AVERAGE_POOL_2D MAX_POOL_2D": _pool,
        "MIRROR_PAD PAD PADV2": _pad,
        "RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR": _resize,
        "TRANSPOSE_CONV": _transposed,
    }
)
