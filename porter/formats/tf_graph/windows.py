"""TensorFlow's convolutions, pools, pads and resizes."""

from __future__ import annotations

from collections.abc import Sequence

from porter.filegraph import tensorflow
from porter.filegraph.file_graph import Stored
from porter.filegraph.moves import extend, pad
from porter.filegraph.walk import Lacks, Read
from porter.formats.tensorflow import has_cubic_shares
from porter.formats.tf_graph.nodes import GraphNode, Walk
from porter.graph import Conv, ConvTranspose, Resize
from porter.graph.ops import Mode
from porter.padding import LOWEST, Convention, Pads, Window

_LAYOUT = "NHWC"


def read_convolution(walk: Walk, node: GraphNode) -> Read:
    """Conv2D, whose kernel is rows×columns×channels/groups×filters, and DepthwiseConv2dNative,
    rows×columns×channels×multiplier.

    A Conv2D is grouped if its kernel has fewer channels than its input (tensorflow/core/ops/nn_ops.cc,
    Conv2D's shape).
    """
    x, weights = node.inputs
    kernel, stride, dilation = walk.flow.weights(weights), _pair(node, "strides"), _pair(node, "dilations")
    if kernel is None or len(kernel.shape) != 4 or 0 in kernel.shape or stride is None or dilation is None:
        return wrong_layout(node) or Lacks()
    rows, columns, taken, last = kernel.shape
    value, convention = walk.value(x), _convention(node)
    channels = value.channels or taken
    depthwise = node.op == "DepthwiseConv2dNative"
    if wrong_layout(node) or convention is None or channels % taken or (depthwise and channels != taken):
        return wrong_layout(node) or Lacks()
    groups, filters = (taken, taken * last) if depthwise else (channels // taken, last)
    tensors = {"kernel": Stored(kernel.name, "HWIM" if depthwise else "HWIO")}
    op = Conv(filters, Window((rows, columns), stride, dilation), convention, groups)
    return walk.builder.conv(node.name, value, op, tensors)


def read_transposed(walk: Walk, node: GraphNode) -> Read:
    """Conv2DBackpropInput: the sizes of its value, a kernel rows×columns×filters×channels, and what it
    spreads.
    """
    wanted, weights, x = node.inputs
    kernel, stride, dilation = walk.flow.weights(weights), _pair(node, "strides"), _pair(node, "dilations")
    sizes, value, rule = walk.flow.dims(wanted) or [], walk.value(x), node.text("padding", "")
    known = walk.views.of(value).sizes or ()
    if (
        kernel is None
        or len(kernel.shape) != 4
        or stride is None
        or dilation is None
        or len(known) != 4
        or wrong_layout(node)
    ):
        return wrong_layout(node) or Lacks()
    if len(sizes) not in (2, 4) or rule not in ("SAME", "VALID") or known[3] != kernel.shape[3]:
        return Lacks()
    window = Window(kernel.shape[:2], stride, dilation)
    op = ConvTranspose(
        kernel.shape[2],
        window,
        tensorflow.cut_off(window, known[1:3], sizes if len(sizes) == 2 else sizes[1:3], rule),
    )
    return walk.builder.transposed(node.name, value, op, {"kernel": Stored(kernel.name, "HWIO")})


def read_pool(walk: Walk, node: GraphNode) -> Read:
    """MaxPool and AvgPool. TensorFlow's averages do not count cells outside the input; cells of a pad node
    count.
    """
    kernel, stride = _pair(node, "ksize"), _pair(node, "strides")
    largest = node.op == "MaxPool"
    convention = _convention(node, LOWEST if largest else 0.0)
    if kernel is None or stride is None or convention is None or wrong_layout(node):
        return wrong_layout(node) or Lacks()
    value = walk.value(node.source)
    return walk.builder.pool(
        node.name, value, "max" if largest else "mean", Window(kernel, stride), convention
    )


def read_pad(walk: Walk, node: GraphNode) -> Read:
    """Pad and PadV2 with one number."""
    fill = walk.flow.number(node.inputs[2]) if len(node.inputs) > 2 else 0.0
    return Lacks() if fill is None else pad(walk, node, node.source, tensorflow.pads_of(walk, node), fill)


def read_mirror(walk: Walk, node: GraphNode) -> Read:
    """MirrorPad: with the map mirrored without its edge, or with it."""
    mode: Mode = "reflect" if node.text("mode", "") == "REFLECT" else "symmetric"
    return extend(walk, node, node.source, tensorflow.pads_of(walk, node), mode)


def read_resize(walk: Walk, node: GraphNode) -> Read:
    """ResizeNearestNeighbor, ResizeBilinear and ResizeBicubic (core/kernels/image/): by half pixels a cubic
    one has another coefficient, and gives cells beyond the map no share.
    """
    half, ends = node.flag("half_pixel_centers"), node.flag("align_corners")

    def how(by: Sequence[int]) -> Resize | str:
        if node.op != "ResizeBicubic":
            return tensorflow.nearest_or_linear(node.op, node.op == "ResizeBilinear", by, half, ends)
        if not has_cubic_shares(by) or ends:
            return (
                f"{node.op} by other factors than powers of two, whose shares TensorFlow takes from a table"
            )
        return Resize(
            "cubic",
            coordinates="half_pixel" if half else "asymmetric",
            a=-0.5 if half else -0.75,
            inside=half,
        )

    return tensorflow.read_resize(walk, node, how)


def wrong_layout(node: GraphNode) -> Lacks | None:
    """What is foreign about a node that counts channels first."""
    layout = node.text("data_format", _LAYOUT)
    return Lacks(f"{node.op} in {layout}") if layout != _LAYOUT else None


def _pair(node: GraphNode, name: str) -> tuple[int, int] | None:
    """Rows and columns of an attribute that is 1 in the batch and along the channels; (1, 1) if the file
    leaves it out.
    """
    numbers = node.integers(name) or (1, 1, 1, 1)
    return (numbers[1], numbers[2]) if len(numbers) == 4 and numbers[0] == numbers[3] == 1 else None


def _convention(node: GraphNode, fill: float = 0.0) -> Convention | None:
    rule = node.text("padding", "VALID")
    if rule != "EXPLICIT":
        return Convention("same" if rule == "SAME" else "valid", fill=fill)
    pads = _explicit_pads(node)
    return Convention("explicit", pads, fill) if pads is not None else None


def _explicit_pads(node: GraphNode) -> Pads | None:
    numbers = node.integers("explicit_paddings")
    if len(numbers) != 8 or any(numbers[:2]) or any(numbers[6:]) or min(numbers) < 0:
        return None
    return numbers[2], numbers[3], numbers[4], numbers[5]
