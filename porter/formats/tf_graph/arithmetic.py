"""Sums, products, norms and matrix products of a TensorFlow graph.

An added vector is the bias of the convolution or dense layer just before; a vector that a file trains is a scale; other constants
make affine steps.
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
from porter.formats.tf_graph.nodes import GraphNode, Walk
from porter.formats.tf_graph.windows import wrong_layout
from porter.graph import MOST_CONSTANTS, Add, BatchNorm, ChannelScale, Maximum, Minimum, Multiply, Op

KINDS = {
    **{"AddV2": "Add", "BiasAdd": "Add", "RealDiv": "Div", "Maximum": "Max", "Minimum": "Min", "ClipByValue": "Clip"},
    "Mean": "Mean of fewer axes",
}
_MERGED: Mapping[str, Op] = {"Add": Add(), "AddN": Add(), "Mul": Multiply(), "Max": Maximum(), "Min": Minimum()}
_FUSED_EPSILON = 0.0001
"""The default of FusedBatchNorm's epsilon (tensorflow/core/ops/nn_ops.cc)."""


def kind_of(node: GraphNode) -> str:
    """A node's op as patterns name it."""
    return "Mean" if node.op == "Mean" and node.flag("keep_dims") else KINDS.get(node.op, node.op)


def read_pattern(walk: Walk, node: GraphNode) -> View | None:
    """The layer whose last op is this node, if several ops are one layer."""
    for layer in layers_by_kind().get(kind_of(node), ()):
        found = walk.flow.match(node, layer.pattern)
        op = layer.op(found) if found else None
        if found is None or op is None:
            continue
        view = walk.by_cell(found["x"])
        tensors: dict[str, Tensor] = {role: found[role] for role in ROLES if role in found}
        axes = (-1, len(view.axes or ()) - 1)
        if found.get("$axis", -1) not in axes or any(tensor.shape[-1] != view.value.channels for tensor in tensors.values()):
            continue
        walk.exact.update(found.get("exact", {}))
        return _each_cell(walk, node, view, op, {role: tensor.name for role, tensor in tensors.items()})
    return None


def _each_cell(walk: Walk, node: GraphNode, view: View, op: Op, tensors: Mapping[str, str] | None = None) -> View:
    stored = {role: Stored(name) for role, name in (tensors or {}).items()}
    return walk.views.like(view, walk.builder.add(node.name, op, view.value, tensors=stored, tap=node.name))


def read_binary(walk: Walk, node: GraphNode) -> Read:
    """A sum, difference, product, quotient or bound: of values, or of a value and a constant."""
    kind, sources = kind_of(node), node.inputs
    if wrong_layout(node) or len(sources) < 2:
        return wrong_layout(node)
    if all(walk.flow.is_value(source) for source in sources):
        values = walk.values(sources)
        if kind == "Sub":
            return walk.builder.subtract(node.name, values[0], values[1], tap=node.name)
        return walk.builder.add(node.name, _MERGED[kind], *values, tap=node.name) if kind in _MERGED else None
    first, second = sources if len(sources) == 2 else (sources[0], sources[0])
    live, other = (first, second) if walk.flow.is_value(first) else (second, first)
    if not walk.flow.is_value(live) or walk.flow.is_value(other):
        return None
    view = walk.by_cell(live)
    value = _with_tensor(walk, node, kind, view.value, other) or _with_constant(walk, node, kind, view.value, other, live == first)
    return walk.views.like(view, value) if value else None


def _with_tensor(walk: Walk, node: GraphNode, kind: str, value: Value, other: Reference) -> Value | None:
    """A bias, or a trained scale."""
    tensor = walk.flow.tensor(other)
    if tensor is None or not tensor.is_vector or tensor.shape[-1] != value.channels:
        return None
    if kind == "Add" and len(tensor.shape) == 1:
        return walk.builder.bias(node.name, value, Stored(tensor.name), tap=node.name)
    if kind == "Mul" and (tensor.name in walk.trained or tensor.shape[-1] > MOST_CONSTANTS):
        return walk.builder.add(node.name, ChannelScale(), value, tensors={"gamma": Stored(tensor.name)}, tap=node.name)
    return None


def _with_constant(walk: Walk, node: GraphNode, kind: str, value: Value, other: Reference, first: bool) -> Value | None:
    """A constant on one side: one number, or one for each channel along the last axis. `first` is the value's place."""
    constant = walk.flow.value(other)
    if constant is None or (
        constant.size != 1 and (constant.size != constant.shape[-1] or value.channels not in (None, constant.size))
    ):
        return None
    numbers, name, builder = constant.ravel().astype(np.float64), node.name, walk.builder
    number = numbers.tolist()
    if kind in ("Max", "Min"):
        bound = {"low" if kind == "Max" else "high": number[0]}
        return builder.clip(name, value, **bound, tap=name) if len(number) == 1 else None
    if kind == "Div" and (not first or not all(number)):
        return None
    scales: Mapping[str, tuple[Sequence[float], Sequence[float]]] = {
        "Add": ((1.0,), number),
        "Sub": ((1.0,), (-numbers).tolist()) if first else ((-1.0,), number),
        "Mul": (number, (0.0,)),
        "Div": ([1 / each for each in number if each], (0.0,)),
    }
    return builder.affine(name, value, *scales[kind], tap=name) if kind in scales else None


