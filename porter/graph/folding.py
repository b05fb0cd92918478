"""Batch norms folded into the convolutions and dense layers that they follow, and biases absorbed into norms.

At inference a norm is y = s x + t for each channel, with s = gamma / sqrt(variance + epsilon) and t = beta -
s mean. If the norm is a layer's only reader, both together are that layer with its kernel times s and its
bias b as s b + t. On paper nothing changes; in numbers the new kernel and bias are rounded once, when they
are stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array, NamedArrays
from porter.base.errors import MappingError
from porter.graph import BatchNorm, Conv, ConvTranspose, Dense, Graph, Node, with_own_tensors

_Linear = Conv | ConvTranspose | Dense


@dataclass(frozen=True)
class Folding:
    """A graph and its canonical tensors, path to role to array, with norms folded.

    Attributes:
        folded: path of each layer that took a norm in, to the path of that norm.
    """

    graph: Graph
    tensors: Mapping[str, NamedArrays]
    folded: Mapping[str, str] = field(default_factory=dict)


def fold_norms(graph: Graph, tensors: Mapping[str, NamedArrays]) -> Folding:
    """Fold every batch norm that is the only reader of a convolution or a dense layer. A layer that is called
    several times takes a norm in only if one norm follows all of its calls.

    Kernels and biases that change are computed and returned in float64; the caller rounds them once. The
    readers of a folded norm then read the layer; everything else stays as it is.

    Raises:
        MappingError: a norm's variance plus epsilon is not above 0 in some channel, so it has no scale.
    """
    norm_of_layer = _same_for_all_calls(graph, only_readers(graph))
    layer_of_norm = {norm: layer for layer, norm in norm_of_layer.items()}
    nodes: list[Node] = []
    changed: dict[str, NamedArrays] = {
        path: roles for path, roles in tensors.items() if path not in layer_of_norm
    }
    for node in graph.nodes:
        if node.path in layer_of_norm:
            continue
        op = node.op
        if node.path in norm_of_layer and isinstance(op, _Linear):
            norm = graph.by_path[norm_of_layer[node.path]]
            changed[node.path] = _fold_norm(op, tensors[node.path], norm, tensors[norm.path])
            op = replace(op, bias=True)
        inputs = tuple(layer_of_norm.get(path, path) for path in node.inputs)
        nodes.append(replace(node, op=op, inputs=inputs))
    output, *further = (layer_of_norm.get(path, path) for path in graph.outputs)
    folded_graph = replace(graph, nodes=tuple(nodes), output=output, further=tuple(further))
    return Folding(with_own_tensors(folded_graph), changed, norm_of_layer)


def _same_for_all_calls(graph: Graph, norm_of_layer: Mapping[str, str]) -> dict[str, str]:
    """Return the layers whose norms can be folded, with the path of the norm, as `norm_of_layer` has them: of
    a layer that is called several times, every call has to be followed by a call of the same norm, because
    its calls have the same tensors, which can take in one norm only.
    """
    # by the path that has a layer's tensors, the norms behind its calls; None where a call has none
    norms_of_calls: dict[str, set[str | None]] = {}
    for holder, calls in graph.calls.items():
        norms = [norm_of_layer.get(call.path) for call in calls]
        norms_of_calls[holder] = {None if norm is None else graph.by_path[norm].holder for norm in norms}
    return {
        layer: norm
        for layer, norm in norm_of_layer.items()
        if len(norms_of_calls[graph.by_path[layer].holder]) == 1
    }


def only_readers(graph: Graph) -> dict[str, str]:
    """Return the convolutions and dense layers whose only reader is a batch norm, by path, to the path of
    that norm.
    """
    reader_counts = Counter(path for node in graph.nodes for path in node.inputs)
    reader_counts.update(graph.outputs)
    norm_of_layer: dict[str, str] = {}
    for node in graph.nodes:
        layer = graph.by_path.get(node.source) if isinstance(node.op, BatchNorm) else None
        if layer is not None and isinstance(layer.op, _Linear) and reader_counts[layer.path] == 1:
            norm_of_layer[layer.path] = node.path
    return norm_of_layer


def absorb_biases(
    tensors: Mapping[str, NamedArrays], absorbed: Mapping[str, str]
) -> dict[str, dict[str, Array]]:
    """Return canonical tensors without the biases of some layers; the norm after each has the mean `mean -
    bias` instead, in float64.

    Args:
        absorbed: path of each norm to that of the layer before it.
    """
    changed = {path: dict(roles) for path, roles in tensors.items()}
    for norm, layer in absorbed.items():
        changed[norm]["mean"] = _float64(changed[norm]["mean"]) - _float64(changed[layer].pop("bias"))
    return changed


def _fold_norm(op: _Linear, layer: NamedArrays, norm: Node, statistics: NamedArrays) -> NamedArrays:
    """Return a layer's kernel and bias with the scale and the shift of its norm in them, in float64.

    Args:
        op, layer: of the layer, and its tensors.
        norm, statistics: the node of the norm, and its tensors.

    Raises:
        MappingError: the norm's variance plus epsilon is not above 0.
    """
    assert isinstance(norm.op, BatchNorm)
    kernel = _float64(layer["kernel"])
    mean = _float64(statistics["mean"])
    variance = _float64(statistics["variance"])
    gamma = _float64(statistics["gamma"]) if norm.op.scale else 1.0
    beta = _float64(statistics["beta"]) if norm.op.center else 0.0
    scale = gamma / norm_deviation(norm.op, variance, norm.path)
    bias = (_float64(layer["bias"]) if "bias" in layer else 0.0) - mean
    new_bias = bias * scale + beta
    if isinstance(op, ConvTranspose):
        # its kernel is (channels, filters / groups, rows, columns), and the channels lie in groups
        kernel_of_groups = kernel.reshape(op.groups, -1, *kernel.shape[1:])
        scale_of_groups = np.reshape(scale, (op.groups, 1, -1, 1, 1))
        return {"kernel": (kernel_of_groups * scale_of_groups).reshape(kernel.shape), "bias": new_bias}
    scale_of_filters = scale.reshape(-1, *[1] * (kernel.ndim - 1))
    return {"kernel": kernel * scale_of_filters, "bias": new_bias}


def norm_deviation(op: BatchNorm, variance: NDArray[np.float64], path: str) -> NDArray[np.float64]:
    """Return what the norm `path` divides each channel by, the root of the variance plus epsilon.

    Raises:
        MappingError: that sum is not above 0.
    """
    if not np.all(variance + op.epsilon > 0):
        raise MappingError(
            f"expected a variance above -{op.epsilon:g}, got {np.min(variance):g}", where=f"{path}:variance"
        )
    return np.sqrt(variance + op.epsilon)


def _float64(array: Array) -> NDArray[np.float64]:
    return array.astype(np.float64)
