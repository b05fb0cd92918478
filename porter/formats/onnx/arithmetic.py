"""ONNX's norms, products and activations with attributes, decoded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from porter.base.name_tables import by_name
from porter.filegraph.dataflow import SourceOrNumber
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layer_values import Value
from porter.filegraph.matching.norms import match_response_norm
from porter.filegraph.readers import Functions
from porter.filegraph.tensors import functions
from porter.filegraph.tensors.functions import SELU_ALPHA, SELU_GAMMA
from porter.filegraph.tensors.products import Product
from porter.filegraph.tensors.several import matmul, matmul_stored, merge_all
from porter.filegraph.tensors.tensor import Tensor
from porter.formats.onnx.nodes import OnnxNode, Walk
from porter.graph import Gelu, HardSigmoid, Swish

_MEANS = "Squeeze", ("AveragePool", ("Pad", ("Reshape", ("Mul", "x", "x"))))
"""The pattern of what a LocalResponseNorm of torch.onnx divides by: each op, and behind it what it reads."""
_VARIADIC = frozenset({"Max", "Mean", "Min", "Sum"})
"""Operators of any number of values, one or more."""


def kind_of(node: OnnxNode) -> str:
    """Return a node's op under the name that porter's patterns use, which is TensorFlow's where the two
    differ: a mean that keeps its axes is a `Mean`, a Mod of whole numbers a `FloorMod`, and a Sum of two
    values an `Add`. Every other op keeps its name.
    """
    if node.op == "ReduceMean":
        return "Mean" if node.integer("keepdims", 1) else node.op
    if node.op == "Mod" and not node.integer("fmod"):
        return "FloorMod"
    return "Add" if node.op == "Sum" and len(node.inputs) == 2 else node.op


def operands(node: OnnxNode) -> Sequence[SourceOrNumber]:
    """Return a node's inputs, and behind them the numbers that it has as attributes where newer operators
    have inputs, so that porter's patterns match both.
    """
    numbers: Sequence[float] = ()
    if node.op == "ReduceMean" and len(axes := node.integers("axes")) == 1:
        numbers = axes
    elif node.op == "Clip" and {"min", "max"} <= node.attributes.keys():
        numbers = node.real("min", 0.0), node.real("max", 0.0)
    elif node.op == "HardSigmoid":
        numbers = node.real("alpha", 0.2), node.real("beta", 0.5)
    return (*node.inputs, *map(float, numbers))


def _read_binary(node: OnnxNode, *tensors: Tensor) -> Tensor:
    """Read an operator of two values, or of any number of them if it is one of _VARIADIC; others are
    Unsupported.
    """
    if len(tensors) != 2 and node.op not in _VARIADIC:
        raise Unsupported(f"of {len(tensors)} values")
    return merge_all("Add" if node.op == "Sum" else node.op, tensors)


def _read_div(node: OnnxNode, x: Tensor, other: Tensor) -> Tensor:
    """Read a quotient, or the response norm whose last step it is."""
    count_channels = partial(_channels_of_pool, x.walk)
    # The means may be reshaped before they divide.
    for means in (_MEANS, ("Reshape", _MEANS)):
        norm = match_response_norm(x.scope, means, "AveragePool", count_channels)
        if norm is not None:
            return norm
    return x / other


def _channels_of_pool(walk: Walk, pool: OnnxNode, value: Value) -> int | None:
    """Return over how many channels a pool of five axes takes an average, as torch.onnx writes a
    LocalResponseNorm; None if it is another pool.
    """
    # The exporter pads the squares before the pool, and adds an axis of one cell before the channels.
    padded = walk.flow.nodes[pool.source[0]]
    squares = walk.view(padded.source)
    kernel = pool.integers("kernel_shape")
    pads = _stated_pads(walk, padded)
    fill = padded.input(2)
    size = kernel[0] if kernel else 0
    channels_are_first = (  # of the three axes that the pool is over
        squares.sizes is not None
        and squares.sizes[1:3] == (1, value.channels)
        and len(squares.sizes) == 5 == len(kernel) + 2
    )
    pools_channels_only = (
        kernel[1:] == (1, 1)
        and {*pool.integers("strides")} <= {1}
        and not any(pool.integers("pads"))
        and pool.text("auto_pad", "NOTSET") == "NOTSET"
    )
    pads_zeros = (
        padded.text("mode", "constant") == "constant"
        and padded.input(3) is None
        and (fill is None or walk.flow.number(fill) == 0)
    )
    # All first pads, then all last pads: the odd channel of an even size comes before.
    pads_of_norm = [0, 0, size // 2, 0, 0, 0, 0, (size - 1) // 2, 0, 0]
    is_norm = channels_are_first and pools_channels_only and pads_zeros and pads == pads_of_norm
    return size if is_norm else None


def _stated_pads(walk: Walk, node: OnnxNode) -> Sequence[int] | None:
    """Return the pads that a Pad states, as an attribute or as an input; None if the model computes them."""
    if "pads" in node.attributes or len(node.inputs) < 2:
        return [*node.integers("pads")]
    return walk.flow.integers(node.inputs[1])


def _read_batch_norm(
    node: OnnxNode, x: Tensor, scale: Tensor, offset: Tensor, mean: Tensor, variance: Tensor
) -> Tensor:
    """Read a BatchNormalization with stored statistics; one in training mode, or of each cell, is
    Unsupported.
    """
    if node.integer("training_mode") or not node.integer("spatial", 1):
        raise Unsupported("in training mode" if node.integer("training_mode") else "of each cell")
    # ONNX's is the weight of the old statistics, in 32 bits.
    momentum = round(1 - node.real("momentum", 1.0), 6)
    epsilon = node.real("epsilon", 1e-5)
    return x.batch_norm(epsilon, momentum, gamma=scale, beta=offset, mean=mean, variance=variance)


def _read_layer_norm(
    node: OnnxNode, x: Tensor, scale: Tensor | None = None, offset: Tensor | None = None
) -> Tensor | list[Tensor]:
    """Read LayerNormalization and RMSNormalization over all axes from one on. A LayerNormalization that has
    further outputs gives the mean and one over the deviation too.
    """
    axis = node.integer("axis", -1)
    epsilon = node.real("epsilon", 1e-5)
    axes = range(axis, 0) if axis < 0 else range(axis, len(x.sizes))
    if node.op == "RMSNormalization":
        return x.rms_norm(axes, epsilon, scale)
    normed = x.layer_norm(axes, epsilon, gamma=scale, beta=offset)
    if node.outputs == 1:
        return normed
    one_over_deviation = functions.rsqrt(functions.variance(x, axes, True) + epsilon)
    return [normed, x.mean(axes, True), one_over_deviation]


def _read_group_norm(node: OnnxNode, x: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """Read GroupNormalization. Before opset 21 scale and offset have a number for each group."""
    groups = node.integer("num_groups")
    if node.opset < 21 and groups != x.view.value.channels:
        raise Unsupported("with numbers for each group")
    return x.group_norm(groups, node.real("epsilon", 1e-5), gamma=scale, beta=offset)


def _read_gemm(node: OnnxNode, x: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    """Read Gemm: alpha * x @ kernel + beta * bias."""
    kernel_axes = "OI" if node.integer("transB") else "IO"
    factors = (node.real("alpha", 1.0), node.real("beta", 1.0))
    bias_reference = None if bias is None else bias.reference
    # The axis of x that is summed over.
    axis = 0 if node.integer("transA") else -1
    return x.dense(Product(kernel.reference, kernel_axes, bias_reference, factors, axis))


def _read_matmul(node: OnnxNode, x: Tensor, other: Tensor) -> Tensor:
    """Read a matrix product of two values, or of a value and stored numbers on either side; a stored vector
    leaves no axis.
    """
    if x.is_value == other.is_value:
        return matmul(x, other)
    if not x.is_value:
        return matmul_stored(x, other)
    stored = x.walk.weights(other.source)
    # A matrix for each index of the other axes.
    if stored is not None and len(stored.shape) > 2:
        return x.with_matrices(stored)
    # A vector: a kernel of one column, whose axis is dropped again.
    if stored is not None and len(stored.shape) == 1:
        numbers = np.asarray(other.numbers(), np.float64)[:, None]
        kernel = x.walk.flow.store_computed(f"{node.name}:kernel", numbers)
        return x.dense(Product((kernel.name, 0), "IO")).without_axes([-1])
    return x.dense(Product(other.reference, "IO"))


def _read_selu(node: OnnxNode, x: Tensor) -> Tensor:
    """Read a SELU with its paper's numbers, which float32 rounds, or with others."""
    exact = SELU_ALPHA, SELU_GAMMA
    stated = node.real("alpha", SELU_ALPHA), node.real("gamma", SELU_GAMMA)
    alpha, gamma = exact if np.allclose(stated, exact, rtol=1e-6) else stated
    return functions.scaled_elu(x, alpha, gamma)