def read_negative(walk: Walk, node: GraphNode) -> Read:
    return walk.builder.affine(node.name, walk.value(node.inputs[0]), (-1.0,), (0.0,), tap=node.name)


def read_square(walk: Walk, node: GraphNode) -> Read:
    value = walk.value(node.inputs[0])
    return walk.builder.add(node.name, Multiply(), value, value, tap=node.name)


def read_clip(walk: Walk, node: GraphNode) -> Read:
    low, high = (walk.flow.number(bound) for bound in node.inputs[1:3])
    if low is None or high is None:
        return None
    return walk.builder.clip(node.name, walk.value(node.inputs[0]), low, high, tap=node.name)


def read_fused_norm(walk: Walk, node: GraphNode) -> Read:
    """FusedBatchNorm, V2 and V3: x, scale, offset, mean, variance. The default of is_training is True (nn_ops.cc)."""
    if node.flag("is_training", True):
        return f"{node.op} in training mode"
    return _norm_of(walk, node, ("gamma", "beta", "mean", "variance"), node.real("epsilon", _FUSED_EPSILON))


def read_old_norm(walk: Walk, node: GraphNode) -> Read:
    """BatchNormWithGlobalNormalization: t, m, v, beta, gamma (tensorflow/core/ops/nn_ops.cc)."""
    if not node.flag("scale_after_normalization"):
        return None
    return _norm_of(walk, node, ("mean", "variance", "beta", "gamma"), node.real("variance_epsilon", 0.0))


def _norm_of(walk: Walk, node: GraphNode, roles: tuple[str, ...], epsilon: float) -> Read:
    """A fused normalisation always has a scale and an offset; a layer without them has the constants 1 and 0."""
    x, *sources = node.inputs
    found = [walk.flow.tensor(source) for source in sources]
    tensors = {
        role: tensor.name for role, tensor in zip(roles, found, strict=False) if tensor is not None and len(tensor.shape) == 1
    }
    if wrong_layout(node) or len(tensors) < len(roles):
        return wrong_layout(node)
    for role, neutral in (("gamma", 1), ("beta", 0)):
        name = tensors[role]
        learnt = name in walk.trained or name.rpartition("/")[2] == role
        if not learnt and np.all(walk.flow.constants.array(name) == neutral):
            del tensors[role]
    view = walk.by_cell(x)
    if view.value.channels not in (None, len(walk.flow.constants.array(tensors["mean"]))):
        return None
    return _each_cell(walk, node, view, BatchNorm(epsilon, 0.0, scale="gamma" in tensors, center="beta" in tensors), tensors)


def read_matrix(walk: Walk, node: GraphNode) -> Read:
    """MatMul, BatchMatMul and Einsum with a kernel: a dense layer, or over the cells of a map a 1x1 convolution."""
    x, weights = node.inputs[:2]
    kernel = walk.flow.tensor(weights)
    axes = "OI" if node.flag("transpose_b") or node.flag("adj_y") else "IO"
    if node.op == "Einsum":
        axes = _einsum_axes(node.text("equation", ""))
    if node.flag("transpose_a") or node.flag("adj_x"):
        return f"{node.op} with {'transpose_a' if node.op == 'MatMul' else 'adj_x'}"
    if kernel is None or len(kernel.shape) != 2 or not axes or not walk.flow.is_value(x):
        return None
    taken, units = kernel.shape if axes == "IO" else kernel.shape[::-1]
    view = walk.by_cell(x)
    if view.value.channels not in (None, taken):
        return None
    value = walk.builder.dense(node.name, view.value, units, {"kernel": Stored(kernel.name, axes)}, tap=node.name)
    return walk.views.like(view, value)


def _einsum_axes(equation: str) -> str:
    """The kernel's axes in an equation such as `abcd,de->abce`; empty for another one."""
    inputs, _, output = equation.replace(" ", "").partition("->")
    x, _, kernel = inputs.partition(",")
    for axes, pair in (("IO", kernel), ("OI", kernel[::-1])):
        if len(pair) == 2 and len(set(x)) == len(x) and x.endswith(pair[0]) and pair[1] not in x and output == x[:-1] + pair[1]:
            return axes
    return ""
