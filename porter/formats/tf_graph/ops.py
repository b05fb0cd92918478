"""TensorFlow's ops in porter's terms, one reader each. A foreign node's name says what porter's ops cannot do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from porter.errors import GraphError, PaddingError
from porter.filegraph.builder import Value
from porter.filegraph.dataflow import Reference
from porter.filegraph.views import LARGE, View
from porter.filegraph.walk import Read, unary
from porter.formats.tf_graph.arithmetic import (
    read_binary,
    read_clip,
    read_fused_norm,
    read_matrix,
    read_negative,
    read_old_norm,
    read_pattern,
    read_square,
)
from porter.formats.tf_graph.constants import strided
from porter.formats.tf_graph.nodes import GraphNode, Walk
from porter.formats.tf_graph.windows import (
    read_convolution,
    read_mirror,
    read_pad,
    read_pool,
    read_resize,
    read_transposed,
    wrong_layout,
)
from porter.graph import (
    Concat,
    DepthToSpace,
    Elu,
    LeakyRelu,
    LocalResponseNorm,
    Op,
    Relu,
    Relu6,
    Selu,
    Sigmoid,
    Softmax,
    Softplus,
    Softsign,
    Tanh,
)
from porter.graph.ops import Axis

# types.proto: DT_FLOAT and DT_DOUBLE.
_WIDE_FLOATS = (1, 2)
_AXES: Mapping[int, tuple[Axis | None, ...]] = {4: (None, "rows", "columns", "channels"), 2: (None, "channels")}
"""The axes of a tensor of so many axes; the first is the batch."""


def read_node(walk: Walk, node: GraphNode) -> None:
    """Adds what a node computes to `walk`; a node that porter has no op for is foreign."""
    if walk.flow.compute(node) or node.name not in walk.flow.live or _read_sizes(walk, node):
        return
    given: Any = None
    try:
        if walk.flow.is_value(node.inputs[0]) or node.op in _TWO_SIDED:
            given = read_pattern(walk, node) or _READERS.get(node.op, _no_op)(walk, node)
    except (PaddingError, GraphError) as error:  # a window or a pad is too large
        given = f"{node.op} with {error.message}"
    except (ValueError, TypeError, IndexError):  # inputs that the op does not take
        given = None
    if given is None or isinstance(given, str):
        given = walk.foreign(node, given or node.op)
    walk.give(node, given if isinstance(given, list) else [given])


def _no_op(walk: Walk, node: GraphNode) -> Read:
    return None


def _read_sizes(walk: Walk, node: GraphNode) -> bool:
    """Shape, ShapeN, Size and Rank: numbers that a node states about values."""
    if node.op not in ("Shape", "ShapeN", "Size", "Rank"):
        return False
    known = [walk.sizes(source) for source in node.inputs]
    for index, sizes in enumerate(known):
        if sizes is not None:
            number = {"Size": int(np.prod(sizes)), "Rank": len(sizes)}.get(node.op, sizes)
            walk.flow.computed[node.name, index] = np.asarray(number, np.int64)
    return None not in known


def _softmax(walk: Walk, node: GraphNode) -> Read:
    view = walk.by_cell(node.inputs[0])
    return walk.views.like(view, walk.builder.add(node.name, Softmax(), view.value, tap=node.name))


def _cast(walk: Walk, node: GraphNode) -> Read:
    """Casts between single and double precision change nothing; halves round and integers cut."""
    wide = node.type("SrcT") in _WIDE_FLOATS and node.type("DstT") in _WIDE_FLOATS
    return walk.view(node.inputs[0]) if wide else None


def _reduce(walk: Walk, node: GraphNode) -> Read:
    """Mean and Max over axes of a map."""
    value, axes = walk.value(node.inputs[0]), walk.flow.value(node.inputs[1])
    names = _axes_of(walk, value)
    if axes is None or names is None or not axes.size:
        return None
    places = {int(axis) % len(names) for axis in axes.ravel()}
    chosen = [name for place, name in enumerate(names) if place in places and name is not None]
    if 0 in places or not value.is_map:
        return None
    keep, function = node.flag("keep_dims"), "max" if node.op == "Max" else "mean"
    direct = keep or {*chosen} == {"rows", "columns"}
    found = walk.builder.reduce(node.name, value, function, chosen, keep or not direct, tap=node.name)  # type: ignore[arg-type]
    return found if direct else _without(walk, found, places)


def _axes_of(walk: Walk, value: Value) -> tuple[Axis | None, ...] | None:
    return _AXES.get(len(value.shape) + 1) if value.shape is not None else None


def _without(walk: Walk, value: Value, places: set[int]) -> View | None:
    """A value without axes of one cell."""
    view = walk.views.of(value)
    return view.reshaped([size for place, size in enumerate(view.sizes or ()) if place not in places])


def _concat(walk: Walk, node: GraphNode) -> Read:
    *sources, last = node.inputs
    axis = walk.flow.number(last)
    if axis is None or len(sources) < 2 or not all(walk.flow.is_value(source) for source in sources):
        return None
    values = walk.values(sources)
    names = _axes_of(walk, values[0])
    if int(axis) not in (-1, len(names or _AXES[4]) - 1):
        return None
    return walk.builder.add(node.name, Concat(), *values, tap=node.name)


def _reshape(walk: Walk, node: GraphNode) -> Read:
    view, wanted = walk.view(node.inputs[0]), walk.flow.integers(node.inputs[1])
    return None if wanted is None else _moved(view, view.reshaped(wanted), wanted)


def _moved(view: View, found: View | None, wanted: list[int]) -> Read:
    if found is not None or view.sizes is None:
        return found
    old, new = ("x".join("?" if size >= LARGE or size < 0 else str(size) for size in sizes[1:]) for sizes in (view.sizes, wanted))
    return f"a reshape of {old} to {new}"


def _squeeze(walk: Walk, node: GraphNode) -> Read:
    """Removes axes of one cell; a graph that names rows and columns states that they have one cell."""
    view, axes = walk.view(node.inputs[0]), node.integers("squeeze_dims")
    if view.sizes is None:
        return None
    places = {axis % len(view.sizes) for axis in axes} or {place for place, size in enumerate(view.sizes) if size == 1}
    shape = view.value.shape
    if places == {1, 2} and shape and None in shape and view == walk.views.of(view.value):
        view = walk.views.of(replace(view.value, shape=(shape[0], 1, 1)))
    sizes = view.sizes or ()
    if 0 in places or any(sizes[place] != 1 for place in places):
        return None
    return view.reshaped([size for place, size in enumerate(sizes) if place not in places])


def _expand(walk: Walk, node: GraphNode) -> Read:
    view, axis = walk.view(node.inputs[0]), walk.flow.number(node.inputs[1])
    if view.sizes is None or axis is None:
        return None
    sizes = list(view.sizes)
    sizes.insert(int(axis) % (len(sizes) + 1), 1)
    return view.reshaped(sizes)


def _transpose(walk: Walk, node: GraphNode) -> Read:
    order = walk.flow.integers(node.inputs[1])
    return None if order is None else walk.view(node.inputs[0]).transposed(order)


def _tile(walk: Walk, node: GraphNode) -> Read:
    times = walk.flow.integers(node.inputs[1])
    return None if times is None else walk.view(node.inputs[0]).repeated(times)


def _slice(walk: Walk, node: GraphNode) -> Read:
    """StridedSlice and Slice of a map or features, the whole batch."""
    value = walk.value(node.inputs[0])
    known, names = walk.views.of(value).sizes, _axes_of(walk, value)
    bounds = [walk.flow.integers(source) for source in node.inputs[1:]]
    if known is None or names is None or None in bounds:
        return None
    if node.op == "Slice":
        begins, sizes = (each or [] for each in bounds)
        index: list[Any] = [slice(begin, None if size < 0 else begin + size) for begin, size in zip(begins, sizes, strict=True)]
    else:
        index = strided(node, len(known), *(each or [] for each in bounds))
    if any(part is None for part in index):
        return f"{node.op} with a new axis"
    gone = {place for place, part in enumerate(index) if isinstance(part, int)}
    parts = [_part(part, size) for part, size in zip(index, known, strict=True)]
    if parts[0] != slice(None):
        return f"{node.op} of the batch"
    found = walk.builder.cut(node.name, value, {name: part for name, part in zip(names, parts, strict=True) if name}, tap=node.name)
    return _without(walk, found, gone) if gone else found


def _part(part: slice | int, size: int) -> slice:
    """Of an axis of `size` cells; counted from the end where it ends near there, because the size may be open."""
    if isinstance(part, int):
        return slice(part, part + 1 or None)
    start, stop = (None if number == size else number for number in (part.start, part.stop))
    if stop is not None and size >= LARGE and stop > LARGE // 2:
        stop = stop - size or None
    return slice(start or None, stop, None if part.step == 1 else part.step)


def _split(walk: Walk, node: GraphNode) -> Any:
    """Split (axis, value), SplitV (value, sizes, axis) and Unpack along an axis that is not the batch."""
    place: Reference | None = {"Split": node.inputs[0], "SplitV": node.inputs[-1]}.get(node.op)
    value = walk.value(node.inputs[1] if node.op == "Split" else node.inputs[0])
    axis = node.integer("axis") if place is None else walk.flow.number(place)
    known, names = walk.views.of(value).sizes, _axes_of(walk, value)
    if axis is None or known is None or names is None or names[int(axis) % len(names)] is None:
        return None
    at = int(axis) % len(names)
    name, size = names[at], known[at]
    count = node.integer("num" if node.op == "Unpack" else "num_split", 1)
    sizes = walk.flow.integers(node.inputs[1]) if node.op == "SplitV" else [size // count] * count
    if not sizes or name is None or size >= LARGE:
        return None
    sizes = [size - sum(n for n in sizes if n >= 0) if n < 0 else n for n in sizes]
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    found = [
        walk.builder.cut(node.name if not start else f"{node.name}:{index}", value, {name: slice(start, start + n)})
        for index, (start, n) in enumerate(zip(starts, sizes, strict=True))
    ]
    return [_without(walk, part, {at}) or part for part in found] if node.op == "Unpack" else found


def _depth_to_space(walk: Walk, node: GraphNode) -> Read:
    op = DepthToSpace(node.integer("block_size"), "DCR")
    return wrong_layout(node) or walk.builder.add(node.name, op, walk.value(node.inputs[0]), tap=node.name)


def _response_norm(node: GraphNode) -> Op:
    """The defaults are those of core/ops/nn_ops.cc."""
    size = 2 * node.integer("depth_radius", 5) + 1
    return LocalResponseNorm(size, node.real("alpha", 1.0), node.real("beta", 0.5), node.real("bias", 1.0))


def _local_response_norm(walk: Walk, node: GraphNode) -> Read:
    return walk.builder.add(node.name, _response_norm(node), walk.value(node.inputs[0]), tap=node.name)


_TWO_SIDED = frozenset(
    {"Add", "AddV2", "AddN", "Sub", "Mul", "RealDiv", "Div", "Minimum", "Maximum", "ConcatV2", "Split", "Conv2DBackpropInput"}
)
"""Ops whose first input may be a constant; their readers find which input is one."""
_READERS: Mapping[str, Callable[[Walk, GraphNode], Any]] = {
    **dict.fromkeys(("Add", "AddV2", "AddN", "BiasAdd", "Sub", "Mul", "RealDiv", "Div", "Minimum", "Maximum"), read_binary),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), read_fused_norm),
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "Einsum"), read_matrix),
    **dict.fromkeys(("Conv2D", "DepthwiseConv2dNative"), read_convolution),
    **dict.fromkeys(("MaxPool", "AvgPool"), read_pool),
    **dict.fromkeys(("Pad", "PadV2"), read_pad),
    **dict.fromkeys(("Mean", "Max"), _reduce),
    **dict.fromkeys(("StridedSlice", "Slice"), _slice),
    **dict.fromkeys(("Split", "SplitV", "Unpack"), _split),
    "BatchNormWithGlobalNormalization": read_old_norm,
    "Cast": _cast,
    "ClipByValue": read_clip,
    "ConcatV2": _concat,
    "Conv2DBackpropInput": read_transposed,
    "DepthToSpace": _depth_to_space,
    "Elu": unary(lambda node: Elu()),
    "ExpandDims": _expand,
    "LRN": _local_response_norm,
    "LeakyRelu": unary(lambda node: LeakyRelu(node.real("alpha", 0.2))),
    "MirrorPad": read_mirror,
    "Neg": read_negative,
    "Relu": unary(lambda node: Relu()),
    "Relu6": unary(lambda node: Relu6()),
    "Reshape": _reshape,
    "ResizeNearestNeighbor": read_resize,
    "Selu": unary(lambda node: Selu()),
    "Sigmoid": unary(lambda node: Sigmoid()),
    "Softmax": _softmax,
    "Softplus": unary(lambda node: Softplus()),
    "Softsign": unary(lambda node: Softsign()),
    "Square": read_square,
    "Squeeze": _squeeze,
    "Tanh": unary(lambda node: Tanh()),
    "Tile": _tile,
    "Transpose": _transpose,
}
