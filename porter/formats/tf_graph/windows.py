"""TensorFlow's convolutions, pools, pads and resizes."""

from __future__ import annotations

from collections.abc import Sequence

from porter.filegraph import tensorflow
from porter.filegraph.dataflow import Reference, StoredTensor
from porter.filegraph.dims import text
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.moves import extend, pad
from porter.filegraph.walk import Read
from porter.formats.tensorflow import has_cubic_shares
from porter.formats.tf_graph.nodes import GraphNode, Walk
from porter.graph import Conv, ConvTranspose, Resize
from porter.graph.ops import Mode
from porter.padding import LOWEST, Convention, Window

_LAYOUT = "NHWC"


def read_convolution(walk: Walk, node: GraphNode) -> Read:
    """Conv2D, whose kernel is rows×columns×channels/groups×filters, and DepthwiseConv2dNative,
    rows×columns×channels×multiplier.

    A Conv2D is grouped if its kernel has fewer channels than its input (tensorflow/core/ops/nn_ops.cc,
    Conv2D's shape).
    """
    expect_layout(node)
    x, weights = node.inputs
    kernel, stride, dilation = _kernel(walk, weights), _pair(node, "strides"), _pair(node, "dilations")
    rows, columns, taken, last = kernel.shape
    value, convention = walk.value(x), _convention(node)
    channels = value.channels or taken
    depthwise = node.op == "DepthwiseConv2dNative"
    if channels % taken or (depthwise and channels != taken):
        raise Unsupported(f"of {channels} channels by a kernel of {taken}")
    groups, filters = (taken, taken * last) if depthwise else (channels // taken, last)
    tensors = {"kernel": Stored(kernel.name, "HWIM" if depthwise else "HWIO")}
    op = Conv(filters, Window((rows, columns), stride, dilation), convention, groups)
    return walk.builder.conv(node.name, value, op, tensors)


def read_transposed(walk: Walk, node: GraphNode) -> Read:
    """Conv2DBackpropInput: the sizes of its value, a kernel rows×columns×filters×channels, and what it
    spreads.
    """
    expect_layout(node)
    wanted, weights, x = node.inputs
    kernel, stride, dilation = _kernel(walk, weights), _pair(node, "strides"), _pair(node, "dilations")
    sizes, value, rule = walk.dims(wanted), walk.value(x), node.text("padding", "")
    known = walk.views.of(value).known_sizes
    if len(known) != 4 or len(sizes) not in (2, 4) or rule not in ("SAME", "VALID"):
        raise Unsupported(f"of {len(known)} axes to {len(sizes)} with padding '{rule}'")
    if known[3] != kernel.shape[3]:
        raise Unsupported(f"of {text(known[3:])} channels by a kernel of {kernel.shape[3]}")
    window = Window((kernel.shape[0], kernel.shape[1]), stride, dilation)
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
    expect_layout(node)
    kernel, stride = _pair(node, "ksize"), _pair(node, "strides")
    largest = node.op == "MaxPool"
    convention = _convention(node, LOWEST if largest else 0.0)
    value = walk.value(node.source)
    return walk.builder.pool(
        node.name, value, "max" if largest else "mean", Window(kernel, stride), convention
    )


def read_pad(walk: Walk, node: GraphNode) -> Read:
    """Pad and PadV2 with one number."""
    fill = walk.number(node.inputs[2]) if len(node.inputs) > 2 else 0.0
    return pad(walk, node, node.source, tensorflow.pads_of(walk, node), fill)


def read_mirror(walk: Walk, node: GraphNode) -> Read:
    """MirrorPad: with the map mirrored without its edge, or with it."""
    mode: Mode = "reflect" if node.text("mode", "") == "REFLECT" else "symmetric"
    return extend(walk, node, node.source, tensorflow.pads_of(walk, node), mode)


def read_resize(walk: Walk, node: GraphNode) -> Read:
    """ResizeNearestNeighbor, ResizeBilinear and ResizeBicubic (core/kernels/image/): by half pixels a cubic
    one has another coefficient, and gives cells beyond the map no share.
    """
    half, ends = node.flag("half_pixel_centers"), node.flag("align_corners")

    def how(by: Sequence[int]) -> Resize:
        if node.op != "ResizeBicubic":
            return tensorflow.nearest_or_linear(node.op == "ResizeBilinear", by, half, ends)
        if not has_cubic_shares(by) or ends:
            raise Unsupported(
                "by other factors than powers of two, whose shares TensorFlow takes from a table"
            )
        return Resize(
            "cubic",
            coordinates="half_pixel" if half else "asymmetric",
            a=-0.5 if half else -0.75,
            inside=half,
        )

    return tensorflow.read_resize(walk, node, how)


def expect_layout(node: GraphNode) -> None:
    """Raises Unsupported for a node that counts channels first."""
    layout = node.text("data_format", _LAYOUT)
    if layout != _LAYOUT:
        raise Unsupported(f"in {layout}")


def _kernel(walk: Walk, source: Reference) -> StoredTensor:
    """Raises Unsupported if it is no stored kernel of four axes."""
    kernel = walk.flow.weights(source)
    if kernel is None or len(kernel.shape) != 4 or 0 in kernel.shape:
        raise Unsupported("with a kernel that is computed, or has other axes than four")
    return kernel


def _pair(node: GraphNode, name: str) -> tuple[int, int]:
    """Rows and columns of an attribute; (1, 1) if the file leaves it out.

    Raises:
        Unsupported: it is not 1 in the batch and along the channels.
    """
    numbers = node.integers(name) or (1, 1, 1, 1)
    if len(numbers) != 4 or not numbers[0] == numbers[3] == 1:
        raise Unsupported(f"with {name} {[*numbers]}")
    return numbers[1], numbers[2]


def _convention(node: GraphNode, fill: float = 0.0) -> Convention:
    """Raises Unsupported for pads of the batch or of channels, and for negative ones."""
    rule = node.text("padding", "VALID")
    if rule != "EXPLICIT":
        return Convention("same" if rule == "SAME" else "valid", fill=fill)
    numbers = node.integers("explicit_paddings")
    if len(numbers) != 8 or any(numbers[:2]) or any(numbers[6:]) or min(numbers) < 0:
        raise Unsupported(f"with explicit_paddings {[*numbers]}")
    return Convention("explicit", (numbers[2], numbers[3], numbers[4], numbers[5]), fill)
