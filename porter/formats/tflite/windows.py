"""TensorFlow Lite's convolutions, pools, pads and resizes."""

from __future__ import annotations

from dataclasses import replace

from porter.filegraph import moves, tensorflow
from porter.filegraph.dataflow import StoredTensor
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.places import Items
from porter.filegraph.tensorflow import pads_of
from porter.filegraph.views import View
from porter.filegraph.walk import NodeWalk, Read
from porter.formats.tflite.model import Operator
from porter.graph import ops
from porter.graph.ops import LARGEST_FLOAT32
from porter.padding import LOWEST, Convention, Window

KERNELS = ("CONV_2D", "DEPTHWISE_CONV_2D")
_SAME = Items(("SAME", "VALID"))


def stored(walk: NodeWalk[Operator], node: Operator, place: int) -> StoredTensor | None:
    return walk.flow.weights(node.inputs[place]) if place < len(node.inputs) else None


def _held(walk: NodeWalk[Operator], node: Operator, axes: str, bias: int = 2) -> dict[str, Stored] | None:
    """A kernel of four axes, and a bias if the operator reads one; None where they are not stored."""
    kernel, vector = stored(walk, node, 1), stored(walk, node, bias)
    if kernel is None or len(kernel.shape) != 4 or (len(node.inputs) > bias and vector is None):
        return None
    return {
        "kernel": Stored(kernel.name, axes),
        **({"bias": Stored(vector.name)} if vector is not None else {}),
    }


def _window(node: Operator, sides: tuple[int, int], dilations: int | None) -> tuple[Window, Convention]:
    """`dilations`: where the options have them."""
    stride, by = (node.scalar(2, "i"), node.scalar(1, "i")), (1, 1)
    if dilations is not None:
        by = (node.scalar(dilations + 1, "i", 1), node.scalar(dilations, "i", 1))
    return Window(sides, stride, by), Convention("valid" if node.scalar(0, "b") else "same")


def read_conv(walk: NodeWalk[Operator], node: Operator) -> Read:
    """Kernels are filters×rows×columns×channels/groups, those by channel 1×rows×columns×filters."""
    by_channel, kernel, value = node.op == "DEPTHWISE_CONV_2D", stored(walk, node, 1), walk.first(node)
    held = _held(walk, node, "IHWO" if by_channel else "OHWI")
    if held is None or kernel is None or 0 in kernel.shape:
        raise Unsupported("whose kernel is not stored")
    filters, channels = kernel.shape[3 if by_channel else 0], value.channels or kernel.shape[3]
    groups = channels if by_channel else channels // kernel.shape[3]
    window, convention = _window(node, (kernel.shape[1], kernel.shape[2]), 5 if by_channel else 4)
    return walk.builder.conv(node.name, value, ops.Conv(filters, window, convention, groups), held)


def read_transposed(walk: NodeWalk[Operator], node: Operator) -> Read:
    """The sizes that it gives, a kernel filters×rows×columns×channels, and what it spreads."""
    wanted, kernel = walk.flow.dims(node.source), stored(walk, node, 1)
    held, value = _held(walk, node, "IHWO", 3), walk.value(node.inputs[2])
    known = walk.views.of(value).sizes or ()
    if held is None or kernel is None or wanted is None or len(wanted) != 4 or len(known) != 4:
        raise Unsupported("to a size that is not stated")
    window, _ = _window(node, (kernel.shape[1], kernel.shape[2]), None)
    pads = tensorflow.cut_off(window, known[1:3], wanted[1:3], _SAME[node.scalar(0, "b")])
    return walk.builder.transposed(node.name, value, ops.ConvTranspose(kernel.shape[0], window, pads), held)


def read_pool(walk: NodeWalk[Operator], node: Operator) -> Read:
    """An average does not count cells outside its map. For a largest number, pads of float32's lowest are
    pads of -inf.
    """
    largest, before = node.op == "MAX_POOL_2D", walk.flow.nodes[node.source[0]]
    window, convention = _window(node, (node.scalar(4, "i"), node.scalar(3, "i")), None)
    convention = replace(convention, fill=LOWEST) if largest else convention
    value = None
    if largest and before.op == "PADV2" and walk.flow.number(before.inputs[2]) == -LARGEST_FLOAT32:
        padded = moves.pad(
            walk, replace(node, name=f"{node.name}:pad"), before.source, pads_of(walk, before), LOWEST
        )
        value = padded.value if isinstance(padded, View) else None
    return walk.builder.pool(
        node.name, value or walk.first(node), "max" if largest else "mean", window, convention
    )


def read_pad(walk: NodeWalk[Operator], node: Operator) -> Read:
    pairs, fill = pads_of(walk, node), walk.number(node.inputs[2]) if len(node.inputs) > 2 else 0.0
    if node.op == "MIRROR_PAD":
        return moves.extend(walk, node, node.source, pairs, "symmetric" if node.scalar(0, "b") else "reflect")
    return moves.pad(walk, node, node.source, pairs, fill)


def read_resize(walk: NodeWalk[Operator], node: Operator) -> Read:
    linear = node.op == "RESIZE_BILINEAR"
    ends, half = (bool(node.scalar(field, "B")) for field in ((2, 3) if linear else (0, 1)))
    return tensorflow.read_resize(walk, node, lambda by: tensorflow.nearest_or_linear(linear, by, half, ends))
