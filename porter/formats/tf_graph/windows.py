"""TensorFlow's convolutions, pools and pads in porter's terms: a pad becomes part of the windowed op that reads it."""

from __future__ import annotations

from porter.filegraph.file_graph import Stored
from porter.formats.tf_graph.nodes import GraphNode, Reference
from porter.formats.tf_graph.walk import Padded, Value, Walk
from porter.graph import AvgPool, Conv, GlobalAvgPool, GlobalMaxPool, MaxPool, Shape
from porter.padding import LARGEST, LOWEST, Convention, Pads, Window, output_size

_NO_PADS = (0, 0, 0, 0)


def read_convolution(walk: Walk, node: GraphNode) -> bool:
    """Conv2D, whose kernel is rows×columns×channels/groups×filters, and DepthwiseConv2dNative, rows×columns×channels×multiplier.

    A Conv2D is grouped if its kernel has fewer channels than its input (tensorflow/core/ops/nn_ops.cc, Conv2D's shape).
    """
    if _refused(walk, node):
        return True
    x, weights = node.inputs
    kernel = None if walk.is_live(weights) else walk.constants.tensor(weights)
    if kernel is None or len(kernel.shape) != 4 or 0 in kernel.shape:
        return False
    stride, dilation = _pair(node, "strides"), _pair(node, "dilations")
    if stride is None or dilation is None:
        return False
    rows, columns, taken, last = kernel.shape
    window = Window((rows, columns), stride, dilation)
    found = _padding(walk, node, x, window)
    if found is None:
        return False
    value, padded = found
    if padded is not None and padded.fill:
        return False
    channels = value.channels or taken
    depthwise = node.op == "DepthwiseConv2dNative"
    if not value.is_map or channels % taken or (depthwise and channels != taken):
        return False
    groups, filters = (taken, taken * last) if depthwise else (channels // taken, last)
    convention = _convention(padded.pads if padded else _NO_PADS, node)
    walk.add(
        node,
        Conv(filters, window, convention, groups),
        [value],
        _shape(filters, convention, window, value),
        {"kernel": Stored(kernel.name, "HWIM" if depthwise else "HWIO")},
    )
    return True


def read_pool(walk: Walk, node: GraphNode) -> bool:
    """MaxPool and AvgPool.

    TensorFlow's averages do not count cells outside the input; cells of a pad node count. A pool over a whole map whose size the
    graph states is a global pool, because the graph takes no other size.
    """
    if _refused(walk, node):
        return True
    kernel, stride = _pair(node, "ksize"), _pair(node, "strides")
    if kernel is None or stride is None:
        return False
    window = Window(kernel, stride)
    found = _padding(walk, node, node.inputs[0], window)
    if found is None or not found[0].is_map:
        return False
    value, padded = found
    pads = padded.pads if padded else _NO_PADS
    largest = node.op == "MaxPool"
    if value.shape is not None and value.shape[1:] == kernel and not any(pads) and _rule(node, window) == "valid":
        walk.add(node, GlobalMaxPool() if largest else GlobalAvgPool(), [value], (value.shape[0], 1, 1))
        return True
    if largest:
        convention = _convention(pads, node, LOWEST if padded is None or node.text("padding", "") == "EXPLICIT" else padded.fill)
    elif padded is not None and (padded.fill or node.text("padding", "") == "EXPLICIT"):
        return False
    else:
        convention = _convention(pads, node, 0.0, padded is not None)
    op = MaxPool(window, convention) if largest else AvgPool(window, convention)
    walk.add(node, op, [value], _shape(value.channels, convention, window, value))
    return True


def read_pad(walk: Walk, node: GraphNode) -> bool:
    """Pad and PadV2 of rows and columns with one number; foreign, unless every reader is a windowed op that can include it."""
    table = None if walk.is_live(node.inputs[1]) else walk.constants.value(node.inputs[1])
    fill = walk.constants.value(node.inputs[2]) if len(node.inputs) > 2 and not walk.is_live(node.inputs[2]) else None
    value = walk.value(node.inputs[0])
    walk.add_foreign(node, f"{node.op} that no convolution or pool can include")
    if table is None or table.shape != (4, 2) or table[[0, 3]].any() or not value.is_map or (len(node.inputs) > 2 and fill is None):
        return True
    top, bottom, left, right = (int(size) for size in table[1:3].ravel())
    number = 0.0 if fill is None else float(fill.ravel()[0])
    if min(top, bottom, left, right) < 0 or max(top, bottom, left, right) > LARGEST:
        return True
    if value.shape is not None:
        rows, columns = value.shape[1:]
        size = (None if rows is None else rows + top + bottom, None if columns is None else columns + left + right)
        walk.values[node.name] = Value(node.name, (value.shape[0], *size))
    before = walk.padded.get(node.inputs[0][0])
    if before is not None and before.fill == number:
        value = before.value
        top, bottom, left, right = (one + other for one, other in zip(before.pads, (top, bottom, left, right), strict=True))
    walk.padded[node.name] = Padded(value, (top, bottom, left, right), number)
    return True


def _refused(walk: Walk, node: GraphNode) -> bool:
    layout = node.text("data_format", "NHWC")
    if layout != "NHWC":
        walk.add_foreign(node, f"{node.op} in {layout}")
    return layout != "NHWC"


def _pair(node: GraphNode, name: str) -> tuple[int, int] | None:
    """Rows and columns of an attribute that is 1 in the batch and along the channels; (1, 1) if the file leaves it out."""
    numbers = node.integers(name) or (1, 1, 1, 1)
    return (numbers[1], numbers[2]) if len(numbers) == 4 and numbers[0] == numbers[3] == 1 else None


def _rule(node: GraphNode, window: Window) -> str:
    """The padding rule; a window of one cell is never padded."""
    rule = node.text("padding", "VALID").lower()
    return "valid" if rule == "same" and window.extent(0) == window.extent(1) == 1 else rule


def _padding(walk: Walk, node: GraphNode, x: Reference, window: Window) -> tuple[Value, Padded | None] | None:
    """The value that a windowed op reads, and all its pads; None where pads of two kinds do not add up."""
    rule, value = _rule(node, window), walk.value(x)
    before = None if x[1] else walk.padded.get(x[0])
    if rule == "explicit":
        explicit = _explicit_pads(node)
        if explicit is None:
            return None
        if before is None:
            return value, Padded(value, explicit, 0.0)
        top, bottom, left, right = (one + other for one, other in zip(before.pads, explicit, strict=True))
        both = Padded(before.value, (top, bottom, left, right), before.fill)
        return (before.value, both) if node.op == "Conv2D" or node.op == "DepthwiseConv2dNative" else None
    # `same` depends on the padded size, so such a pad stays a node.
    if before is None or rule == "same" or before.fill == float("inf") or (abs(before.fill) > 1e37 and before.fill != LOWEST):
        return value, None
    if before.fill and node.op != "MaxPool":
        return value, None
    return before.value, before


def _explicit_pads(node: GraphNode) -> Pads | None:
    numbers = node.integers("explicit_paddings")
    if len(numbers) != 8 or any(numbers[:2]) or any(numbers[6:]) or min(numbers) < 0:
        return None
    return numbers[2], numbers[3], numbers[4], numbers[5]


def _convention(pads: Pads, node: GraphNode, fill: float = 0.0, counted: bool = False) -> Convention:
    if any(pads):
        return Convention("explicit", pads, fill, "full_window" if counted else "real_cells")
    same = node.text("padding", "VALID") == "SAME"
    return Convention("same" if same else "valid", fill=fill)


def _shape(channels: int | None, convention: Convention, window: Window, value: Value) -> Shape | None:
    if channels is None:
        return None
    rows, columns = (value.shape[1], value.shape[2]) if value.shape else (None, None)
    return (channels, *output_size(convention, window, (rows, columns)))
