"""ONNX's norms, products and activations with attributes, decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from porter.filegraph import arithmetic
from porter.filegraph.builder import Value
from porter.filegraph.dataflow import Operand, Reference
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.products import Product, by_matrix, dense, matmul, with_matrices
from porter.filegraph.reductions import reduce, variance
from porter.filegraph.views import View
from porter.filegraph.walk import Read, apply
from porter.formats.onnx.nodes import OnnxNode, Walk
from porter.graph import Affine, Gelu, HardSigmoid, LayerNorm, Op, Reciprocal, RmsNorm, Sigmoid, Sqrt, Swish

_MEANS = "Squeeze", ("AveragePool", ("Pad", ("Reshape", ("Mul", "x", "x"))))
_OF_ANY_NUMBER = frozenset({"Max", "Mean", "Min", "Sum"})
"""Operators of one value or more."""


def kind_of(node: OnnxNode) -> str:
    """A node's op as patterns name it: there `Mean` keeps its axes."""
    if node.op == "ReduceMean":
        return "Mean" if node.integer("keepdims", 1) else node.op
    if node.op == "Mod" and not node.integer("fmod"):
        return "FloorMod"
    return "Add" if node.op == "Sum" and len(node.inputs) == 2 else node.op


def operands(node: OnnxNode) -> Sequence[Operand]:
    """A node's inputs, and in their places the numbers that it has as attributes."""
    numbers: Sequence[float] = ()
    if node.op == "ReduceMean" and len(axes := node.integers("axes")) == 1:
        numbers = axes
    elif node.op == "Clip" and {"min", "max"} <= node.attributes.keys():
        numbers = node.real("min", 0.0), node.real("max", 0.0)
    elif node.op == "HardSigmoid":
        numbers = node.real("alpha", 0.2), node.real("beta", 0.5)
    return (*node.inputs, *map(float, numbers))


def read_binary(walk: Walk, node: OnnxNode) -> Read:
    if len(node.inputs) != 2 and node.op not in _OF_ANY_NUMBER:
        raise Unsupported(f"of {len(node.inputs)} values")
    if node.op == "Div":
        for means in (_MEANS, ("Reshape", _MEANS)):
            found = arithmetic.response_norm(
                walk, node, means, "AveragePool", partial(_channels_pooled, walk)
            )
            if found is not None:
                return found
    return arithmetic.combine(walk, node, "Add" if node.op == "Sum" else node.op, node.inputs)


