"""Canonical tensors as the state_dict of a port, and back. Imports no torch."""

from __future__ import annotations

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.frameworks import LayerNames, OwnTensors, Tensors
from porter.frameworks.port_tensors import FILLS, expect_tensor
from porter.frameworks.torch.layout import state_keys
from porter.graph import Dense, Graph, tensor_shapes


def state_arrays(graph: Graph, tensors: Tensors) -> dict[str, Array]:
    """Return the state_dict of a port: arrays by key, in the types of `tensors`. Tensors that torch's layers
    have and the source lacks are filled in, see `fillings`.

    Raises:
        MappingError: a tensor is missing or has another shape than the graph needs.
    """
    shapes = tensor_shapes(graph)
    channels = graph.channels_by_path
    fills = fillings(graph, tensors)
    state: dict[str, Array] = {}
    # Only first calls of layers have tensors.
    for node in map(graph.by_path.__getitem__, graph.calls):
        arrays = tensors.get(node.path, {})
        for role, key in state_keys(node).items():
            expected = shapes[node.path].get(role)
            if role == "batches":
                state[key] = np.asarray(arrays.get(role, fills.get(key)), np.int64)
            elif key in fills:
                state[key] = np.full(channels[node.source], fills[key], np.float32)
            else:
                state[key] = expect_tensor(arrays.get(role), expected, role, node.path)
    return state


def fillings(graph: Graph, tensors: Tensors) -> dict[str, int]:
    """Return the state_dict keys that torch's layers have and the source lacks, each with the number that
    changes nothing: `{"bn1.weight": 1, "bn1.num_batches_tracked": 0}`.

    The gamma of a norm without scale is 1, the beta of one without centre 0, a missing counter of batches 0.
    """
    shapes = tensor_shapes(graph)

    def is_lacking(path: str, role: str) -> bool:
        """Say whether the source gives no tensor for a role: a gamma or beta that the op lacks, or a counter
        that the source lacks. All else comes from the source.
        """
        if role in ("gamma", "beta"):
            return role not in shapes[path]
        return role == "batches" and role not in tensors[path]

    return {
        key: FILLS[role]
        for node in graph.nodes
        for role, key in state_keys(node).items()
        if is_lacking(node.path, role)
    }


def canonical_tensors(graph: Graph, state: NamedArrays, layers: LayerNames | None = None) -> OwnTensors:
    """Undo `state_arrays`: return by path and role, such as `layer1/0/conv1` and `kernel`, the arrays of a
    torch state that the graph needs, and the counters of batches (`num_batches_tracked`) that the state has.
    What only torch's layer has, and no role of the graph, is left out.

    Args:
        layers: the modules' names by path, where they differ from the path.

    Raises:
        MappingError: a tensor is missing or has another shape than the graph needs.
    """
    tensors: OwnTensors = {}
    shapes = tensor_shapes(graph)
    for node in graph.nodes:
        for role, key in state_keys(node, layers).items():
            is_counter = role == "batches"
            expected = () if is_counter else shapes[node.path].get(role)
            only_in_layer = expected is None
            if only_in_layer or (is_counter and key not in state):
                continue
            array = state.get(key)
            if array is not None and isinstance(node.op, Dense) and array.shape == (*(expected or ()), 1, 1):
                array = array[:, :, 0, 0]  # timm's MobileNet v3 has a convolution there
            tensors.setdefault(node.path, {})[role] = expect_tensor(array, expected, "tensor", key)
    return tensors
