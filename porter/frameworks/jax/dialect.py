"""The names and the axis order of Flax. See porter.frameworks.dialects.Dialect.

Kernels have Keras's axes, but for those of the heads of an attention: (features, heads, channels) before it,
(heads, channels, units) after it.
"""

from __future__ import annotations

from collections.abc import Mapping

from porter.base.dtypes import Array
from porter.base.errors import MappingError
from porter.frameworks.defaults import counted_layers as counted_layers, numbered_layers as numbered_layers
from porter.frameworks.dialects import without_batch
from porter.frameworks.tf import layout as keras
from porter.graph import Attention, BatchNorm, Conv, Dense, Graph, GroupNorm, LayerNorm, Node, Op

SEPARATOR = "/"
AVERAGE_SUFFIX = None

_LAYER_NAMES = {"kernel": "kernel", "bias": "bias"}
_NORM_NAMES = {"gamma": "scale", "beta": "bias"}
_NAMES: Mapping[type[Op], Mapping[str, str]] = {
    Conv: _LAYER_NAMES,
    Dense: _LAYER_NAMES,
    LayerNorm: _NORM_NAMES,
    GroupNorm: _NORM_NAMES,
    BatchNorm: {**_NORM_NAMES, "mean": "mean", "variance": "var"},
}
_PARAMS, _BATCH_STATS = "params/", "batch_stats/"
"""The collections of linen."""


def tensor_names(graph: Graph, node: Node, layer: str) -> Mapping[str, tuple[str, ...]]:
    """Return the names of a layer's tensors by role; the statistics of norms are in a collection of their
    own: `params/bn1/scale` and `batch_stats/bn1/mean`.
    """
    roles = node.op.tensors(graph.channels_by_path[node.source])
    statistics_layer = layer.replace(_PARAMS, _BATCH_STATS, 1) if layer.startswith(_PARAMS) else layer
    return {
        role: (f"{statistics_layer if role in ('mean', 'variance') else layer}/{name}",)
        for role, name in _NAMES.get(type(node.op), {}).items()
        if role in roles
    }


def to_canonical(graph: Graph, node: Node, role: str, array: Array) -> Array:
    """Return a tensor in porter's axis order; a layer before or after an attention has the heads as an
    axis.
    """
    if role == "value":
        return without_batch(graph, node, array)
    stored = _shape_with_heads(graph, node, role)
    if stored is not None:
        if array.shape != stored:
            raise MappingError(
                f"expected a {role} of heads of shape {stored}, got {array.shape}", where=node.path
            )
        units = node.op.tensors(graph.channels_by_path[node.source])["kernel"][0]
        # Heads and channels are one axis, of the units before an attention, of the features after it.
        return array.reshape(-1) if role == "bias" else array.reshape(-1, units).T
    return keras.to_canonical(graph, node, role, array)


def from_canonical(graph: Graph, node: Node, role: str, array: Array) -> Array:
    """Undo `to_canonical`: return a tensor in the file's axis order, that of a layer before or after an
    attention with an axis of heads.
    """
    stored = _shape_with_heads(graph, node, role)
    if stored is not None:
        return array.T.reshape(stored)
    return array if role == "value" else keras.from_canonical(graph, node, role, array)


def _shape_with_heads(graph: Graph, node: Node, role: str) -> tuple[int, ...] | None:
    """Return the shape, with an axis for the heads, of a tensor of the layer before or after an attention;
    None for other tensors.
    """
    if not isinstance(node.op, Dense):
        return None
    units, features = node.op.units, graph.channels_by_path[node.source]
    source = graph.by_path.get(node.source)
    # The layer behind an attention, whose bias has no heads.
    if source is not None and isinstance(source.op, Attention):
        return (source.op.heads, features // source.op.heads, units) if role == "kernel" else None
    # The layer before an attention.
    attentions = (other.op for other in graph.nodes if node.path in other.inputs)
    heads = next((op.heads for op in attentions if isinstance(op, Attention)), None)
    if heads is None:
        return None
    return (features, heads, units // heads) if role == "kernel" else (heads, units // heads)
