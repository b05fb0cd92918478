"""TensorFlow's convolutions, pools, pads and resizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from porter.base.name_tables import by_name
from porter.filegraph import tensorflow
from porter.filegraph.dataflow import StoredTensor
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.layouts.dims import ratio, sizes_text
from porter.filegraph.tensors.tensor import Tensor
from porter.formats.tensorflow import has_cubic_shares
from porter.formats.tf_graph.nodes import GraphNode
from porter.graph import Conv, ConvTranspose, Resize
from porter.graph.ops import Coordinates, Mode
from porter.padding import LOWEST, Convention, Window

_LAYOUT = "NHWC"


def _conv(node: GraphNode, x: Tensor, weights: Tensor) -> Tensor:
    """Return the value of Conv2D, whose kernel is rows×columns×channels/groups×filters, or of
    DepthwiseConv2dNative, rows×columns×channels×multiplier.

    A Conv2D is grouped if its kernel has fewer channels than its input (tensorflow/core/ops/nn_ops.cc,
    Conv2D's shape).
    """
    expect_layout(node)
    kernel = _expect_kernel(weights)
    stride = _pair(node, "strides")
    dilation = _pair(node, "dilations")
    rows, columns, kernel_channels, last = kernel.shape
    # A value that does not know its channels has those of the kernel.
    channels = x.value.channels or kernel_channels
    is_depthwise = node.op == "DepthwiseConv2dNative"
    if channels % kernel_channels or (is_depthwise and channels != kernel_channels):
        raise Unsupported(f"of {channels} channels by a kernel of {kernel_channels}")
    if is_depthwise:
        groups, filters = kernel_channels, kernel_channels * last
    else:
        groups, filters = channels // kernel_channels, last
    op = Conv(filters, Window((rows, columns), stride, dilation), _read_convention(node), groups)
    return x.conv(op, {"kernel": Stored(kernel.name, "HWIM" if is_depthwise else "HWIO")})


def _transposed_conv(node: GraphNode, target: Tensor, weights: Tensor, x: Tensor) -> Tensor:
    """Return the value of Conv2DBackpropInput, the gradient of a convolution: `x` is spread by a kernel
    rows×columns×filters×channels, and cut to `target`, the sizes of all four axes or of rows and columns.
    """
    expect_layout(node)
    kernel = _expect_kernel(weights)
    stride = _pair(node, "strides")
    dilation = _pair(node, "dilations")
    sizes = target.dims()
    rule = node.text("padding", "")
    x_sizes = x.walk.views.own_view(x.value).known_sizes
    if len(x_sizes) != 4 or len(sizes) not in (2, 4) or rule not in ("SAME", "VALID"):
        raise Unsupported(f"of {len(x_sizes)} axes to {len(sizes)} with padding '{rule}'")
    if x_sizes[3] != kernel.shape[3]:
        raise Unsupported(f"of {sizes_text(x_sizes[3:])} channels by a kernel of {kernel.shape[3]}")
    window = Window((kernel.shape[0], kernel.shape[1]), stride, dilation)
    cut = tensorflow.transposed_conv_cuts(
        window, x_sizes[1:3], sizes if len(sizes) == 2 else sizes[1:3], rule
    )
    return x.apply_op(ConvTranspose(kernel.shape[2], window, cut), kernel=Stored(kernel.name, "HWIO"))


def _pool(node: GraphNode, x: Tensor) -> Tensor:
    """Return the value of MaxPool or AvgPool. TensorFlow's averages do not count cells outside the input;
    cells of a pad node count.
    """
    expect_layout(node)
    window = Window(_pair(node, "ksize"), _pair(node, "strides"))
    if node.op == "MaxPool":
        return x.pool("max", window, _read_convention(node, LOWEST))
    return x.pool("mean", window, _read_convention(node, 0.0))


def _pad(node: GraphNode, x: Tensor, pads: Tensor, fill: Tensor | None = None) -> Tensor:
    """Return the value of Pad, or of PadV2 with one number."""
    return x.pad(tensorflow.pads_by_axis(pads), 0.0 if fill is None else fill.number())


def _mirror_pad(node: GraphNode, x: Tensor, pads: Tensor) -> Tensor:
    """Return the value of MirrorPad: with the map mirrored without its edge, or with it."""
    mode: Mode = "reflect" if node.text("mode", "") == "REFLECT" else "symmetric"
    return x.extend(tensorflow.pads_by_axis(pads), mode)


def _resize(node: GraphNode, x: Tensor, sizes: Tensor) -> Tensor:
    """Return the value of ResizeNearestNeighbor, ResizeBilinear or ResizeBicubic (core/kernels/image/): by
    half pixels a cubic one has another coefficient, and gives cells beyond the map no share.
    """
    half_pixels, aligns_corners = node.flag("half_pixel_centers"), node.flag("align_corners")
    if node.op != "ResizeBicubic":
        op = tensorflow.resize_rule(node.op == "ResizeBilinear", half_pixels, aligns_corners)
        return tensorflow.resize_to(x, sizes, op)
    # A ratio that is not known counts as 0, which is no power of two.
    factors = [ratio(new, old) or 0 for new, old in zip(sizes.dims(), x.sizes[1:3], strict=True)]
    if not has_cubic_shares(factors) or aligns_corners:
        raise Unsupported("by other factors than powers of two, whose shares TensorFlow takes from a table")
    coordinates: Coordinates = "half_pixel" if half_pixels else "asymmetric"
    op = Resize("cubic", coordinates=coordinates, a=-0.5 if half_pixels else -0.75, inside=half_pixels)
    return tensorflow.resize_to(x, sizes, op)


def expect_layout(node: GraphNode) -> None:
    """Raise Unsupported for a node that counts channels first."""
    layout = node.text("data_format", _LAYOUT)
    if layout != _LAYOUT:
        raise Unsupported(f"in {layout}")


def _expect_kernel(weights: Tensor) -> StoredTensor:
    """Return the stored kernel of four axes. Raise Unsupported if it is computed, or has other axes."""
    kernel = weights.walk.weights(weights.source)
    if kernel is None or len(kernel.shape) != 4 or 0 in kernel.shape:
        raise Unsupported("with a kernel that is computed, or has other axes than four")
    return kernel


def _pair(node: GraphNode, name: str) -> tuple[int, int]:
    """Return rows and columns of an attribute; (1, 1) if the file leaves it out.

    Raises:
        Unsupported: it is not 1 in the batch and along the channels.
    """
    numbers = node.integers(name) or (1, 1, 1, 1)
    if len(numbers) != 4 or not numbers[0] == numbers[3] == 1:
        raise Unsupported(f"with {name} {[*numbers]}")
    return numbers[1], numbers[2]


def _read_convention(node: GraphNode, fill: float = 0.0) -> Convention:
    """Return the convention of a node's pads: SAME, VALID or explicit ones. Raise Unsupported for pads of the
    batch or of channels, and for negative ones.

    Args:
        fill: what a pad holds.
    """
    rule = node.text("padding", "VALID")
    if rule != "EXPLICIT":
        return Convention("same" if rule == "SAME" else "valid", fill=fill)
    numbers = node.integers("explicit_paddings")
    if len(numbers) != 8 or any(numbers[:2]) or any(numbers[6:]) or min(numbers) < 0:
        raise Unsupported(f"with explicit_paddings {[*numbers]}")
    # Before and behind each axis: batch, rows, columns, channels.
    return Convention("explicit", (numbers[2], numbers[3], numbers[4], numbers[5]), fill)


FUNCTIONS: Mapping[str, Callable[..., Tensor]] = by_name(
    {
        "AvgPool MaxPool": _pool,
        "Conv2D DepthwiseConv2dNative": _conv,
        "Pad PadV2": _pad,
        "ResizeBicubic ResizeBilinear ResizeNearestNeighbor": _resize,
        "Conv2DBackpropInput": _transposed_conv,
        "MirrorPad": _mirror_pad,
    }
)
