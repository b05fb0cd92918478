"""Canonical tensors as the variables of a port, and back. Imports no JAX."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np

from porter.base.dtypes import Array, Dtype, cast
from porter.base.errors import FileError, MappingError
from porter.formats.safetensors.tensors import read_safetensors, write_safetensors
from porter.frameworks import OwnTensors, Tensors
from porter.frameworks.flax.code import model_source, places
from porter.frameworks.flax.layout import WEIGHTS_FILE, canonical, stored, variables
from porter.graph import Node, tensor_shapes
from porter.graph.plan import Plan

SOURCE_FILE = "model.py"


def variable_keys(plan: Plan) -> Iterator[tuple[Node, str, str]]:
    """Each node's roles with the path of the variable in nnx, joined by dots."""
    by_path = places(plan)
    for node in plan.lowered.nodes:
        for role, name in variables(node.op).items():
            yield node, role, ".".join(map(str, (*by_path[node.path], name)))


def arrays_of(plan: Plan, tensors: Tensors) -> dict[str, Array]:
    """The variables by path, in the types of `tensors`.

    Raises:
        MappingError: a tensor is missing or has another shape than the graph needs.
    """
    shapes = tensor_shapes(plan.lowered)
    arrays: dict[str, Array] = {}
    for node, role, key in variable_keys(plan):
        array, expected = tensors.get(node.holder, {}).get(role), shapes[node.path][role]
        if array is None or array.shape != expected:
            got = "got none" if array is None else f"got {array.shape}"
            raise MappingError(f"expected a {role} of shape {expected}, {got}", where=node.path)
        arrays[key] = stored(plan.lowered, node, role, array)
    return arrays


def write_port(folder: Path, plan: Plan, tensors: Tensors, dtype: Dtype) -> dict[str, str]:
    """Writes `model.safetensors` in `dtype`, and `model.py`, its module, into `folder`. Returns the sha256 of
    each by its name.

    Raises:
        MappingError: the tensors do not fit the graph. GraphError: an attribute cannot have such a path.
    """
    text = model_source(plan).encode()
    arrays = {
        key: cast(array, dtype, key, allow_overflow=True) for key, array in arrays_of(plan, tensors).items()
    }
    (folder / SOURCE_FILE).write_bytes(text)
    written = {key: np.ascontiguousarray(array) for key, array in arrays.items()}
    return {
        SOURCE_FILE: sha256(text).hexdigest(),
        WEIGHTS_FILE: write_safetensors(folder / WEIGHTS_FILE, written),
    }


def read_weights(folder: Path, plan: Plan) -> OwnTensors:
    """The canonical tensors of the port in `folder`.

    Raises:
        FileError: there is no such file, or it is not a safetensors file. MappingError: the tensors do not
            fit the graph.
    """
    path = folder / WEIGHTS_FILE
    if not path.is_file():
        raise FileError("the port has no weights", where=path, next="convert again")
    arrays = read_safetensors(path).tensors
    shapes = tensor_shapes(plan.lowered)
    tensors: OwnTensors = {}
    for node, role, key in variable_keys(plan):
        if node.shares is not None:
            continue
        array, expected = arrays.get(key), shapes[node.path][role]
        canonical_array = None if array is None else canonical(plan.lowered, node, role, array)
        if canonical_array is None or canonical_array.shape != expected:
            got = "got none" if array is None else f"got {array.shape}"
            raise MappingError(f"expected the {role} of shape {expected} of {node.path}, {got}", where=key)
        tensors.setdefault(node.path, {})[role] = canonical_array
    return tensors
