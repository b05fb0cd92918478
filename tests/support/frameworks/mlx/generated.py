"""The model.py of a port: loaded from its folder, beside the built module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from porter.frameworks import Tensors
from porter.frameworks.batches import arrays_for_inputs
from porter.frameworks.mlx.destination import DESTINATION as framework
from porter.frameworks.mlx.exact_operations import exact_operations
from porter.graph.plan import Plan
from tests.support.arrays import Array
from tests.support.random_graphs import difference

LIMIT = 1e-13


def loaded(folder: Path) -> Any:
    """What `load()` of the model.py in a folder gives."""
    namespace: dict[str, Any] = {"__name__": "model", "__file__": str(folder / "model.py")}
    exec(compile((folder / "model.py").read_text(), "model.py", "exec"), namespace)
    return namespace["load"]()


def outputs_of(model: Any, plan: Plan, batch: Array) -> list[Array]:
    """The outputs of a module of a plan in float64, for a batch N×C×H×W."""
    mx.disable_compile()
    model.set_dtype(mx.float64)
    with mx.stream(mx.cpu), exact_operations():
        inputs = [
            mx.array(np.ascontiguousarray(each), mx.float64)
            for each in arrays_for_inputs(batch, plan.graph, channels_last=True)
        ]
        found = model(*inputs)
        values = [np.array(each) for each in (found if plan.graph.further else (found,))]
    mx.enable_compile()
    return values


def expect_the_same_as_built(plan: Plan, tensors: Tensors, batch: Array, folder: Path) -> None:
    """The written model.py has the variables of the built module, and computes the same from them."""
    framework.write(folder, plan, tensors, {}, "float32", {})
    built = framework.ENGINE.build(plan, framework.read_port(folder, plan, {}), {}, "float32")
    with exact_operations():  # a layer may hold one of MLX's functions
        model = loaded(folder)
    own, other = (dict(tree_flatten(each.parameters())) for each in (model, built))
    assert own.keys() == other.keys()
    assert all(np.array_equal(value, other[path]) for path, value in own.items())
    found, wanted = (outputs_of(each, plan, batch) for each in (model, built))
    for path, *pair in zip(plan.graph.outputs, found, wanted, strict=True):
        assert difference(*pair) < LIMIT, path
