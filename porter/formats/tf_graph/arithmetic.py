"""TensorFlow's sums, norms and matrix products with attributes, decoded."""

from __future__ import annotations

from porter.filegraph.arithmetic import Product, batch_norm, clip, combine, dense
from porter.filegraph.walk import Read
from porter.formats.tf_graph.nodes import GraphNode, Walk
from porter.formats.tf_graph.windows import wrong_layout

_KINDS = {
    **{"AddV2": "Add", "BiasAdd": "Add", "AddN": "Add", "RealDiv": "Div", "Maximum": "Max", "Minimum": "Min"},
    **{"ClipByValue": "Clip", "Mean": "Mean of fewer axes", "Max": "Max of axes", "Min": "Min of axes"},
}
_FUSED_EPSILON = 0.0001
"""The default of FusedBatchNorm's epsilon (tensorflow/core/ops/nn_ops.cc)."""


def kind_of(node: GraphNode) -> str:
    """A node's op as patterns name it."""
    return "Mean" if node.op == "Mean" and node.flag("keep_dims") else _KINDS.get(node.op, node.op)


def read_binary(walk: Walk, node: GraphNode) -> Read:
    return wrong_layout(node) or combine(walk, node, kind_of(node), node.inputs)


def read_clip(walk: Walk, node: GraphNode) -> Read:
    low, high = (walk.flow.number(bound) for bound in node.inputs[1:3])
    return None if low is None or high is None else clip(walk, node, node.inputs[0], low, high)


def read_fused_norm(walk: Walk, node: GraphNode) -> Read:
    """FusedBatchNorm, V2 and V3: x, scale, offset, mean, variance. The default of is_training is True (nn_ops.cc)."""
    if node.flag("is_training", True):
        return f"{node.op} in training mode"
    tensors = dict(zip(("gamma", "beta", "mean", "variance"), node.inputs[1:], strict=True))
    return wrong_layout(node) or batch_norm(walk, node, node.inputs[0], tensors, node.real("epsilon", _FUSED_EPSILON))


def read_old_norm(walk: Walk, node: GraphNode) -> Read:
    """BatchNormWithGlobalNormalization: t, m, v, beta, gamma (tensorflow/core/ops/nn_ops.cc)."""
    if not node.flag("scale_after_normalization"):
        return None
    tensors = dict(zip(("mean", "variance", "beta", "gamma"), node.inputs[1:], strict=True))
    return batch_norm(walk, node, node.inputs[0], tensors, node.real("variance_epsilon", 0.0))


def read_matrix(walk: Walk, node: GraphNode) -> Read:
    """MatMul, BatchMatMul and Einsum with a kernel."""
    if node.flag("transpose_a") or node.flag("adj_x"):
        return f"{node.op} with {'transpose_a' if node.op == 'MatMul' else 'adj_x'}"
    axes = "OI" if node.flag("transpose_b") or node.flag("adj_y") else "IO"
    if node.op == "Einsum":
        axes = _einsum_axes(node.text("equation", ""))
    return dense(walk, node, node.inputs[0], Product(node.inputs[1], axes))


def _einsum_axes(equation: str) -> str:
    """The kernel's axes in an equation such as `abcd,de->abce`; empty for another one."""
    inputs, _, output = equation.replace(" ", "").partition("->")
    x, _, kernel = inputs.partition(",")
    for axes, pair in (("IO", kernel), ("OI", kernel[::-1])):
        if len(pair) == 2 and len(set(x)) == len(x) and x.endswith(pair[0]) and pair[1] not in x and output == x[:-1] + pair[1]:
            return axes
    return ""
