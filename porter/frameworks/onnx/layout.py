"""What ONNX's operators say, and the names and shapes that a port's tensors have in its file. Imports no
package of ONNX's.

A value has the name of its node's path. A tensor has that path, a dot and torch's name of the tensor:
`stage1/unit1/conv1.weight`. A constant, such as the amounts of a Pad, has the path, a dot and what it is. A
node that porter adds, such as a Pad before a pool, has the path with an ending: `stem/pool_pad`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from porter.filegraph.names import Names
from porter.frameworks.port_tensors import FILLS
from porter.graph import (
    BatchNorm,
    ChannelScale,
    Graph,
    GroupNorm,
    LayerNorm,
    Node,
    PRelu,
    RmsNorm,
    shapes,
    tensor_shapes,
)
from porter.graph.ops import channels_in, is_map
from porter.padding import ANY

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.frameworks import Tensors

MODEL_FILE, DATA_FILE = "model.onnx", "model.onnx.data"
"""DATA_FILE holds the tensors of a model that is too large for one protobuf message."""

_TORCH_NAMES = {
    "kernel": "weight",
    "gamma": "weight",
    "alpha": "weight",
    "bias": "bias",
    "beta": "bias",
    "mean": "running_mean",
    "variance": "running_var",
    "value": "weight",
}
"""Torch's names of tensors, by role."""


def tensor_names(graph: Graph) -> dict[str, dict[str, str]]:
    """Return the names of all tensors that the file of a graph stores, by path and role. They differ from
    each other and from all paths; the calls of one layer have the same ones.

    BatchNormalization takes gamma and beta, and LayerNormalization gamma, so these are listed where the graph
    lacks them too.
    """
    free = Names({*graph.inputs, *graph.by_path})
    stored = _stored_roles(graph)
    names_by_path = {
        path: {role: free.take(f"{path}.{_TORCH_NAMES[role]}") for role in stored[path]}
        for path in graph.calls
        if path in stored
    }
    # A further call of a layer has its first call's names.
    return {path: names_by_path[graph.by_path[path].holder] for path in stored}


def fillings(graph: Graph, tensors: Tensors) -> dict[str, int]:
    """Return the stored tensors that the source lacks, each with the number that changes nothing: a gamma of
    1, a beta of 0.
    """
    known_shapes = tensor_shapes(graph)
    return {
        name: FILLS[role]
        for path, names in tensor_names(graph).items()
        for role, name in names.items()
        if role not in known_shapes.get(path, {})
    }


def stored_shapes(graph: Graph) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return the shape that each tensor has in the file, by path and role: the canonical one, but C×1×1 for
    numbers of each channel of a map that an elementwise op takes, because ONNX broadcasts from the last axis.
    """
    known = shapes(graph, ANY)
    known_shapes = tensor_shapes(graph)
    stored: dict[str, dict[str, tuple[int, ...]]] = {}
    for path, roles in _stored_roles(graph).items():
        node = graph.by_path[path]
        channels = channels_in(known[node.source])
        is_elementwise = isinstance(node.op, PRelu | ChannelScale | GroupNorm | RmsNorm)
        axes_of_cells = (1, 1) if is_elementwise and is_map(known[path]) else ()
        canonical_shapes = known_shapes.get(path, {})
        stored[path] = {role: (*canonical_shapes.get(role, (channels,)), *axes_of_cells) for role in roles}
    return stored


def _stored_roles(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Return the roles of the tensors that each path stores in the file; paths without any are left out."""
    known_shapes = tensor_shapes(graph)
    roles_by_path = {
        node.path: _ordered_roles(node, tuple(known_shapes.get(node.path, ()))) for node in graph.nodes
    }
    return {path: roles for path, roles in roles_by_path.items() if roles}


def _ordered_roles(node: Node, roles: tuple[str, ...]) -> tuple[str, ...]:
    """Return the roles of a node's tensors in the order of ONNX's inputs, with those that its operator takes
    and the op lacks.
    """
    if isinstance(node.op, BatchNorm):
        return "gamma", "beta", "mean", "variance"
    if isinstance(node.op, LayerNorm):
        return tuple(dict.fromkeys(("gamma", *roles)))
    return roles
