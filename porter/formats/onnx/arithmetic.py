"""Sums, products, bounds, norms and matrix products of an ONNX graph.

An added vector is the bias of the convolution or dense layer just before; a stored vector of factors is a scale; other constants
make affine steps. Numbers broadcast from the last axis, so numbers for each channel are C×1×1 beside a map N×C×H×W.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from porter.filegraph.builder import Value
from porter.filegraph.dataflow import Reference, Tensor
from porter.filegraph.file_graph import Stored
from porter.filegraph.patterns import ROLES, layers_by_kind
from porter.filegraph.views import View
from porter.filegraph.walk import Read
from porter.formats.onnx.nodes import OnnxNode, Walk
from porter.graph import INPUT, Add, BatchNorm, ChannelScale, LayerNorm, LeakyRelu, Maximum, Minimum, Multiply, Op, PRelu

_MERGED: Mapping[str, Op] = {"Add": Add(), "Sum": Add(), "Mul": Multiply(), "Max": Maximum(), "Min": Minimum()}


def kind_of(node: OnnxNode) -> str:
    """A node's op as patterns name it: there `Mean` is over the last axis, which it keeps."""
    if node.op == "ReduceMean":
        return "Mean" if node.integer("keepdims", 1) and node.integers("axes") == (-1,) else node.op
    return "Add" if node.op == "Sum" and len(node.inputs) == 2 else node.op


def read_pattern(walk: Walk, node: OnnxNode) -> View | None:
    """The layer whose last op is this node, if several ops are one layer. Its tensors are along the last axis."""
    for layer in layers_by_kind().get(kind_of(node), ()):
        found = walk.flow.match(node, layer.pattern)
        op = layer.op(found) if found else None
        if found is None or op is None:
            continue
        view = walk.kept(found["x"])
        tensors: dict[str, Tensor] = {role: found[role] for role in ROLES if role in found}
        along_channels = walk.views.last(view) and all(tensor.shape[-1] == view.value.channels for tensor in tensors.values())
        if (tensors or isinstance(op, LayerNorm)) and not along_channels:
            continue
        walk.exact.update(found.get("exact", {}))
        return _each_cell(walk, node, view, op, {role: tensor.name for role, tensor in tensors.items()})
    return None


def _each_cell(walk: Walk, node: OnnxNode, view: View, op: Op, tensors: Mapping[str, str] | None = None) -> View:
    stored = {role: Stored(name) for role, name in (tensors or {}).items()}
    return walk.views.like(view, walk.builder.add(node.name, op, view.value, tensors=stored, tap=node.name))


def merged(walk: Walk, sources: Sequence[Reference]) -> tuple[list[Value], tuple[int, ...]] | None:
    """Values whose tensors have their axes in one order, and that order; None where they have not, or one is of unknown shape."""
    views = [walk.kept(source) for source in sources]
    order = max((walk.views.order(view) or () for view in views), key=lambda axes: (len(axes), axes), default=())
    alike = all(
        view == (walk.views.of(view.value).transposed(order) if len(order) == len(view.axes or ()) else None) for view in views
    )
    if order and alike:
        return [view.value for view in views], order
    values = [walk.value(source) for source in sources]
    ranks = {len(value.shape) + 1 if value.shape else 0 for value in values}
    return (values, tuple(range(ranks.pop()))) if len(ranks) == 1 and 0 not in ranks else None


def read_binary(walk: Walk, node: OnnxNode) -> Read:
    """A sum, difference, product, quotient, bound or mean: of values, or of a value and a constant."""
    kind, sources = node.op, node.inputs
    if all(walk.flow.is_value(source) for source in sources):
        found = merged(walk, sources)
        if found is None:
            return f"{kind} of values of different axes"
        values, order = found
        if kind == "Sub":
            value = walk.builder.subtract(node.name, values[0], values[1], tap=node.name)
        elif kind == "Mean":
            value = walk.builder.average(node.name, *values, tap=node.name)
        elif kind in _MERGED:
            value = walk.builder.add(node.name, _MERGED[kind], *values, tap=node.name) if len(values) > 1 else values[0]
        else:
            return None
        return walk.views.of(value).transposed(order)
    if len(sources) != 2:
        return None
    first, second = sources
    live, other = (first, second) if walk.flow.is_value(first) else (second, first)
    if not walk.flow.is_value(live) or walk.flow.is_value(other):
        return None
    view = walk.kept(live)
    if not _fits(walk, view, other):
        return None
    value_ = _with_tensor(walk, node, kind, view.value, other) or _with_constant(walk, node, kind, view.value, other, live == first)
    return walk.views.like(view, value_) if value_ else None


