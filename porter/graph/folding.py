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
    folded = _same_for_all_calls(graph, only_readers(graph))
    norms = {norm: layer for layer, norm in folded.items()}
    nodes: list[Node] = []
    changed: dict[str, NamedArrays] = {path: roles for path, roles in tensors.items() if path not in norms}
    for node in graph.nodes:
        if node.path in norms:
            continue
        op = node.op
        if node.path in folded and isinstance(op, _Linear):
            norm = graph.by_path[folded[node.path]]
            changed[node.path] = _fold_norm(op, tensors[node.path], norm, tensors[norm.path])
            op = replace(op, bias=True)
        nodes.append(replace(node, op=op, inputs=tuple(norms.get(path, path) for path in node.inputs)))
    output, *further = (norms.get(path, path) for path in graph.outputs)
    folded_graph = replace(graph, nodes=tuple(nodes), output=output, further=tuple(further))
    return Folding(with_own_tensors(folded_graph), changed, folded)


def _same_for_all_calls(graph: Graph, folded: Mapping[str, str]) -> dict[str, str]:
    """Return the part of `folded`, layers' paths to those of their norms, in which every call of a layer is
    followed by a call of the same norm: tensors that calls share can take in one norm only.
    """
    norms = {
        holder: {graph.by_path[folded[call.path]].holder if call.path in folded else None for call in calls}
        for holder, calls in graph.calls.items()
    }
    return {layer: norm for layer, norm in folded.items() if len(norms[graph.by_path[layer].holder]) == 1}


def only_readers(graph: Graph) -> dict[str, str]:
    """Return the convolutions and dense layers whose only reader is a batch norm, by path, to the path of
    that norm.
    """
    readers = Counter(path for node in graph.nodes for path in node.inputs)
    readers.update(graph.outputs)
    return {
        node.source: node.path
        for node in graph.nodes
        if isinstance(node.op, BatchNorm)
        and node.source in graph.by_path
        and isinstance(graph.by_path[node.source].op, _Linear)
        and readers[node.source] == 1
    }


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
    """Return the layer's tensors with the norm's scale and shift in them, computed in float64."""
    assert isinstance(norm.op, BatchNorm)
    kernel, mean, variance = (
        _float64(layer["kernel"]),
        _float64(statistics["mean"]),
        _float64(statistics["variance"]),
    )
    spread = variance + norm.op.epsilon
    if not np.all(spread > 0):
        raise MappingError(
            f"expected a variance above -{norm.op.epsilon:g}, got {np.min(variance):g}",
            where=f"{norm.path}:variance",
        )
    scale = (_float64(statistics["gamma"]) if norm.op.scale else 1.0) / np.sqrt(spread)
    bias = (_float64(layer["bias"]) if "bias" in layer else 0.0) - mean
    shift = _float64(statistics["beta"]) if norm.op.center else 0.0
    # Its kernel is (channels, filters / groups, rows, columns), and the channels lie in groups.
    if isinstance(op, ConvTranspose):
        grouped = kernel.reshape(op.groups, -1, *kernel.shape[1:]) * np.reshape(
            scale, (op.groups, 1, -1, 1, 1)
        )
        return {"kernel": grouped.reshape(kernel.shape), "bias": bias * scale + shift}
    return {"kernel": kernel * scale.reshape(-1, *[1] * (kernel.ndim - 1)), "bias": bias * scale + shift}


def _float64(array: Array) -> NDArray[np.float64]:
    return array.astype(np.float64)
