"""Norms that files write as several ops, as functions of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from porter.filegraph.layer_values import Value
from porter.filegraph.matching.match import OpPattern, match
from porter.filegraph.tensors.functions import divide_by_norm, norm, sqrt
from porter.filegraph.tensors.tensor import Scope, Tensor
from porter.graph import ops


def sqrt_or_norm(x: Tensor, keeps: Callable[[Any], bool]) -> Tensor:
    """Read a root: as a norm if it is the root of a sum of squares, otherwise as the root of x.

    Args:
        keeps: whether a node that sums keeps its axes, with one cell.
    """
    flow, node = x.walk.flow, x.scope.node
    for square in (("Mul", "x", "x"), ("Square", "x")):
        captures = match(flow, node, ("Sqrt", ("Sum", square, "#axes")))
        if captures is not None:
            sum_name, _ = node.source
            return norm(x.scope.tensor(captures["x"]), 2, captures["#axes"], keeps(flow.nodes[sum_name]))
    return sqrt(x)


def match_l2_normalize(scope: Scope) -> Tensor | None:
    """Match a product that is a value over its norm, as tf.math.l2_normalize and TensorFlow Lite's converter
    write it, and return that; None for another product.
    """
    flow = scope.walk.flow
    for square in (("Mul", "x", "x"), ("Square", "x")):
        total = "Sum", square, "#axes"
        # x * rsqrt(max(sum, least)): `least` bounds the square of the norm
        captures = match(flow, scope.node, ("Mul", "x", ("Rsqrt", ("Max", total, "$least"))))
        if captures is not None:
            least_norm = math.sqrt(captures["$least"])
            return divide_by_norm(scope.tensor(captures["x"]), 2, captures["#axes"], least_norm)
        # x * min(rsqrt(sum), most): `most` bounds one over the norm
        captures = match(flow, scope.node, ("Mul", "x", ("Min", ("Rsqrt", total), "$most")))
        if captures is not None:
            least_norm = 1 / captures["$most"]
            return divide_by_norm(scope.tensor(captures["x"]), 2, captures["#axes"], least_norm)
    return None


def match_response_norm(
    scope: Scope, means: OpPattern, pool: str, size_of: Callable[[Any, Value], int | None]
) -> Tensor | None:
    """Match what torch.nn.functional.local_response_norm writes, x / (bias + alpha * means of squares) **
    beta, and return it as one op; None for other quotients. Its alpha multiplies a mean, porter's a sum.

    Args:
        means: the means of squares over neighbouring channels, as a pattern whose `pool` is the op that takes
            them.
        size_of: over how many channels that does, from its node and x; None where it takes others.
    """
    flow = scope.walk.flow
    pattern = "Div", "x", ("Pow", ("Add", ("Mul", means, "$alpha"), "$bias"), "$beta")
    captures = match(flow, scope.node, pattern)
    if captures is None:
        return None
    x = scope.tensor(captures["x"])
    pool_node = scope.node
    while pool_node.op != pool:  # from the quotient to its divisor, and on to the pool
        live_inputs = [name for name, _ in pool_node.inputs if name in flow.live]
        pool_node = flow.nodes[live_inputs[-1] if pool_node is scope.node else live_inputs[0]]
    size = size_of(pool_node, x.value)
    if size is None:
        return None
    size = size or 1  # a damaged file may state 0
    alpha, beta, bias = captures["$alpha"], captures["$beta"], captures["$bias"]
    return x.apply_op(ops.LocalResponseNorm(size, alpha / size, beta, bias))