def _channels_pooled(walk: Walk, pool: OnnxNode, value: Value) -> int | None:
    """Over how many channels of a value an average over five axes is taken, as torch.onnx writes a
    LocalResponseNorm.
    """
    padded = walk.flow.nodes[pool.source[0]]
    squares, kernel = walk.view(padded.source), pool.integers("kernel_shape")
    pads, fill = padded.stated(walk.flow, "pads", 1), padded.input(2)
    size = kernel[0] if kernel else 0
    along = (
        squares.sizes is not None
        and squares.sizes[1:3] == (1, value.channels)
        and len(squares.sizes) == 5 == len(kernel) + 2
    )
    plain = kernel[1:] == (1, 1) and {*pool.integers("strides")} <= {1} and not any(pool.integers("pads"))
    plain = (
        plain
        and pool.text("auto_pad", "NOTSET") == "NOTSET"
        and padded.text("mode", "constant") == "constant"
    )
    plain = plain and padded.input(3) is None and (fill is None or walk.flow.number(fill) == 0)
    around = [0, 0, size // 2, 0, 0, 0, 0, (size - 1) // 2, 0, 0]
    return size if along and plain and pads == around else None


def read_clip(walk: Walk, node: OnnxNode) -> Read:
    low, high = node.bound(walk.flow, "min", 1, -np.inf), node.bound(walk.flow, "max", 2, np.inf)
    return arithmetic.clip(walk, node, node.source, low, high)


def read_batch_norm(walk: Walk, node: OnnxNode) -> Read:
    """BatchNormalization: x, scale, offset, mean, variance."""
    if node.integer("training_mode") or not node.integer("spatial", 1):
        raise Unsupported("in training mode" if node.integer("training_mode") else "of each cell")
    tensors = dict(zip(("gamma", "beta", "mean", "variance"), node.inputs[1:5], strict=True))
    # ONNX's is the weight of the old statistics, in 32 bits.
    momentum = round(1 - node.real("momentum", 1.0), 6)
    return arithmetic.batch_norm(walk, node, node.source, tensors, node.real("epsilon", 1e-5), momentum)


def read_layer_norm(walk: Walk, node: OnnxNode) -> View | list[View]:
    """LayerNormalization and RMSNormalization from an axis on: x, scale, offset. Further outputs are the mean
    and one over the deviation.
    """
    axis = node.integer("axis", -1)
    places = range(axis, 0) if axis < 0 else range(axis, len(walk.sizes(node.source) or ()))
    tensors, epsilon = _affine(node), node.real("epsilon", 1e-5)
    op = (
        RmsNorm(epsilon)
        if node.op == "RMSNormalization"
        else LayerNorm(epsilon, "gamma" in tensors, "beta" in tensors)
    )
    found = arithmetic.norm_of_cells(walk, node, node.source, op, tensors, places)
    if node.outputs == 1:
        return found
    mean = reduce(walk, replace(node, name=f"{node.name}:mean"), node.source, "mean", places, True)
    spread = variance(walk, replace(node, name=f"{node.name}:variance"), node.source, places, True, 0)
    links = Affine((1.0,), (epsilon,)), Sqrt(), Reciprocal()
    return [found, mean, apply(walk, node, spread, *links)]


def read_group_norm(walk: Walk, node: OnnxNode) -> Read:
    """GroupNormalization: x, scale, offset; before opset 21 these have a number for each group."""
    groups = node.integer("num_groups")
    if node.opset < 21 and groups != walk.view(node.source).value.channels:
        raise Unsupported("with numbers for each group")
    return arithmetic.group_norm(walk, node, node.source, groups, _affine(node), node.real("epsilon", 1e-5))


def read_instance_norm(walk: Walk, node: OnnxNode) -> Read:
    """InstanceNormalization: x, scale, offset."""
    return arithmetic.instance_norm(walk, node, node.source, _affine(node), node.real("epsilon", 1e-5))


def _affine(node: OnnxNode) -> dict[str, Reference]:
    """A norm's scale and offset."""
    return {
        role: source
        for role, place in (("gamma", 1), ("beta", 2))
        if (source := node.input(place)) is not None
    }


def read_gemm(walk: Walk, node: OnnxNode) -> Read:
    """Gemm: alpha * x @ kernel + beta * bias."""
    axes, factors = (
        "OI" if node.integer("transB") else "IO",
        (node.real("alpha", 1.0), node.real("beta", 1.0)),
    )
    product = Product(node.inputs[1], axes, node.input(2), factors, 0 if node.integer("transA") else -1)
    return dense(walk, node, node.source, product)


def read_matrix(walk: Walk, node: OnnxNode) -> Read:
    if all(map(walk.is_value, node.inputs)):
        return matmul(walk, node, node.inputs)
    if not walk.is_value(node.source):
        return by_matrix(walk, node, *node.inputs)
    held = walk.flow.weights(node.inputs[1])
    if held is not None and len(held.shape) > 2:
        return with_matrices(walk, node, node.source, held)
    if held is not None and len(held.shape) == 1:
        numbers = np.asarray(walk.numbers(node.inputs[1]), np.float64)[:, None]
        kernel = walk.flow.hold(f"{node.name}:kernel", numbers)
        return dense(walk, node, node.source, Product((kernel.name, 0), "IO")).without([-1])
    return dense(walk, node, node.source, Product(node.inputs[1], "IO"))


def selu(node: OnnxNode) -> Sequence[Op]:
    return arithmetic.scaled_elu(
        *_selu_numbers(node.real("alpha", arithmetic.SELU_ALPHA), node.real("gamma", arithmetic.SELU_GAMMA))
    )


def _selu_numbers(alpha: float, gamma: float) -> tuple[float, float]:
    """A SELU's numbers: those of its paper, which float32 rounds."""
    papers = np.allclose((alpha, gamma), (arithmetic.SELU_ALPHA, arithmetic.SELU_GAMMA), rtol=1e-6)
    return (arithmetic.SELU_ALPHA, arithmetic.SELU_GAMMA) if papers else (alpha, gamma)


def gelu(node: OnnxNode) -> Op:
    return Gelu(node.text("approximate", "none") == "tanh")


def _hard_slope(stated: float) -> float:
    """A hard sigmoid's slope: torch's is a sixth, which float32 rounds."""
    return 1 / 6 if np.float32(stated) == np.float32(1 / 6) else stated


def hard_sigmoid(node: OnnxNode) -> Op:
    return HardSigmoid(_hard_slope(node.real("alpha", 0.2)), node.real("beta", 0.5))


def read_swish(walk: Walk, node: OnnxNode) -> Read:
    """x * Sigmoid(alpha * x)."""
    alpha = node.real("alpha", 1.0)
    if alpha == 1:
        return apply(walk, node, node.source, Swish())
    return arithmetic.gated(walk, node, node.source, Affine((alpha,), (0.0,)), Sigmoid())