def _read_hard_sigmoid(node: OnnxNode, x: Tensor) -> Tensor:
    """Read HardSigmoid. torch's slope is a sixth, which the file rounds to float32 and porter takes
    exactly.
    """
    slope_in_file = node.real("alpha", 0.2)
    slope = 1 / 6 if np.float32(slope_in_file) == np.float32(1 / 6) else slope_in_file
    return x.apply_elementwise(HardSigmoid(slope, node.real("beta", 0.5)))


def _read_swish(node: OnnxNode, x: Tensor) -> Tensor:
    """Read Swish: x * Sigmoid(alpha * x)."""
    alpha = node.real("alpha", 1.0)
    return x.apply_elementwise(Swish()) if alpha == 1 else x * functions.sigmoid(alpha * x)


FUNCTIONS: Functions = by_name(
    {
        "Add Max Mean Min Mul Pow Sub Sum": _read_binary,
        "LayerNormalization RMSNormalization": _read_layer_norm,
        "BatchNormalization": _read_batch_norm,
        "Clip": lambda node, x, low=None, high=None: x.clip(
            node.number("min", low, -math.inf), node.number("max", high, math.inf)
        ),
        "Div": _read_div,
        "Gelu": lambda node, x: x.apply_elementwise(Gelu(node.text("approximate", "none") == "tanh")),
        "Gemm": _read_gemm,
        "GroupNormalization": _read_group_norm,
        "HardSigmoid": _read_hard_sigmoid,
        "InstanceNormalization": lambda node, x, scale, offset: x.instance_norm(
            node.real("epsilon", 1e-5), gamma=scale, beta=offset
        ),
        "MatMul": _read_matmul,
        "Selu": _read_selu,
        "Swish": _read_swish,
    }
)