def _fits(walk: Walk, view: View, source: Reference) -> bool:
    """Whether a constant is one number, or one for each channel of a value as its tensor holds it."""
    constant, order = walk.flow.value(source), walk.views.order(view)
    if constant is None or order is None:
        return constant is not None and constant.size == 1
    wide = [place - constant.ndim for place, size in enumerate(constant.shape) if size != 1]
    channels = order.index(1) - len(order)
    return constant.ndim <= len(order) and (not wide or (wide == [channels] and constant.size == view.value.channels))


def _with_tensor(walk: Walk, node: OnnxNode, kind: str, value: Value, other: Reference) -> Value | None:
    """A bias, or a trained scale."""
    origin = walk.flow.origin(other)
    shape = walk.flow.constants.declared(origin)
    if shape is None or np.prod(shape) != value.channels or value.channels == 1:
        return None
    wide = [place for place, size in enumerate(shape) if size != 1]
    axes = "" if len(shape) == 1 else "".join("O" if place in wide else "HWI"[place % 3] for place in range(len(shape)))
    stored = Stored(origin, axes)
    if kind == "Add" and len(shape) == 1:
        return walk.builder.bias(node.name, value, stored, tap=node.name)
    if kind == "Mul" and value.node != INPUT and len(shape) <= 4:
        return walk.builder.add(node.name, ChannelScale(), value, tensors={"gamma": stored}, tap=node.name)
    return None


def _with_constant(walk: Walk, node: OnnxNode, kind: str, value: Value, other: Reference, first: bool) -> Value | None:
    """A constant on one side. `first` is the value's place."""
    constant = walk.flow.value(other)
    assert constant is not None
    numbers, name, builder = constant.ravel().astype(np.float64), node.name, walk.builder
    number = numbers.tolist()
    if kind in ("Max", "Min"):
        bound = {"low" if kind == "Max" else "high": number[0]}
        return builder.clip(name, value, **bound, tap=name) if len(number) == 1 else None
    if kind == "Pow" and first and number == [2.0]:
        return builder.add(name, Multiply(), value, value, tap=name)
    if kind == "Div" and (not first or not all(number)):
        return None
    scales: Mapping[str, tuple[Sequence[float], Sequence[float]]] = {
        **dict.fromkeys(("Add", "Sum"), ((1.0,), number)),
        "Sub": ((1.0,), (-numbers).tolist()) if first else ((-1.0,), number),
        "Mul": (number, (0.0,)),
        "Div": ([1 / each for each in number if each], (0.0,)),
    }
    return builder.affine(name, value, *scales[kind], tap=name) if kind in scales else None


def read_negative(walk: Walk, node: OnnxNode) -> Read:
    view = walk.kept(node.inputs[0])
    return walk.views.like(view, walk.builder.affine(node.name, view.value, (-1.0,), (0.0,), tap=node.name))


def read_clip(walk: Walk, node: OnnxNode) -> Read:
    low, high = node.bound(walk.flow, "min", 1, -np.inf), node.bound(walk.flow, "max", 2, np.inf)
    view = walk.kept(node.inputs[0])
    return walk.views.like(view, walk.builder.clip(node.name, view.value, low, high, tap=node.name))


def read_slope(walk: Walk, node: OnnxNode) -> Read:
    """PRelu with one slope, or one for each channel."""
    view, source = walk.kept(node.inputs[0]), node.inputs[1]
    slopes, origin = walk.flow.value(source), walk.flow.origin(source)
    shape = walk.flow.constants.declared(origin)
    if slopes is None or shape is None or not _fits(walk, view, source):
        return None
    if slopes.size == 1 and view.value.channels != 1:
        return _each_cell(walk, node, view, LeakyRelu(float(slopes.ravel()[0])))
    axes = "" if len(shape) == 1 else "OHW"[: len(shape)]
    found = walk.builder.add(node.name, PRelu(), view.value, tensors={"alpha": Stored(origin, axes)}, tap=node.name)
    return walk.views.like(view, found) if len(shape) in (1, 3) else None


