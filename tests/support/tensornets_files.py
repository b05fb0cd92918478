"""TensorNets' networks with calibrated random weights, as the files that its own `save` writes."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import pytest

from porter.frameworks.dialects import get_dialect
from porter.recipe import find_recipe, layer_names
from porter.recipe.transforms import undo_transforms
from porter.zoos.slim.network import variables_of
from porter.zoos.slim.tensornets import construct
from tests.support.arrays import Array
from tests.support.checkout import ROOT
from tests.support.standin_files import standin_graph, standin_tensors


def tensornets_installed() -> bool:
    try:
        return bool(distribution("tensornets").version)
    except PackageNotFoundError:
        return False


needs_tensornets = pytest.mark.skipif(
    not tensornets_installed(), reason="tensornets is not installed: it needs a C compiler"
)


def tensornets_python() -> Path | None:
    """A Python 3.7 with TensorFlow 1.15 and TensorNets."""
    for path in (os.environ.get("PORTER_TENSORNETS_PYTHON"), ROOT / "build/tensornets/bin/python"):
        if path and Path(path).is_file():
            return Path(path)
    return None


needs_python37 = pytest.mark.skipif(
    tensornets_python() is None, reason="scripts/tensornets_environment has not been run"
)


def tensornets_tensors(
    variant: str, recipes: Path | None = None, size: tuple[int, int] = (224, 224)
) -> dict[str, Array]:
    """The stand-in weights under the names of TensorNets' variables, in the order in which its code makes
    them at any `size`.
    """
    recipe, tf = find_recipe(variant, recipes), get_dialect("tf")
    graph = standin_graph(variant, "tensornets", recipes=recipes)
    layers = layer_names(recipe.member(variant, "tensornets"), graph)
    variables = variables_of(construct, variant, 1000, size)
    found: dict[str, Array] = {}
    for path, roles in standin_tensors(variant, "tensornets", recipes=recipes).items():
        node = graph.by_path[path]
        names = tf.tensor_names(graph, node, layers[path].name)
        for role, array in roles.items():
            (name,) = [name for name in names[role] if name in variables]
            stored = tf.from_canonical(
                graph, node, role, undo_transforms(layers[path].transforms, role, array)
            )
            found[name] = np.ascontiguousarray(stored)
    return {name: found[name] for name in variables}


def write_tensornets(
    path: Path, variant: str, recipes: Path | None = None, size: tuple[int, int] = (224, 224)
) -> Path:
    tensors = tensornets_tensors(variant, recipes, size)
    return save_pair(path, list(tensors), list(tensors.values()))


def save_pair(path: Path, names: list[str], values: list[Array]) -> Path:
    """Saves as `save` of tensornets/utils.py does: numpy makes an object array of values of several shapes;
    numpy 2 has to be told to.
    """
    objects = np.empty(len(values), object)
    objects[:] = values
    np.savez(path, names=[f"{name}:0" for name in names], values=objects)
    return path
