"""TensorFlow's sums, norms and matrix products with attributes, decoded."""

from __future__ import annotations

from porter.filegraph import functions
from porter.filegraph.arithmetic import batch_norm, combine
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.products import Product, by_matrix, dense, einsum, matmul
from porter.filegraph.reductions import softmax
from porter.filegraph.tensor import Tensor
from porter.filegraph.walk import Read, apply
from porter.formats.tf_graph.nodes import GraphNode, Walk
from porter.formats.tf_graph.windows import expect_layout
from porter.graph import Exp

_KINDS = {
    "AddV2": "Add",
    "BiasAdd": "Add",
    "AddN": "Add",
    "RealDiv": "Div",
    "Maximum": "Max",
    "Minimum": "Min",
    "SelectV2": "Where",
    "Select": "Where",
    "ClipByValue": "Clip",
    "Mean": "Mean of fewer axes",
    "Max": "Max of axes",
    "Min": "Min of axes",
}
_PEAK = "Max of axes", "x", "#axes"
_FINITE = "Where", ("IsFinite", _PEAK), _PEAK
_SOFTMAX = "Exp", ("Sub", "x", ("Add", ("Log", ("Sum", ("Exp", ("Sub", "x", _FINITE)), "#axes")), _FINITE))
"""exp(x - reduce_logsumexp(x)), with the largest number taken off and put back."""
_POWERS = "Log", ("Sum", ("Exp", ("Sub", "x", _FINITE)), "#axes")
_LOG_SUMS = (True, ("Add", _POWERS, _FINITE)), (False, ("Add", _POWERS, ("Reshape", _FINITE)))
"""reduce_logsumexp, by whether it keeps the axes, with the largest number taken off and put back."""
_FUSED_EPSILON = 0.0001
"""The default of FusedBatchNorm's epsilon (tensorflow/core/ops/nn_ops.cc)."""


def kind_of(node: GraphNode) -> str:
    """A node's op as patterns name it."""
    return "Mean" if node.op == "Mean" and node.flag("keep_dims") else _KINDS.get(node.op, node.op)


def read_binary(node: GraphNode, *values: Tensor) -> Tensor | Read:
    scope = values[0].scope
    if kind_of(node) == "Add":
        for keep, pattern in _LOG_SUMS:
            if (found := scope.walk.flow.match(node, pattern)) is not None:
                return functions.log_sum_exp(scope.tensor(found["x"]), found["#axes"], keep)
    expect_layout(node)
    unit = functions.unit(scope) if node.op == "Mul" else None
    return unit or combine(scope.walk, node, kind_of(node), node.inputs)


def read_clip(node: GraphNode, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return x.clip(low.number(), high.number())


def read_fused_norm(walk: Walk, node: GraphNode) -> Read:
    """FusedBatchNorm, V2 and V3: x, scale, offset, mean, variance. The default of is_training is True
    (nn_ops.cc).
    """
    if node.flag("is_training", True):
        raise Unsupported("in training mode")
    tensors = dict(zip(("gamma", "beta", "mean", "variance"), node.inputs[1:], strict=True))
    expect_layout(node)
    return batch_norm(walk, node, node.source, tensors, node.real("epsilon", _FUSED_EPSILON))


def read_old_norm(walk: Walk, node: GraphNode) -> Read:
    """BatchNormWithGlobalNormalization: t, m, v, beta, gamma (tensorflow/core/ops/nn_ops.cc)."""
    if not node.flag("scale_after_normalization"):
        raise Unsupported("without scale_after_normalization")
    tensors = dict(zip(("mean", "variance", "beta", "gamma"), node.inputs[1:], strict=True))
    return batch_norm(walk, node, node.source, tensors, node.real("variance_epsilon", 0.0))


def read_matrix(walk: Walk, node: GraphNode) -> Read:
    """MatMul and BatchMatMul of values, or with a kernel."""
    turned = [node.flag("transpose_a") or node.flag("adj_x"), node.flag("transpose_b") or node.flag("adj_y")]
    if all(map(walk.is_value, node.inputs)):
        return matmul(walk, node, node.inputs, turned)
    if not any(turned) and not walk.is_value(node.source):
        return by_matrix(walk, node, *node.inputs)
    if turned[0]:
        raise Unsupported(f"with {'transpose_a' if node.op == 'MatMul' else 'adj_x'}")
    return dense(walk, node, node.source, Product(node.inputs[1], "OI" if turned[1] else "IO"))


def read_exponential(walk: Walk, node: GraphNode) -> Read:
    """An Exp, which may be the last op of a softmax over several axes, as Keras writes it."""
    found = walk.flow.match(node, _SOFTMAX)
    return (
        apply(walk, node, node.source, Exp())
        if found is None
        else softmax(walk, node, found["x"], *found["#axes"])
    )


def read_einsum(walk: Walk, node: GraphNode) -> Read:
    return einsum(walk, node, node.text("equation", ""), node.inputs)


def read_rounded(node: GraphNode, x: Tensor, divisor: Tensor) -> Tensor:
    """A quotient by a number as a whole number, and what such a quotient leaves."""
    function = functions.whole_quotient if node.op == "FloorDiv" else functions.remainder
    return function(x, divisor, "floor" if node.op.startswith("Floor") else "trunc")


def read_running_sums(node: GraphNode, x: Tensor, axis: Tensor) -> Tensor:
    """Cumsum."""
    return x.cumsum(int(axis.number()), node.flag("reverse"), node.flag("exclusive"))


def read_product_along(node: GraphNode, x: Tensor, axes: Tensor) -> Tensor:
    """Prod over axes."""
    return functions.prod(x, axes.integers(), node.flag("keep_dims"))


def read_band(node: GraphNode, x: Tensor, below: Tensor, above: Tensor) -> Tensor:
    """MatrixBandPart: so many diagonals below and above the main one; all of them where a number is below
    0.
    """
    least, most = -int(below.number()), int(above.number())
    return functions.band(x, None if least > 0 else least, None if most < 0 else most)
