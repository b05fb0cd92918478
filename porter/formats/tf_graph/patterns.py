"""Finds a batch normalisation that a TensorFlow graph writes as sums and products."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from porter.formats.tf_graph.constants import Constants
from porter.formats.tf_graph.nodes import GraphNode, Reference

_SUMS = ("Add", "AddV2")


@dataclass(frozen=True)
class Norm:
    """A batch normalisation's input and its tensors, by the names of their nodes."""

    input: Reference
    tensors: dict[str, str]
    epsilon: float


def match_batch_norm(node: GraphNode, live: set[str], constants: Constants) -> Norm | None:
    """The normalisation whose last op is the sum `node`, or None.

    tf.nn.batch_normalization (tensorflow/python/ops/nn_impl.py) computes x * inv + (offset - mean * inv), where inv is
    rsqrt(variance + epsilon) * scale; without an offset the sum ends with -mean * inv, without a scale inv is only the root.
    """
    if node.op not in _SUMS or len(node.inputs) != 2:
        return None
    for product, shift in (node.inputs, node.inputs[::-1]):
        if product[0] not in live or shift[0] in live:
            continue
        scaled = constants.nodes[product[0]]
        if scaled.op != "Mul" or len(scaled.inputs) != 2:
            continue
        for x, factor in (scaled.inputs, scaled.inputs[::-1]):
            if x[0] in live and factor[0] not in live:
                return _norm(x, factor, shift, constants)
    return None


def _norm(x: Reference, factor: Reference, shift: Reference, constants: Constants) -> Norm | None:
    root = _root(factor, constants)
    offset = _shift(shift, factor, constants)
    if root is None or offset is None:
        return None
    variance, epsilon, gamma = root
    mean, beta = offset
    tensors: dict[str, str] = {}
    for role, source in (("gamma", gamma), ("beta", beta), ("mean", mean), ("variance", variance)):
        tensor = None if source is None else constants.tensor(source)
        if source is not None and (tensor is None or len(tensor.shape) != 1):
            return None
        if tensor is not None:
            tensors[role] = tensor.name
    return Norm(x, tensors, epsilon)


def _root(factor: Reference, constants: Constants) -> tuple[Reference, float, Reference | None] | None:
    """Variance, epsilon and scale of rsqrt(variance + epsilon) * scale."""
    node = constants.node(factor)
    if node.op == "Mul" and len(node.inputs) == 2:
        for root, gamma in (node.inputs, node.inputs[::-1]):
            found = _root_of(constants.node(root), constants)
            if found:
                return (*found, gamma)
        return None
    found = _root_of(node, constants)
    return (*found, None) if found else None


def _root_of(node: GraphNode, constants: Constants) -> tuple[Reference, float] | None:
    inner = constants.node(node.inputs[0]) if node.op == "Rsqrt" and node.inputs else None
    if inner is None or inner.op not in _SUMS or len(inner.inputs) != 2:
        return None
    for variance, epsilon in (inner.inputs, inner.inputs[::-1]):
        tensor, small = constants.tensor(variance), constants.tensor(epsilon)
        if tensor and small and len(tensor.shape) == 1 and small.shape == ():
            return variance, float(np.float64(constants.array(small.name)))
    return None


def _shift(shift: Reference, factor: Reference, constants: Constants) -> tuple[Reference, Reference | None] | None:
    """Mean and offset of offset - mean * factor, or of -mean * factor."""
    node = constants.node(shift)
    if node.op == "Sub" and len(node.inputs) == 2:
        mean = _product_with(node.inputs[1], factor, constants)
        return (mean, node.inputs[0]) if mean else None
    if node.op == "Neg" and node.inputs:
        mean = _product_with(node.inputs[0], factor, constants)
        return (mean, None) if mean else None
    negative = _product_with(shift, factor, constants)
    inner = constants.node(negative) if negative else None
    return (inner.inputs[0], None) if inner and inner.op == "Neg" and inner.inputs else None


def _product_with(product: Reference, factor: Reference, constants: Constants) -> Reference | None:
    """The other factor of `product`, if `factor` is one."""
    node = constants.node(product)
    if node.op == "Mul" and len(node.inputs) == 2:
        for one, other in (node.inputs, node.inputs[::-1]):
            if constants.same(other, factor):
                return one
    return None
