"""What the layers of flax.nnx can express, and their variables' names and axis order. Imports no JAX.

Values have the channels last. Kernels are (rows, columns, channels / groups, filters), those of transposed
convolutions (rows, columns, filters / groups, channels), and dense kernels (features, units).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from porter.frameworks.flax.spellings import PLAIN
from porter.frameworks.port_tensors import is_array_of_map
from porter.graph import Graph, Node, Op, ops
from porter.graph.ops import row_of
from porter.padding import Capabilities

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.base.dtypes import Array

CAPABILITIES = Capabilities(
    symmetric=True,
    explicit=True,
    same=("same", "same_lower"),
    same_of_any=True,
    pool_pads="any",
    roundings=("floor",),
    averages=("real_cells", "full_window"),
    dynamic=("same", "same_lower"),
    dilated_pools=("max_pool",),
    dilated_strides=True,
    lacks=lambda op: row_of(PLAIN, type(op)) is None,
)

_LAYER = {"kernel": "kernel", "bias": "bias"}
_TRAINED = {"gamma": "scale", "beta": "bias"}
_ARRAY = {"value": "weight"}
_NAMES: Mapping[type[Op], Mapping[str, str]] = {
    ops.Conv: _LAYER,
    ops.ConvTranspose: _LAYER,
    ops.Dense: _LAYER,
    ops.BatchNorm: {**_TRAINED, "mean": "mean", "variance": "var"},
    ops.LayerNorm: _TRAINED,
    ops.RmsNorm: _TRAINED,
    ops.GroupNorm: _TRAINED,
    ops.ChannelScale: _TRAINED,
    ops.PRelu: {"alpha": "alpha"},
    ops.AddArray: _ARRAY,
    ops.MultiplyArray: _ARRAY,
    ops.Tokens: _ARRAY,
}


def variables(op: Op) -> Mapping[str, str]:
    """Return the names of the variables of an op's layer, by the role of its tensors."""
    return {role: _NAMES[type(op)][role] for role in op.tensors(1)}


def stored(graph: Graph, node: Node, role: str, array: Array) -> Array:
    """Return a canonical tensor in the axis order of its layer's variable, a view where possible. A kernel
    (filters, channels, rows, columns) becomes (rows, columns, channels, filters).
    """
    if array.ndim == 4 and role == "kernel":
        return array.transpose(2, 3, 1, 0)
    if role == "kernel":
        return array.T
    return array.transpose(1, 2, 0) if is_array_of_map(graph, node, role) else array


def canonical(graph: Graph, node: Node, role: str, array: Array) -> Array:
    """Return a variable's array in the canonical axis order, a view where possible: the inverse of `stored`.
    An array of a map that lacks an axis comes back as it is, and whoever reads it refuses its shape.
    """
    if array.ndim == 4 and role == "kernel":
        return array.transpose(3, 2, 0, 1)
    if role == "kernel":
        return array.T
    return array.transpose(2, 0, 1) if is_array_of_map(graph, node, role) and array.ndim == 3 else array
