"""The names and the axis order of a state_dict. See porter.frameworks.dialects.Dialect."""

from __future__ import annotations

from porter.frameworks.defaults import counted_layers as counted_layers, numbered_layers as numbered_layers
from porter.frameworks.torch.layout import from_canonical, port_keys, tensor_names, to_canonical

__all__ = ["from_canonical", "port_keys", "tensor_names", "to_canonical"]

SEPARATOR = "."
AVERAGE_SUFFIX = None
