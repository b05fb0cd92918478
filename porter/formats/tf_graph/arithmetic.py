"""Sums, products and batch normalisations of a TensorFlow graph in porter's terms.

A reader adds its node's value to the walk and returns True, or returns False if the node is foreign. An added vector is the bias of
the convolution or dense layer just before; other constants make affine steps.
"""

from __future__ import annotations

import numpy as np

from porter.filegraph.file_graph import Stored
from porter.formats.tf_graph.constants import Numbers
from porter.formats.tf_graph.nodes import GraphNode, Reference
from porter.formats.tf_graph.patterns import match_batch_norm
from porter.formats.tf_graph.walk import Value, Walk
from porter.graph import Add, Affine, BatchNorm, Conv, Dense, Shape

_FUSED_EPSILON = 0.0001
"""The default of FusedBatchNorm's epsilon (tensorflow/core/ops/nn_ops.cc)."""


def read_bias(walk: Walk, node: GraphNode) -> bool:
    """BiasAdd of a constant along the last axis."""
    return node.text("data_format", "NHWC") == "NHWC" and _shifted(walk, node, *node.inputs)


def read_add(walk: Walk, node: GraphNode) -> bool:
    """Add and AddV2: of two maps, the end of a written-out batch normalisation, a bias, or another constant."""
    if all(walk.is_live(source) for source in node.inputs):
        return _sum(walk, node)
    norm = match_batch_norm(node, walk.live, walk.constants)
    if norm is not None:
        return _normalised(walk, node, walk.value(norm.input), norm.tensors, norm.epsilon)
    first, second = node.inputs
    return _shifted(walk, node, first, second) if walk.is_live(first) else _shifted(walk, node, second, first)


def _sum(walk: Walk, node: GraphNode) -> bool:
    values = [walk.value(source) for source in node.inputs]
    shapes = [value.shape for value in values if value.shape is not None]
    if len(node.inputs) < 2 or any(not _fit(shapes[0], shape) for shape in shapes[1:]):
        return False
    walk.add(node, Add(), values, shapes[0] if shapes else None)
    return True


def _fit(one: Shape, other: Shape) -> bool:
    return len(one) == len(other) and all(None in pair or pair[0] == pair[1] for pair in zip(one, other, strict=True))


def read_add_n(walk: Walk, node: GraphNode) -> bool:
    """AddN of maps."""
    return all(walk.is_live(source) for source in node.inputs) and _sum(walk, node)


def read_subtract(walk: Walk, node: GraphNode) -> bool:
    """x - constant and constant - x."""
    first, second = node.inputs
    if walk.is_live(first) and walk.is_live(second):
        return False
    if walk.is_live(first):
        constant = walk.constants.value(second)
        return constant is not None and _affine(walk, node, walk.value(first), np.ones(1), -constant)
    constant = walk.constants.value(first)
    return constant is not None and _affine(walk, node, walk.value(second), -np.ones(1), constant)


def read_multiply(walk: Walk, node: GraphNode) -> bool:
    """x * constant; the product of two maps is foreign."""
    first, second = node.inputs
    if walk.is_live(first) and walk.is_live(second):
        return False
    live, other = (first, second) if walk.is_live(first) else (second, first)
    constant = walk.constants.value(other)
    return constant is not None and _affine(walk, node, walk.value(live), constant, np.zeros(1))


def read_divide(walk: Walk, node: GraphNode) -> bool:
    """x / constant, without a zero in it."""
    first, second = node.inputs
    constant = None if walk.is_live(second) else walk.constants.value(second)
    if constant is None or not walk.is_live(first) or not np.all(constant):
        return False
    return _affine(walk, node, walk.value(first), 1.0 / constant, np.zeros(1))


