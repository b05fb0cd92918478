"""The model.py of a port: loaded from its folder, beside the built module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from porter.base.dtypes import Array
from porter.frameworks import Tensors
from porter.frameworks.flax import destination as framework
from porter.frameworks.images import as_taken
from porter.graph.ops import is_map
from porter.graph.plan import Plan
from tests.support.random_graphs import difference


def loaded(folder: Path) -> Any:
    """What `load()` of the model.py in a folder gives."""
    namespace: dict[str, Any] = {"__name__": "model", "__file__": str(folder / "model.py")}
    exec(compile((folder / "model.py").read_text(), "model.py", "exec"), namespace)
    return namespace["load"]()


def outputs_of(model: Any, plan: Plan, batch: Array) -> dict[str, Array]:
    """The outputs of a module of a plan for a batch N×C×H×W, maps N×C×H×W too."""
    inputs = as_taken(batch, plan.graph, channels_last=True)
    graph, state = nnx.split(model)
    call = jax.jit(lambda state, *inputs: nnx.merge(graph, state)(*inputs), compiler_options={"xla_backend_optimization_level": 0})
    found = call(state, *inputs)
    values = dict(zip(plan.graph.outputs, found if plan.graph.further else (found,), strict=True))
    maps = {path for path in values if is_map(plan.graph.open_shapes[path])}
    return {path: np.moveaxis(np.asarray(value), -1, 1) if path in maps else np.asarray(value) for path, value in values.items()}


def expect_the_same_as_built(
    plan: Plan, tensors: Tensors, batch: Array, folder: Path, wanted: Mapping[str, Array] | None = None
) -> None:
    """The written model.py has the variables of the built module, and gives its values, which may be known (`wanted`)."""
    framework.write(folder, plan, tensors, {}, "float64", {})
    built = framework.ENGINE.build(plan, framework.read_port(folder, plan, {}), {}, "float64")
    with jax.enable_x64(True):
        model = loaded(folder)
        own, other = (dict(nnx.to_flat_state(nnx.state(each))) for each in (model, built))
        assert own.keys() == other.keys()
        assert all(np.array_equal(value[...], other[path][...]) and value[...].dtype == "float64" for path, value in own.items())
        found = outputs_of(model, plan, batch)
    wanted = wanted or framework.ENGINE.run(built, batch, plan.graph.outputs)
    assert not {path for path, value in found.items() if difference(value, wanted[path]) > 1e-13}
