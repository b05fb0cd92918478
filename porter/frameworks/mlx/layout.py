"""What the layers of mlx.nn can express, and their variables' names and axis order. Imports no MLX.

Values have the channels last. Kernels are (filters, rows, columns, channels / groups), of transposed
convolutions too, and dense kernels (units, features).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from porter.frameworks.mlx.spellings import PLAIN
from porter.frameworks.port_tensors import is_array_of_map
from porter.graph import Graph, Node, Op, ops
from porter.graph.ops import row_of
from porter.padding import Capabilities

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.base.dtypes import Array

CAPABILITIES = Capabilities(
    symmetric=True,
    explicit=False,
    same=(),
    same_of_any=True,
    pool_pads="any",
    roundings=("floor",),
    averages=("full_window",),
    dynamic=("same", "same_lower"),
    dilated_pools=("max_pool",),
    dilated_strides=True,
    lacks=lambda op: row_of(PLAIN, type(op)) is None,
)

_LAYER = {"kernel": "weight", "bias": "bias"}
_TRAINED = {"gamma": "weight", "beta": "bias"}
_ARRAY = {"value": "weight"}
_NAMES: Mapping[type[Op], Mapping[str, str]] = {
    ops.Conv: _LAYER,
    ops.ConvTranspose: _LAYER,
    ops.Dense: _LAYER,
    ops.BatchNorm: {**_TRAINED, "mean": "running_mean", "variance": "running_var"},
    ops.LayerNorm: _TRAINED,
    ops.RmsNorm: _TRAINED,
    ops.GroupNorm: _TRAINED,
    ops.ChannelScale: _TRAINED,
    ops.PRelu: {"alpha": "weight"},
    ops.AddArray: _ARRAY,
    ops.MultiplyArray: _ARRAY,
    ops.Tokens: _ARRAY,
}


def variables(op: Op) -> Mapping[str, str]:
    """Return the names of the variables of an op's layer, by the role of its tensors, with those that the
    layer has and the op lacks: a norm of MLX has a scale if it has anything, and an offset if it has a scale.
    """
    roles = {*op.tensors(1)}
    if isinstance(op, ops.RmsNorm) or (isinstance(op, ops.LayerNorm) and op.center):
        roles.add("gamma")
    elif isinstance(op, ops.BatchNorm | ops.GroupNorm) and (op.scale or op.center):
        roles |= {"gamma", "beta"}
    return {role: name for role, name in _NAMES.get(type(op), {}).items() if role in roles}


def stored(graph: Graph, node: Node, role: str, array: Array) -> Array:
    """Return a canonical tensor in the axis order of its layer's variable; a view where possible. A kernel
    (filters, channels, rows, columns) becomes (filters, rows, columns, channels).
    """
    if array.ndim == 4 and role == "kernel":
        if isinstance(node.op, ops.ConvTranspose):  # channels x filters of a group x rows x columns
            groups = node.op.groups
            parts = array.reshape(groups, array.shape[0] // groups, *array.shape[1:])
            return parts.transpose(0, 2, 3, 4, 1).reshape(-1, *array.shape[2:], parts.shape[1])
        return array.transpose(0, 2, 3, 1)
    return array.transpose(1, 2, 0) if is_array_of_map(graph, node, role) else array


def canonical(graph: Graph, node: Node, role: str, array: Array) -> Array:
    """Return a variable's array in the canonical axis order, a view where possible: the inverse of `stored`.
    Where an array has too few axes, it comes back as it is, and whoever reads it refuses its shape.
    """
    if array.ndim == 4 and role == "kernel":
        if isinstance(node.op, ops.ConvTranspose):
            groups = node.op.groups
            parts = array.reshape(groups, array.shape[0] // groups, *array.shape[1:])
            return parts.transpose(0, 4, 1, 2, 3).reshape(-1, parts.shape[1], *array.shape[1:3])
        return array.transpose(0, 3, 1, 2)
    return array.transpose(2, 0, 1) if is_array_of_map(graph, node, role) and array.ndim == 3 else array
