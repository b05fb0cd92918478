"""Ports for Flax and MLX: their model.py beside the built module, as a person would write it, and what is
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import mlx.nn as nn
import numpy as np
import pytest
from flax import nnx

from porter.base import package
from porter.base.errors import NotInstalled, UsageError
from porter.frameworks import get_destination
from porter.frameworks.flax import code as flax, spellings as flaxs
from porter.frameworks.mlx import code as mlx, spellings as mlxs
from porter.graph import Graph
from porter.graph.plan import Plan, make_plan
from porter.padding import ANY
from porter.recipe import expand
from tests.support.frameworks.every_op import FLATTENED, OF_MAPS, SIZE, every_op, images, tensors_of
from tests.support.frameworks.flax.generated import expect_the_same_program
from tests.support.frameworks.mlx.generated import expect_the_same_as_built
from tests.support.frameworks.small_variants import small
from tests.support.frameworks.torch.classic_graphs import convnext, mobilenet_v3
from tests.support.frameworks.torch.generated import expect_formatted
from tests.support.frameworks.torch.graphs import inception, resnet_v2, small_mobilenet
from tests.support.recipe.recipes import all_recipes
from tests.unit.frameworks.torch.test_code_random import random_graph, random_rows

AVERAGE = 'nnx.avg_pool(x, (3, 3), strides=(1, 1), padding="SAME", count_include_pad=False)'
IN_MLX = {AVERAGE: "counted_avg_pool(", ", rngs=rngs": "", "nnx.": "nn.", "jnp.": "mx."}
EACH = pytest.mark.parametrize("name", ["flax", "mlx"])


def plan_of(name: str, graph: Graph, size: Any = ANY) -> Plan:
    return make_plan(graph, size, get_destination(name).CAPABILITIES)


def expect_the_same(name: str, plan: Plan, folder: Path) -> None:
    """model.py and the built module are the same; Flax's are traced, and neither compiled nor run."""
    if name == "flax":
        expect_the_same_program(plan)
    else:
        batch = images(plan.only_size)[:1] if plan.only_size else images((33, 32))
        expect_the_same_as_built(plan, tensors_of(plan.graph), batch, folder)


def test_names_and_layers_are_those_of_the_frameworks() -> None:
    names = {name for name in dir(nnx.Module) if name[0] != "_"}
    assert names | {"program"} == flax.LANGUAGE.of_modules
    names = {name for name in dir(nn.Module()) if name[0] != "_"}
    assert names | {"program"} == mlx.LANGUAGE.of_modules
    graph = every_op((*OF_MAPS, *FLATTENED))
    for name, kinds, spellings in (
        ("flax", flaxs.WITH_TENSORS, flaxs.SPELLINGS),
        ("mlx", mlxs.MODULES, mlxs.SPELLINGS),
    ):
        assert {step.layer.kind for step in spellings.steps(plan_of(name, graph, SIZE))} >= kinds


@EACH
@pytest.mark.parametrize(
    "make",
    [resnet_v2, mobilenet_v3, *(partial(random_graph, seed) for seed in range(6)), partial(random_rows, 3)],
)
def test_model_py_and_the_built_module_agree(name: str, make: Callable[[], Graph], tmp_path: Path) -> None:
    expect_the_same(name, plan_of(name, make()), tmp_path)


@EACH
@pytest.mark.full
@pytest.mark.parametrize("architecture", [recipe.architecture for recipe in all_recipes()])
def test_model_py_of_recipes_and_the_built_module_agree(name: str, architecture: str, tmp_path: Path) -> None:
    for member in small(next(recipe for recipe in all_recipes() if recipe.architecture == architecture)):
        expect_the_same(name, plan_of(name, expand(member), member.native_size()), tmp_path)


@EACH
@pytest.mark.parametrize(
    ("make", "lines"),
    [
        (resnet_v2, ["self.stage2 = stage(16, 8, units=3, stride=1, rngs=rngs)", "row.layers.append("]),
        (
            small_mobilenet,
            ["for filters, stride, expansion, repeats in settings:", "self.blocks.layers.append("],
        ),
        (mobilenet_v3, ["for hidden, filters, kernel, stride, squeeze, activation in settings:"]),
        (convnext, ["blocks=nnx.Sequential(*(Block(64, rngs=rngs) for _ in range(5)))"]),
        (
            inception,
            [
                "jnp.concatenate([",
                AVERAGE,
            ],
        ),
    ],
)
def test_model_py_is_written_as_a_person_would(
    name: str, make: Callable[[], Graph], lines: list[str], tmp_path: Path
) -> None:
    """Units are classes, repeats are lists, SAME is SAME; and ruff would lay it out so."""
    if name == "mlx":
        for word, other in IN_MLX.items():
            lines = [line.replace(word, other) for line in lines]
    text = {"flax": flax, "mlx": mlx}[name].model_source(plan_of(name, make()))
    (tmp_path / "model.py").write_text(text)
    assert [line for line in lines if line not in text] == []
    expect_formatted(tmp_path / "model.py")


@EACH
def test_other_inputs_are_refused(name: str) -> None:
    plan = plan_of(name, resnet_v2((1, 1)), (33, 32))
    fixed = get_destination(name).ENGINE.build(plan, tensors_of(plan.graph), {}, "float32")
    with pytest.raises(UsageError, match="N x H x W x 3, got 2 x 32 x 33 x 1"):
        fixed(np.zeros((2, 32, 33, 1), np.float32))


@pytest.mark.parametrize(("name", "library"), [("flax", "jax"), ("mlx", "mlx")])
def test_without_its_library(name: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    plan = plan_of(name, resnet_v2((1, 1)))
    with pytest.raises(NotInstalled, match=f"{library} is not installed"):
        get_destination(name).ENGINE.build(plan, tensors_of(plan.graph), {}, "float32")
