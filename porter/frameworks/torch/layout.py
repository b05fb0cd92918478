"""Torch's tensor names and axis order, and what its own layers can express. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from porter.base.errors import MappingError
from porter.frameworks import LayerNames
from porter.frameworks.dialects import without_batch
from porter.graph import (
    AddArray,
    BatchNorm,
    ChannelScale,
    Conv,
    ConvTranspose,
    Dense,
    Graph,
    GroupNorm,
    LayerNorm,
    MultiplyArray,
    Node,
    Op,
    PRelu,
    RmsNorm,
    Tokens,
)
from porter.padding import Capabilities

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.base.dtypes import Array
    from porter.graph.plan import Plan

# tests/unit/frameworks/torch/test_layout.py compares this with torch's own layers. `real_cells` is
# count_include_pad=False, `clipped_window` count_include_pad=True. A pool's pad "should be smaller than or
# equal to half of kernel size".
CAPABILITIES = Capabilities(
    symmetric=True,
    explicit=False,
    same=(),
    same_of_any=True,
    pool_pads="half",
    roundings=("floor", "ceil"),
    averages=("real_cells", "clipped_window"),
    dynamic=("same", "same_lower"),
    dilated_pools=("max_pool",),
    dilated_strides=True,
)

_LAYER_NAMES = {"kernel": "weight", "bias": "bias"}
_ARRAY_NAMES = {"value": "weight"}
_NORM_NAMES = {"gamma": "weight", "beta": "bias"}
_NAMES: Mapping[type[Op], Mapping[str, str]] = {
    Conv: _LAYER_NAMES,
    ConvTranspose: _LAYER_NAMES,
    Dense: _LAYER_NAMES,
    BatchNorm: {
        **_NORM_NAMES,
        "mean": "running_mean",
        "variance": "running_var",
        "batches": "num_batches_tracked",
    },
    LayerNorm: _NORM_NAMES,
    RmsNorm: {"gamma": "weight"},
    GroupNorm: _NORM_NAMES,
    ChannelScale: _NORM_NAMES,
    PRelu: {"alpha": "weight"},
    AddArray: _ARRAY_NAMES,
    MultiplyArray: _ARRAY_NAMES,
    Tokens: _ARRAY_NAMES,
}
"""Torch's names of an op's tensors, by role; a batch norm's counter of batches is `batches`."""


def tensor_names(graph: Graph, node: Node, layer: str) -> Mapping[str, tuple[str, ...]]:
    """Return the state_dict keys that `node` has in the module `layer`, by role; a batch norm's counter of
    batches is `batches`.

    The `in_proj` of a MultiheadAttention is no module: its tensors are parameters, `in_proj_weight` and
    `in_proj_bias`.
    """
    roles = _roles(node.op)
    separator = "_" if layer.endswith(".in_proj") else "."
    return {
        role: (f"{layer}{separator}{name}",)
        for role, name in _NAMES.get(type(node.op), {}).items()
        if role in roles
    }


def to_canonical(graph: Graph, node: Node, role: str, array: Array) -> Array:
    """Return the array with the same axes, because torch's order is the canonical one. A dense kernel stored
    as a 1x1 convolution, (O, I, 1, 1), becomes (O, I), and the other way round. The axis for images that a
    parameter added to a batch may have is left out, and so are the axes of one cell of a channel scale.

    Raises:
        MappingError: the array has another rank.
    """
    if isinstance(node.op, ChannelScale) and array.shape[1:] == (1, 1):
        return array[:, 0, 0]  # torchvision's layer_scale
    if role == "value":
        return without_batch(graph, node, array)
    if role != "kernel":
        return _expect_rank(node, role, array, 0 if role == "batches" else 1)
    if isinstance(node.op, Dense):
        if array.ndim == 4 and array.shape[2:] == (1, 1):
            return array[:, :, 0, 0]
        return _expect_rank(node, role, array, 2)
    if array.ndim == 2 and isinstance(node.op, Conv) and node.op.window.kernel == (1, 1):
        return array[:, :, None, None]
    return _expect_rank(node, role, array, 4)


def from_canonical(graph: Graph, node: Node, role: str, array: Array) -> Array:
    """Return the same array: the modules that porter writes have torch's own axis order."""
    return array


def state_keys(node: Node, layers: LayerNames | None = None) -> Mapping[str, str]:
    """Return the state_dict keys of a node in a port, by role. Its module is that of `layers`, otherwise its
    holder's path with dots.

    A norm of torch's has both weight and bias or neither, so both are listed when the node has one of them.
    """
    layer = (layers or {}).get(node.path, module_name(node.holder))
    roles = _roles(node.op)
    if isinstance(node.op, BatchNorm | LayerNorm | GroupNorm) and not roles.isdisjoint(_NORM_NAMES):
        roles |= _NORM_NAMES.keys()
    return {role: f"{layer}.{name}" for role, name in _NAMES.get(type(node.op), {}).items() if role in roles}


def port_keys(plan: Plan, layers: LayerNames) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the state_dict keys of a port by path and role; see
    porter.frameworks.dialects.PortDialect.port_keys. `layers` names a stock class's modules, or is empty.
    """
    return {
        (node.path, role): (key,)
        for node in plan.lowered.nodes
        for role, key in state_keys(node, layers).items()
    }


def module_name(path: str) -> str:
    """Return the name of a node's module in a port: `block3/expand/conv` is `block3.expand.conv`."""
    return path.replace("/", ".")


def _roles(op: Op) -> set[str]:
    """Return the roles of an op's tensors, and `batches`; only norms have a name for that one."""
    return {*op.tensors(1), "batches"}


def _expect_rank(node: Node, role: str, array: Array, rank: int) -> Array:
    """Return the array, or refuse it if it has another rank."""
    if array.ndim != rank:
        raise MappingError(f"expected a {role} of rank {rank}, got shape {array.shape}", where=node.path)
    return array
