"""TensorFlow's ops in porter's terms, one reader each. A foreign node's name says what porter's ops cannot do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from porter.errors import PaddingError
from porter.filegraph.file_graph import Stored
from porter.formats.tf_graph.arithmetic import (
    read_add,
    read_add_n,
    read_bias,
    read_divide,
    read_fused_norm,
    read_multiply,
    read_old_norm,
    read_subtract,
)
from porter.formats.tf_graph.nodes import GraphNode, Reference
from porter.formats.tf_graph.walk import Value, Walk
from porter.formats.tf_graph.windows import read_convolution, read_pad, read_pool
from porter.graph import Concat, Dense, GlobalAvgPool, GlobalMaxPool, Op, Relu, Relu6, Shape, Sigmoid, Softmax

# types.proto: DT_FLOAT and DT_DOUBLE.
_WIDE_FLOATS = (1, 2)


def read_node(walk: Walk, node: GraphNode) -> None:
    """Adds the value of a live node to `walk`; a node that porter has no op for is foreign."""
    reader = _READERS.get(node.op)
    try:
        readable = reader is not None and node.inputs and (node.op in _TWO_SIDED or walk.is_live(node.inputs[0]))
        if reader is None or not readable or not reader(walk, node):
            walk.add_foreign(node)
    except PaddingError as error:  # a window or a pad is too large
        walk.add_foreign(node, f"{node.op} with {error.message}")


def _cast(walk: Walk, node: GraphNode) -> bool:
    """Casts between single and double precision change nothing; halves round and integers cut."""
    if node.type("SrcT") not in _WIDE_FLOATS or node.type("DstT") not in _WIDE_FLOATS:
        return False
    walk.pass_on(node)
    return True


def _relu(walk: Walk, node: GraphNode) -> bool:
    return _unary(walk, node, Relu())


def _relu6(walk: Walk, node: GraphNode) -> bool:
    return _unary(walk, node, Relu6())


def _unary(walk: Walk, node: GraphNode, op: Op) -> bool:
    value = walk.value(node.inputs[0])
    walk.add(node, op, [value], value.shape)
    return True


def _minimum(walk: Walk, node: GraphNode) -> bool:
    """min(., 6) of a ReLU is a ReLU6; otherwise it waits for the max(., 0) that makes it one."""
    live, bound = _bound(walk, node)
    if live is None or bound != 6:
        return False
    value = walk.value(live)
    step = walk.steps.get(value.source)
    if step is not None and isinstance(step.op, Relu):
        walk.add(node, Relu6(), [Value(step.inputs[0], None)], value.shape)
        return True
    walk.add_foreign(node, shape=value.shape)
    walk.min6[node.name] = value
    return True


def _maximum(walk: Walk, node: GraphNode) -> bool:
    live, bound = _bound(walk, node)
    if live is None or bound != 0:
        return False
    min6 = None if live[1] else walk.min6.get(live[0])
    value = min6 or walk.value(live)
    walk.add(node, Relu6() if min6 else Relu(), [value], value.shape)
    return True


def _bound(walk: Walk, node: GraphNode) -> tuple[Reference | None, float]:
    first, second = node.inputs
    live, other = (first, second) if walk.is_live(first) else (second, first)
    constant = None if walk.is_live(other) else walk.constants.value(other)
    return (live, float(constant.ravel()[0])) if constant is not None and constant.size == 1 else (None, 0.0)


def _clip(walk: Walk, node: GraphNode) -> bool:
    x, *bounds = node.inputs
    values = [None if walk.is_live(bound) else walk.constants.value(bound) for bound in bounds]
    if len(values) != 2 or any(value is None or value.size != 1 for value in values) or not walk.is_live(x):
        return False
    low, high = (float(value.ravel()[0]) for value in values if value is not None)
    return (low, high) == (0.0, 6.0) and _unary(walk, node, Relu6())


def _softmax(walk: Walk, node: GraphNode) -> bool:
    return _unary(walk, node, Softmax())


def _sigmoid(walk: Walk, node: GraphNode) -> bool:
    return _unary(walk, node, Sigmoid())


def _global(op: GlobalAvgPool | GlobalMaxPool) -> Callable[[Walk, GraphNode], bool]:
    def read(walk: Walk, node: GraphNode) -> bool:
        value = walk.value(node.inputs[0])
        axes = None if walk.is_live(node.inputs[1]) else walk.constants.value(node.inputs[1])
        if axes is None or not value.is_map or {int(axis) % 4 for axis in axes.ravel()} != {1, 2}:
            return False
        channels = value.channels
        keeps = node.flag("keep_dims")
        shape: Shape | None = None if channels is None else (channels, 1, 1) if keeps else (channels,)
        walk.add(node, op, [value], shape)
        return True

    return read


def _concat(walk: Walk, node: GraphNode) -> bool:
    *sources, axis_source = node.inputs
    axis = None if walk.is_live(axis_source) else walk.constants.value(axis_source)
    if axis is None or axis.size != 1 or len(sources) < 2 or not all(walk.is_live(source) for source in sources):
        return False
    values = [walk.value(source) for source in sources]
    shapes = [value.shape for value in values]
    last = 3 if len(shapes[0] or (0, 0, 0)) == 3 else 1
    if int(axis.ravel()[0]) not in (-1, last) or any(shape and shapes[0] and len(shape) != len(shapes[0]) for shape in shapes):
        return False
    channels = [value.channels for value in values]
    first = shapes[0]
    joined = None if first is None or None in channels else (sum(n for n in channels if n is not None), *first[1:])
    walk.add(node, Concat(), values, joined)
    return True


def _matmul(walk: Walk, node: GraphNode) -> bool:
    for flag in ("transpose_a", "transpose_b"):
        if node.flag(flag):
            walk.add_foreign(node, f"{node.op} with {flag}")
            return True
    x, weights = node.inputs
    kernel = None if walk.is_live(weights) else walk.constants.tensor(weights)
    if kernel is None or len(kernel.shape) != 2 or not walk.is_live(x):
        return False
    value = walk.value(x)
    if value.shape is not None and value.shape != kernel.shape[:1]:
        return False
    walk.add(node, Dense(kernel.shape[1], False), [value], (kernel.shape[1],), {"kernel": Stored(kernel.name, "IO")})
    return True


def _squeeze(walk: Walk, node: GraphNode) -> bool:
    """Removes rows and columns of one cell; a graph that names these axes states that they have one cell."""
    value = walk.value(node.inputs[0])
    axes = node.integers("squeeze_dims")
    if value.shape is None or len(value.shape) != 3 or value.shape[1] not in (None, 1) or value.shape[2] not in (None, 1):
        return False
    if not (axes or value.is_one_cell) or (axes and {axis % 4 for axis in axes} != {1, 2}):
        return False
    walk.pass_on(node, value.shape[:1])
    return True


def _reshape(walk: Walk, node: GraphNode) -> bool:
    """One value per channel stays one, as N×C or N×1×1×C."""
    value, target = walk.value(node.inputs[0]), _target_shape(walk, node.inputs[1])
    if value.shape is None or not value.is_one_cell or not target or len(target) not in (2, 4):
        return False
    inner = target[1:]
    if any(size is None for size in inner) or inner[-1] not in (value.channels, -1) or any(size != 1 for size in inner[:-1]):
        return False
    if inner[-1] == -1 and target[0] == -1:
        return False
    walk.pass_on(node, value.shape[:1] if len(inner) == 1 else (value.channels, 1, 1))
    return True


def _target_shape(walk: Walk, source: Reference) -> tuple[int | None, ...] | None:
    """The target shape of a reshape, batch first; None in it means a size that is read from a value, as the batch is."""
    node = walk.constants.nodes[source[0]]
    if not walk.is_live(source):
        constant = walk.constants.value(source)
        return None if constant is None else tuple(int(size) for size in constant.ravel())
    if node.op == "Shape":
        shape = walk.value(node.inputs[0]).shape
        return (None, *shape[1:], shape[0]) if shape else None
    if node.op != "Pack":
        return None
    sizes: list[int | None] = []
    for part in node.inputs:
        constant = None if walk.is_live(part) else walk.constants.value(part)
        if constant is not None and constant.size != 1:
            return None
        sizes.append(None if constant is None else int(constant.ravel()[0]))
    return tuple(sizes)


def _with_inputs(count: int, reader: Callable[[Walk, GraphNode], bool]) -> Callable[[Walk, GraphNode], bool]:
    """The reader for nodes with `count` inputs; others are foreign."""

    def read(walk: Walk, node: GraphNode) -> bool:
        return len(node.inputs) == count and reader(walk, node)

    return read


_TWO_SIDED = frozenset({"Add", "AddV2", "AddN", "Sub", "Mul", "RealDiv", "Minimum", "Maximum", "ConcatV2"})
"""Ops whose first input may be a constant; their readers find which input is one."""
_READERS: Mapping[str, Callable[[Walk, GraphNode], bool]] = {
    "Cast": _cast,
    "BiasAdd": _with_inputs(2, read_bias),
    "Add": _with_inputs(2, read_add),
    "AddV2": _with_inputs(2, read_add),
    "AddN": read_add_n,
    "Sub": _with_inputs(2, read_subtract),
    "Mul": _with_inputs(2, read_multiply),
    "RealDiv": _with_inputs(2, read_divide),
    "FusedBatchNorm": read_fused_norm,
    "FusedBatchNormV2": read_fused_norm,
    "FusedBatchNormV3": read_fused_norm,
    "BatchNormWithGlobalNormalization": read_old_norm,
    "Relu": _relu,
    "Relu6": _relu6,
    "Minimum": _with_inputs(2, _minimum),
    "Maximum": _with_inputs(2, _maximum),
    "ClipByValue": _clip,
    "Softmax": _softmax,
    "Sigmoid": _sigmoid,
    "Mean": _with_inputs(2, _global(GlobalAvgPool())),
    "Max": _with_inputs(2, _global(GlobalMaxPool())),
    "ConcatV2": _concat,
    "MatMul": _with_inputs(2, _matmul),
    "Squeeze": _squeeze,
    "Reshape": _with_inputs(2, _reshape),
    "Conv2D": _with_inputs(2, read_convolution),
    "DepthwiseConv2dNative": _with_inputs(2, read_convolution),
    "MaxPool": read_pool,
    "AvgPool": read_pool,
    "Pad": _with_inputs(2, read_pad),
    "PadV2": _with_inputs(3, read_pad),
}