def _shifted(walk: Walk, node: GraphNode, live: Reference, other: Reference) -> bool:
    """An added vector: the bias of the convolution or dense layer just before, otherwise an affine step."""
    if walk.is_live(other):
        return False
    value, tensor = walk.value(live), walk.constants.tensor(other)
    step = walk.steps.get(value.source)
    if step is not None and tensor is not None:
        op, biased = step.op, {**step.tensors, "bias": Stored(tensor.name)}
        inputs = [Value(source, None) for source in step.inputs]
        if isinstance(op, Conv) and not op.bias and tensor.shape == (op.filters,):
            walk.add(node, Conv(op.filters, op.window, op.convention, op.groups, True), inputs, value.shape, biased)
            return True
        if isinstance(op, Dense) and not op.bias and tensor.shape == (op.units,):
            walk.add(node, Dense(op.units, True), inputs, value.shape, biased)
            return True
    constant = walk.constants.value(other)
    return constant is not None and _affine(walk, node, value, np.ones(1), constant)


def _affine(walk: Walk, node: GraphNode, value: Value, scale: Numbers, offset: Numbers) -> bool:
    """x * scale + offset, where each is one number, or one for each channel along the last axis."""
    for constant in (scale, offset):
        per_channel = constant.ndim > 0 and constant.size == constant.shape[-1] and value.channels in (None, constant.size)
        if constant.size != 1 and not per_channel:
            return False
    if np.all(scale == 1) and np.all(offset == 0):
        walk.values[node.name] = value
        return True
    wide = np.broadcast_arrays(scale.ravel().astype(np.float64), offset.ravel().astype(np.float64))
    walk.add(node, Affine(*(tuple(numbers.tolist()) for numbers in wide)), [value], value.shape)
    return True


def read_fused_norm(walk: Walk, node: GraphNode) -> bool:
    """FusedBatchNorm, V2 and V3: x, scale, offset, mean, variance. The default of is_training is True (nn_ops.cc)."""
    if node.flag("is_training", True):
        walk.add_foreign(node, f"{node.op} in training mode")
        return True
    return _norm_of(walk, node, ("gamma", "beta", "mean", "variance"), node.real("epsilon", _FUSED_EPSILON))


def read_old_norm(walk: Walk, node: GraphNode) -> bool:
    """BatchNormWithGlobalNormalization: t, m, v, beta, gamma (tensorflow/core/ops/nn_ops.cc)."""
    if not node.flag("scale_after_normalization"):
        return False
    return _norm_of(walk, node, ("mean", "variance", "beta", "gamma"), node.real("variance_epsilon", 0.0))


def _norm_of(walk: Walk, node: GraphNode, roles: tuple[str, ...], epsilon: float) -> bool:
    if node.text("data_format", "NHWC") != "NHWC":
        walk.add_foreign(node, f"{node.op} in {node.text('data_format', '')}")
        return True
    x, *sources = node.inputs
    found = [None if walk.is_live(source) else walk.constants.tensor(source) for source in sources]
    if not walk.is_live(x) or len(found) != len(roles) or any(tensor is None or len(tensor.shape) != 1 for tensor in found):
        return False
    tensors = {role: tensor.name for role, tensor in zip(roles, found, strict=True) if tensor is not None}
    return _normalised(walk, node, walk.value(x), tensors, epsilon)


def _normalised(walk: Walk, node: GraphNode, x: Value, tensors: dict[str, str], epsilon: float) -> bool:
    """A fused normalisation always has a scale and an offset; a layer without them has the constants 1 and 0."""
    for role, neutral in (("gamma", 1), ("beta", 0)):
        name = tensors.get(role, "")
        learnt = name in walk.constants.variables or name.rpartition("/")[2] == role
        if name and not learnt and np.all(walk.constants.array(name) == neutral):
            del tensors[role]
    op = BatchNorm(epsilon, 0.0, scale="gamma" in tensors, center="beta" in tensors)
    size = len(walk.constants.array(tensors["mean"]))
    shape = x.shape if x.channels in (None, size) else None
    if x.shape is not None and shape is None:
        return False
    walk.add(node, op, [x], shape, {role: Stored(name) for role, name in tensors.items()})
    return True
