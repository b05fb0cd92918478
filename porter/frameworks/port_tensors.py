"""The tensors of a port: the shapes that they must have, and what fills those that only a layer has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from porter.base.errors import MappingError
from porter.graph import Graph, Node
from porter.graph.ops import is_map

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.base.dtypes import Array

WEIGHTS_FILE = "model.safetensors"
"""The file of the tensors of a port that is run by Python code."""
FILLS: Mapping[str, int] = {"gamma": 1, "beta": 0, "batches": 0}
"""The number, which changes nothing, in a tensor that a norm's layer has and its node lacks, by its role."""


def expect_tensor(array: Array | None, shape: tuple[int, ...] | None, role: str, where: str) -> Array:
    """Return an array, which is expected to have a shape.

    Raises:
        MappingError: it has another one, or there is no array.
    """
    if array is None or array.shape != shape:
        got = "got none" if array is None else f"got {array.shape}"
        raise MappingError(f"expected a {role} of shape {shape}, {got}", where=where)
    return array


def is_array_of_map(graph: Graph, node: Node, role: str) -> bool:
    """Return whether a tensor is the array of a layer that adds it to a map, or multiplies a map by it."""
    return role == "value" and is_map(graph.open_shapes[node.source])
