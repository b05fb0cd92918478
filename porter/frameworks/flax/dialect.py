"""The names and the axis order of flax.nnx's variables. See porter.frameworks.dialects.Dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from porter.frameworks import LayerNames
from porter.frameworks.defaults import counted_layers as counted_layers, numbered_layers as numbered_layers
from porter.frameworks.flax.layout import canonical as to_canonical, stored as from_canonical, variables
from porter.graph import Graph, Node

if TYPE_CHECKING:
    from porter.graph.plan import Plan

__all__ = ["from_canonical", "to_canonical"]

SEPARATOR = "/"
AVERAGE_SUFFIX = None


def tensor_names(graph: Graph, node: Node, layer: str) -> Mapping[str, tuple[str, ...]]:
    """Return the paths of a layer's variables, as orbax has them and as model.safetensors has them."""
    paths = {role: f"{layer}/{name}" for role, name in variables(node.op).items()}
    return {role: (path, path.replace("/", ".")) for role, path in paths.items()}


def port_keys(plan: Plan, layers: LayerNames) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the names by path and role of a port's variables: their paths in the module, joined by slashes
    or by dots. See porter.frameworks.dialects.PortDialect.port_keys. `layers` is unused.
    """
    from porter.frameworks.flax.code import PORTS  # few files have these names

    keys = {path: "/".join(map(str, place)) for path, place in PORTS.places(plan).items()}
    return {
        (node.path, role): names
        for node in plan.lowered.nodes
        if node.path in keys
        for role, names in tensor_names(plan.lowered, node, keys[node.path]).items()
    }
