"""The names of Gluon's parameters, in the axis order of torch. See porter.frameworks.dialects.Dialect.

`save_parameters` names a parameter by the attributes that lead to it: `features.4.0.body.0.weight`. `export`,
and `save_params` of 1.2 and before it, name it by the prefixes of blocks: `resnetv10_stage1_conv0_weight`, or
without the network's own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping

from porter.frameworks.defaults import counted_layers as counted_layers
from porter.frameworks.torch.layout import from_canonical, to_canonical
from porter.graph import BatchNorm, Conv, ConvTranspose, Dense, Graph, Node, Op, PRelu

__all__ = ["from_canonical", "to_canonical"]

SEPARATOR = "."
AVERAGE_SUFFIX = None

_LAYER_NAMES = {"kernel": ("weight",), "bias": ("bias",)}
_NORM_NAMES = {"gamma": ("gamma",), "beta": ("beta",)}
_NAMES: Mapping[type[Op], Mapping[str, tuple[str, ...]]] = {
    Conv: _LAYER_NAMES,
    ConvTranspose: _LAYER_NAMES,
    Dense: _LAYER_NAMES,
    BatchNorm: {
        **_NORM_NAMES,
        "mean": ("running_mean", "moving_mean"),
        "variance": ("running_var", "moving_var"),
    },
    PRelu: {"alpha": ("alpha", "gamma")},
}
_NETWORK_PREFIX = re.compile(r"[A-Za-z]\w*?\d+_")
"""What a network's names begin with: its class, counted through the process."""


def tensor_names(graph: Graph, node: Node, layer: str) -> Mapping[str, tuple[str, ...]]:
    """Return the names of a layer's arrays by role, with `.` or `_` before the last part."""
    roles = node.op.tensors(1)
    return {
        role: tuple(f"{layer}{separator}{name}" for separator in (".", "_") for name in names)
        for role, names in _NAMES.get(type(node.op), {}).items()
        if role in roles
    }


def numbered_layers(layers: Collection[str], tensors: Collection[str]) -> Mapping[str, str]:
    """Return the layers' names in the file, with the prefix of the network that most of its names have:
    `resnetv10_`, in a second network `resnetv11_`; empty where most have none.
    """
    known = set(layers)
    counts = Counter[str]()  # how many tensors speak for each prefix; "" is none
    for tensor in tensors:
        network_prefix = _NETWORK_PREFIX.match(tensor)
        for prefix in ("", network_prefix[0]) if network_prefix else ("",):
            # A tensor speaks for a prefix, or for none, if what is left is a known layer and the tensor's
            # role: `conv0_weight`, `bn0_running_mean`.
            layer = tensor.removeprefix(prefix).rpartition("_")[0].removesuffix("_running")
            counts[prefix] += layer in known
    prefix = max(counts, key=lambda prefix: counts[prefix], default="")
    return {layer: f"{prefix}{layer}" for layer in layers} if prefix else {}
