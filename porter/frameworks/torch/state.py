"""Canonical tensors as the state_dict of a port, and back. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from porter.dtypes import Array
from porter.errors import MappingError
from porter.frameworks.torch.layout import state_keys
from porter.graph import Graph, channels_of, tensor_shapes


def state_arrays(graph: Graph, tensors: Mapping[str, Mapping[str, Array]], dtype: np.dtype[np.generic]) -> dict[str, Array]:
    """The state_dict by key, its floating arrays in `dtype`.

    What torch's layers have and the graph does not is filled in: the gamma of a norm without scale with 1, the beta of one
    without centre with 0, and the counter of batches with 0.

    Raises:
        MappingError: a tensor is missing or has another shape than the graph needs.
    """
    shapes, channels = tensor_shapes(graph), channels_of(graph)
    state: dict[str, Array] = {}
    for node in graph.nodes:
        found = tensors.get(node.path, {})
        for role, key in state_keys(node).items():
            expected = shapes[node.path].get(role)
            if role == "batches":
                state[key] = np.asarray(found.get(role, 0), np.int64)
            elif expected is None:
                state[key] = np.full(channels[node.inputs[0]], 1 if role == "gamma" else 0, dtype)
            elif role not in found or found[role].shape != expected:
                got = f"got {found[role].shape}" if role in found else "there is none"
                raise MappingError(f"expected a {role} of shape {expected}, {got}", where=node.path)
            else:
                with np.errstate(over="ignore"):  # porter.dtypes.cast decides on overflow, before this
                    state[key] = found[role].astype(dtype, copy=False)
    return state


def canonical_tensors(graph: Graph, state: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """The inverse of `state_arrays`: what the graph needs, and the counters of batches where the state has them.

    Raises:
        MappingError: a tensor is missing or has another shape than the graph needs.
    """
    tensors: dict[str, dict[str, Array]] = {}
    shapes = tensor_shapes(graph)
    for node in graph.nodes:
        for role, key in state_keys(node).items():
            expected = () if role == "batches" else shapes[node.path].get(role)
            if expected is None or (role == "batches" and key not in state):
                continue
            if key not in state or state[key].shape != expected:
                got = f"got {state[key].shape}" if key in state else "there is none"
                raise MappingError(f"expected a tensor of shape {expected}, {got}", where=key)
            tensors.setdefault(node.path, {})[role] = state[key]
    return tensors
