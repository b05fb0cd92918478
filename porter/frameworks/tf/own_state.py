"""The weights of a model of Keras. See porter.frameworks.own_state.OwnState."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from porter.base.dtypes import Array
from porter.frameworks.tf.in_memory import expect_built

FILE = "model.weights.h5"
LOADING = 'model.load_weights("model.weights.h5")'


def variables(model: Any) -> dict[str, Array]:
    """Return a copy of each weight of the model, by its path."""
    return {name: np.asarray(variable).copy() for name, variable in _by_name(model).items()}


def _by_name(model: Any) -> dict[str, Any]:
    """Return the model's variables by their paths; of several of one path, the later ones have a number.
    Raise UsageError for a model that is not built.
    """
    expect_built(model)
    by_name = dict[str, Any]()
    for variable in model.weights:
        name, number = variable.path, 1
        while name in by_name:
            name, number = f"{variable.path}:{number}", number + 1
        by_name[name] = variable
    return by_name


def put(model: Any, arrays: Mapping[str, Array]) -> None:
    """Give variables of these paths other numbers, in their own types."""
    known = _by_name(model)
    for name, array in arrays.items():
        known[name].assign(array)


def save(model: Any, folder: Path) -> None:
    model.save_weights(folder / FILE)
