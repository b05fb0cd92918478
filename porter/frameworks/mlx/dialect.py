"""The names and the axis order of the variables of mlx.nn. See porter.frameworks.dialects.Dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from porter.frameworks import LayerNames
from porter.frameworks.defaults import counted_layers as counted_layers, numbered_layers as numbered_layers
from porter.frameworks.mlx.layout import canonical as to_canonical, stored as from_canonical, variables
from porter.graph import Graph, Node

if TYPE_CHECKING:
    from porter.graph.plan import Plan

__all__ = ["from_canonical", "to_canonical"]

SEPARATOR = "."
AVERAGE_SUFFIX = None


def tensor_names(graph: Graph, node: Node, layer: str) -> Mapping[str, tuple[str, ...]]:
    """Return the paths of a layer's variables, as Module.save_weights writes them."""
    return {role: (f"{layer}.{name}",) for role, name in variables(node.op).items()}


def port_keys(plan: Plan, layers: LayerNames) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the names by path and role of a port's variables: their paths in the module, joined by dots. See
    porter.frameworks.dialects.PortDialect.port_keys. `layers` is unused.
    """
    from porter.frameworks.mlx.code import PORTS  # few files have these names

    return {(node.path, role): (key,) for node, role, key in PORTS.keys(plan)}
