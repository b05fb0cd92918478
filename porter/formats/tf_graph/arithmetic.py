"""TensorFlow's sums, norms and matrix products with attributes, decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from porter.base.name_tables import by_name
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.matching.match import match
from porter.filegraph.matching.norms import match_l2_normalize
from porter.filegraph.tensors import functions
from porter.filegraph.tensors.products import Product
from porter.filegraph.tensors.several import einsum, matmul, matmul_stored, merge_all
from porter.filegraph.tensors.tensor import Tensor
from porter.formats.tf_graph.nodes import GraphNode
from porter.formats.tf_graph.windows import expect_layout

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
# Parts of patterns: the largest number, and that or 0 if it is not finite.
# Patterns of ops: each op, and behind it what it reads. `x` is any value, and `#axes` are constant axes.
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
    """Return a node's op as porter's patterns name it: `AddV2` and `BiasAdd` are an `Add`, and only a mean
    that keeps its axes is a `Mean`.
    """
    if node.op == "Mean" and node.flag("keep_dims"):
        return "Mean"
    return _KINDS.get(node.op, node.op)


def _read_binary(node: GraphNode, *values: Tensor) -> Tensor:
    """Return the value of an operator of two values. If it is the last step of a log-sum-exp or of an L2
    norm, return the value of that whole function.
    """
    scope = values[0].scope
    if kind_of(node) == "Add":
        for keep, pattern in _LOG_SUMS:
            if (captured := match(scope.walk.flow, node, pattern)) is not None:
                return functions.log_sum_exp(scope.tensor(captured["x"]), captured["#axes"], keep)
    expect_layout(node)
    # A value times one over its norm.
    unit = match_l2_normalize(scope) if node.op == "Mul" else None
    return unit or merge_all(kind_of(node), values)


def _fused_norm(
    node: GraphNode, x: Tensor, scale: Tensor, offset: Tensor, mean: Tensor, variance: Tensor
) -> Tensor:
    """Return the value of FusedBatchNorm, V2 and V3. The default of is_training is True (nn_ops.cc)."""
    if node.flag("is_training", True):
        raise Unsupported("in training mode")
    expect_layout(node)
    epsilon = node.real("epsilon", _FUSED_EPSILON)
    return x.batch_norm(epsilon, gamma=scale, beta=offset, mean=mean, variance=variance)


def _old_norm(
    node: GraphNode, x: Tensor, mean: Tensor, variance: Tensor, beta: Tensor, gamma: Tensor
) -> Tensor:
    """Return the value of BatchNormWithGlobalNormalization (tensorflow/core/ops/nn_ops.cc), which has to
    scale by gamma.
    """
    if not node.flag("scale_after_normalization"):
        raise Unsupported("without scale_after_normalization")
    epsilon = node.real("variance_epsilon", 0.0)
    return x.batch_norm(epsilon, gamma=gamma, beta=beta, mean=mean, variance=variance)


def _matmul(node: GraphNode, x: Tensor, other: Tensor) -> Tensor:
    """Return the value of MatMul and BatchMatMul: of two values, or of a value and stored numbers on either
    side. A transposed value beside a kernel is Unsupported.
    """
    transposes_x = node.flag("transpose_a") or node.flag("adj_x")
    transposes_other = node.flag("transpose_b") or node.flag("adj_y")
    if x.is_value == other.is_value:
        return matmul(x, other, [transposes_x, transposes_other])
    if not transposes_x and not transposes_other and not x.is_value:
        return matmul_stored(x, other)
    if transposes_x:
        raise Unsupported(f"with {'transpose_a' if node.op == 'MatMul' else 'adj_x'}")
    return x.dense(Product(other.reference, "OI" if transposes_other else "IO"))


def _exponential(node: GraphNode, x: Tensor) -> Tensor:
    """Return the value of an Exp, which may be the last op of a softmax over several axes, as Keras writes
    it.
    """
    captured = match(x.walk.flow, node, _SOFTMAX)
    if captured is None:
        return functions.exp(x)
    return x.scope.tensor(captured["x"]).softmax(*captured["#axes"])


def _round_quotient(node: GraphNode, x: Tensor, divisor: Tensor) -> Tensor:
    """Return the whole quotient of FloorDiv, or the remainder of FloorMod and of Mod, which cuts instead of
    rounding down.
    """
    function = functions.whole_quotient if node.op == "FloorDiv" else functions.remainder
    return function(x, divisor, "floor" if node.op.startswith("Floor") else "trunc")


def _cumsum(node: GraphNode, x: Tensor, axis: Tensor) -> Tensor:
    """Return the value of Cumsum."""
    return x.cumsum(int(axis.number()), node.flag("reverse"), node.flag("exclusive"))


def _prod(node: GraphNode, x: Tensor, axes: Tensor) -> Tensor:
    """Return the value of Prod."""
    return functions.prod(x, axes.integers(), node.flag("keep_dims"))


def _band(node: GraphNode, x: Tensor, below: Tensor, above: Tensor) -> Tensor:
    """Return the value of MatrixBandPart: so many diagonals below and above the main one; all of them where a
    number is below 0.
    """
    count_below = int(below.number())
    count_above = int(above.number())
    # Diagonals are numbered from the main one, those below it by numbers below 0.
    lowest = None if count_below < 0 else -count_below
    highest = None if count_above < 0 else count_above
    return functions.band_part(x, lowest, highest)


FUNCTIONS: Mapping[str, Callable[..., Tensor]] = by_name(
    {
        "Add AddN AddV2 BiasAdd Div Maximum Minimum Mul Pow RealDiv Sub": _read_binary,
        "BatchMatMul BatchMatMulV2 MatMul": _matmul,
        "FloorDiv FloorMod Mod TruncateMod": _round_quotient,
        "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3": _fused_norm,
        "BatchNormWithGlobalNormalization": _old_norm,
        "ClipByValue": lambda node, x, low, high: x.clip(low.number(), high.number()),
        "Cumsum": _cumsum,
        "Einsum": lambda node, *tensors: einsum(node.text("equation", ""), *tensors),
        "Exp": _exponential,
        "MatrixBandPart": _band,
        "Prod": _prod,
    }
)
