"""The model.py of a port: loaded from its folder, beside the built module."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.extend.core import Var

from porter.frameworks import Tensors
from porter.frameworks.batches import arrays_for_inputs
from porter.frameworks.flax import QUICKLY
from porter.frameworks.flax.code import model_source
from porter.frameworks.flax.destination import DESTINATION as framework
from porter.frameworks.flax.graph_module import GraphModule
from porter.graph import input_shapes
from porter.graph.ops import is_map
from porter.graph.plan import Plan
from tests.support.arrays import Array
from tests.support.oracle import evaluate
from tests.support.random_graphs import difference


def loaded(folder: Path) -> Any:
    """What `load()` of the model.py in a folder gives."""
    namespace: dict[str, Any] = {"__name__": "model", "__file__": str(folder / "model.py")}
    exec(compile((folder / "model.py").read_text(), "model.py", "exec"), namespace)
    return namespace["load"]()


def outputs_of(model: Any, plan: Plan, batch: Array, paths: Collection[str]) -> dict[str, Array]:
    """The outputs of a module of a plan that are in `paths`, in float64, for a batch N×C×H×W, maps
    N×C×H×W too. Only what they need is compiled.
    """
    inputs = arrays_for_inputs(batch, plan.graph, channels_last=True)
    graph, state = nnx.split(model)

    def wanted(state: Any, *inputs: Any) -> dict[str, Any]:
        found = nnx.merge(graph, state)(*inputs)
        values = zip(plan.graph.outputs, found if plan.graph.further else (found,), strict=True)
        return {path: value for path, value in values if path in paths}

    with jax.enable_x64(True):
        values = jax.jit(wanted, compiler_options=QUICKLY)(state, *inputs)
    maps = {path for path in values if is_map(plan.graph.open_shapes[path])}
    return {
        path: np.moveaxis(np.asarray(value), -1, 1) if path in maps else np.asarray(value)
        for path, value in values.items()
    }


def expect_the_same_as_built(plan: Plan, tensors: Tensors, batch: Array, folder: Path) -> None:
    """The written model.py has the variables of the built module, and computes the same from them in float64:
    where JAX traces other operations, it gives what the oracle does.
    """
    framework.write(folder, plan, tensors, {}, "float64", {})
    built = framework.ENGINE.build(plan, framework.read_port(folder, plan, {}), {}, "float64")
    with jax.enable_x64(True):
        model = loaded(folder)
        own, other = (
            dict(nnx.to_flat_state(nnx.state(each, nnx.Not(nnx.RngState)))) for each in (model, built)
        )
        assert own.keys() == other.keys()
        assert all(
            np.array_equal(value[...], other[path][...]) and value[...].dtype == "float64"
            for path, value in own.items()
        )
        programs = [_program(each, _inputs(plan, "float64"))[1] for each in (model, built)]
        differing = [
            path for path, *pair in zip(plan.graph.outputs, *programs, strict=True) if len({*pair}) > 1
        ]
        found, wanted = outputs_of(model, plan, batch, differing), evaluate(plan.graph, tensors, batch)
    assert not {path for path, value in found.items() if difference(value, wanted[path]) > 1e-13}


def _inputs(plan: Plan, dtype: str) -> list[jax.ShapeDtypeStruct]:
    shapes = input_shapes(plan.graph, plan.only_size or (64, 64)).values()
    return [
        jax.ShapeDtypeStruct((2, *(shape[1:] + shape[:1] if is_map(shape) else shape)), dtype)
        for shape in shapes
    ]


def expect_the_same_program(plan: Plan) -> None:
    """The model.py of a plan has the variables of the built module, and computes the same from them: the
    operations that JAX traces are equal. Nothing is compiled or run.
    """
    inputs = _inputs(plan, "float32")
    namespace: dict[str, Any] = {"__name__": "model"}
    exec(compile(model_source(plan), "model.py", "exec"), namespace)
    own, built = namespace["Model"], partial(GraphModule, plan, "float32")
    programs = [
        _program(nnx.eval_shape(lambda make=make: make(rngs=nnx.Rngs(0))), inputs) for make in (own, built)
    ]
    assert programs[0] == programs[1]


def _program(model: Any, inputs: list[Any]) -> tuple[list[str], list[str]]:
    """The paths of a module's variables, and for each output a digest of the operations that lead to it."""
    model.eval()
    graph, state = nnx.split(model)
    traced = jax.make_jaxpr(lambda state, *inputs: nnx.merge(graph, state)(*inputs))(state, *inputs).jaxpr
    paths = [".".join(map(str, path)) for path, _ in nnx.to_flat_state(state)]
    known: dict[Any, str] = {variable: f"input {place}" for place, variable in enumerate(traced.invars)}
    known |= {variable: f"constant {variable.aval}" for variable in traced.constvars}
    for equation in traced.eqns:
        taken = [
            known.get(each, str(each)) if isinstance(each, Var) else str(each) for each in equation.invars
        ]
        if equation.params.get("name") == "identity":  # a use of a block that lacks a layer
            known[equation.outvars[0]] = taken[0]
            continue
        text = re.sub("0x[0-9a-f]+", "", f"{equation.primitive} {equation.params} {taken}")
        for place, variable in enumerate(equation.outvars):
            known[variable] = sha256(f"{place} {text}".encode()).hexdigest()
    return paths, [known[variable] for variable in traced.outvars]
