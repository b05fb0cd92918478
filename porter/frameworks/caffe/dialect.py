"""The names and the axis order of a .caffemodel. See porter.frameworks.dialects.Dialect.

Blobs are called as porter's reader calls them: `conv1/0`. A batch norm is two layers: the one that a recipe
names, which holds the statistics, and its Scale, whose name has `scale` in place of `bn`.
"""

from __future__ import annotations

from collections.abc import Mapping

from porter.base.dtypes import Array
from porter.frameworks.defaults import counted_layers as counted_layers, numbered_layers as numbered_layers
from porter.graph import BatchNorm, Graph, Node

SEPARATOR = "/"
AVERAGE_SUFFIX = None


def tensor_names(graph: Graph, node: Node, layer: str) -> Mapping[str, tuple[str, ...]]:
    """Return the names of a layer's blobs by role; a batch norm's scale and shift are blobs of a Scale
    layer.
    """
    roles = node.op.tensors(graph.channels_by_path[node.source])
    if isinstance(node.op, BatchNorm):
        scale = layer.replace("bn", "scale", 1)
        trained = [role for role in roles if role in ("gamma", "beta")]
        statistics = {"mean": (f"{layer}/0",), "variance": (f"{layer}/1",)}
        return statistics | {role: (f"{scale}/{index}",) for index, role in enumerate(trained)}
    return {role: (f"{layer}/{index}",) for index, role in enumerate(roles)}


def to_canonical(graph: Graph, node: Node, role: str, array: Array) -> Array:
    """Return the array in porter's shape; its axes have porter's order. Blobs of older files have four axes,
    of which the first are 1.
    """
    shape = tuple(node.op.tensors(graph.channels_by_path[node.source])[role])
    shape_in_older_file = (*[1] * (4 - len(shape)), *shape)
    return array.reshape(shape) if array.shape == shape_in_older_file else array


def from_canonical(graph: Graph, node: Node, role: str, array: Array) -> Array:
    return array