def read_batch_norm(walk: Walk, node: OnnxNode) -> Read:
    """BatchNormalization: x, scale, offset, mean, variance."""
    if node.integer("training_mode") or not node.integer("spatial", 1):
        return f"{node.op} {'in training mode' if node.integer('training_mode') else 'of each cell'}"
    roles = ("gamma", "beta", "mean", "variance")
    found = [walk.flow.tensor(source) for source in node.inputs[1:5]]
    value = walk.value(node.inputs[0])
    tensors = {role: Stored(tensor.name) for role, tensor in zip(roles, found, strict=True) if tensor is not None}
    if len(tensors) < 4 or any(tensor is None or tensor.shape != (value.channels,) for tensor in found):
        return None
    op = BatchNorm(node.real("epsilon", 1e-5), 0.0)
    return walk.builder.add(node.name, op, value, tensors=tensors, tap=node.name)


def read_layer_norm(walk: Walk, node: OnnxNode) -> Read:
    """LayerNormalization over the channels, which are the last axis."""
    view, axis = walk.kept(node.inputs[0]), node.integer("axis", -1)
    found = [None if (source := node.input(place)) is None else walk.flow.tensor(source) for place in (1, 2)]
    if not walk.views.last(view) or axis not in (-1, len(view.axes or ()) - 1) or len(node.inputs) - 1 > sum(map(bool, found)):
        return f"{node.op} over other axes than the channels"
    tensors = {role: tensor.name for role, tensor in zip(("gamma", "beta"), found, strict=True) if tensor is not None}
    op = LayerNorm(node.real("epsilon", 1e-5), "gamma" in tensors, "beta" in tensors)
    return _each_cell(walk, node, view, op, tensors)


def read_gemm(walk: Walk, node: OnnxNode) -> Read:
    """Gemm, alpha * x @ kernel + beta * bias: a dense layer."""
    kernel, value, source = walk.flow.tensor(node.inputs[1]), walk.value(node.inputs[0]), node.input(2)
    if node.integer("transA"):
        return "Gemm with transA"
    if kernel is None or len(kernel.shape) != 2:
        return None
    axes = "OI" if node.integer("transB") else "IO"
    units, tensors = kernel.shape[axes.index("O")], {"kernel": Stored(kernel.name, axes)}
    bias = None if source is None else walk.flow.tensor(source)
    if bias is not None and bias.shape == (units,) and node.real("beta", 1.0) == 1:
        tensors["bias"], source = Stored(bias.name), None
    value = walk.builder.affine(f"{node.name}:alpha", value, (node.real("alpha", 1.0),), (0.0,))
    found = walk.builder.dense(node.name, value, units, tensors, tap=node.name if source is None else None)
    if source is None:
        return found
    constant = walk.flow.value(source)
    if constant is None or constant.size not in (1, (*constant.shape, 1)[constant.ndim - 1]):
        return "Gemm with a bias for each image"
    offset = (constant.ravel() * node.real("beta", 1.0)).tolist()
    return walk.builder.affine(f"{node.name}:bias", found, (1.0,), offset, tap=node.name)


def read_matrix(walk: Walk, node: OnnxNode) -> Read:
    """MatMul with a kernel: a dense layer, or over the cells of a map whose channels are last a 1x1 convolution."""
    kernel = walk.flow.tensor(node.inputs[1])
    if kernel is None or len(kernel.shape) != 2 or not walk.flow.is_value(node.inputs[0]):
        return None
    view = walk.by_cell(node.inputs[0])
    if not walk.views.last(view) or view.value.channels != kernel.shape[0]:
        return "MatMul over other axes than the channels"
    tensors = {"kernel": Stored(kernel.name, "IO")}
    return walk.views.like(view, walk.builder.dense(node.name, view.value, kernel.shape[1], tensors, tap=node.name))
