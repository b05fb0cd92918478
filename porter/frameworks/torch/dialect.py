"""The names and the axis order of a state_dict. See porter.frameworks.dialects.Dialect."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from porter.frameworks.torch.layout import from_canonical, port_keys, tensor_names, to_canonical
from porter.graph import Graph

__all__ = ["from_canonical", "port_keys", "tensor_names", "to_canonical"]

SEPARATOR = "."
AVERAGE_SUFFIX = None


def counted_layers(
    graph: Graph, convolutions: Collection[str], layers: Mapping[str, str]
) -> Mapping[str, str]:
    """Empty: a state_dict has names."""
    return {}


def numbered_layers(layers: Collection[str], tensors: Collection[str]) -> Mapping[str, str]:
    """Empty: a module has the name that its parent gives it."""
    return {}
