"""The variables of a module of Flax. See porter.frameworks.own_state.OwnState."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from porter.base.dtypes import Array
from porter.formats.safetensors.tensors import write_safetensors

FILE = "model.safetensors"
LOADING = """tensors = safetensors.numpy.load_file("model.safetensors")
state = nnx.state(model)
nnx.replace_by_pure_dict(state, nnx.traversals.unflatten_mapping(
    {tuple(int(part) if part.isdigit() else part for part in name.split(".")): array
     for name, array in tensors.items()}))
nnx.update(model, state)"""


def variables(model: nnx.Module) -> dict[str, Array]:
    """Return a copy of each variable, by its path joined by dots, but for the keys of random numbers."""
    return {name: np.array(variable.get_value()) for name, variable in _by_name(nnx.state(model)).items()}


def _by_name(state: Any) -> dict[str, Any]:
    """Return the variables of a state by their paths, without the keys of random numbers."""
    return {
        ".".join(map(str, path)): variable
        for path, variable in nnx.to_flat_state(state)
        if not isinstance(variable, nnx.RngState)
    }


def put(model: nnx.Module, arrays: Mapping[str, Array]) -> None:
    """Give variables of these names other numbers, in their own types."""
    state = nnx.state(model)
    known = _by_name(state)
    for name, array in arrays.items():
        known[name].set_value(jnp.asarray(array, known[name].get_value().dtype))
    nnx.update(model, state)


def save(model: nnx.Module, folder: Path) -> None:
    write_safetensors(folder / FILE, variables(model))
