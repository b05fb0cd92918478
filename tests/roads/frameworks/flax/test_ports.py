"""Ports for Flax as people use them: model.py beside the built module; jit, vmap and grad; orbax; and what is
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx

from porter.base import package
from porter.base.errors import NotInstalled, UsageError
from porter.frameworks.flax import destination as framework
from porter.frameworks.flax.code import model_source
from porter.frameworks.flax.compiler import QUICKLY
from porter.graph import Graph
from porter.graph.plan import make_plan
from porter.padding import ANY
from porter.recipe import expand
from tests.support.frameworks.every_op import images, tensors_of
from tests.support.frameworks.flax.generated import expect_the_same_program, loaded
from tests.support.frameworks.small_variants import small
from tests.support.frameworks.torch.classic_graphs import convnext, mobilenet_v3
from tests.support.frameworks.torch.generated import expect_formatted
from tests.support.frameworks.torch.graphs import inception, resnet_v2, small_mobilenet
from tests.support.recipe.recipes import all_recipes
from tests.unit.frameworks.torch.test_code_random import random_graph, random_rows

GRAPH = resnet_v2((1, 1))
PLAN, TENSORS = make_plan(GRAPH, ANY, framework.CAPABILITIES), tensors_of(GRAPH)
IMAGES = jnp.asarray(images((33, 32)).transpose(0, 2, 3, 1), "float32")


def test_a_depthwise_convolution_is_compiled_as_one_where_the_map_is_smaller_than_the_kernel() -> None:
    with jax.enable_x64():
        layer = nnx.Conv(8, 8, (5, 5), feature_group_count=8, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
        call = jax.jit(lambda x: layer(x), compiler_options=QUICKLY)
        program = str(call.lower(jnp.ones((1, 2, 3, 8), jnp.float64)).compile().as_text())
    assert "convolution(" in program and "feature_group_count=8" in program


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("port")
    framework.write(folder, PLAN, TENSORS, {}, "float32", {})
    return folder


@pytest.fixture(scope="module", params=[pytest.param("built", marks=pytest.mark.full), "model.py"])
def model(request: pytest.FixtureRequest, folder: Path) -> Any:
    """The module that porter builds, and the one of model.py."""
    return (
        loaded(folder)
        if request.param == "model.py"
        else framework.ENGINE.build(PLAN, TENSORS, {}, "float32")
    )


@pytest.mark.parametrize(
    "make",
    [resnet_v2, mobilenet_v3, *(partial(random_graph, seed) for seed in range(6)), partial(random_rows, 3)],
)
def test_model_py_and_the_built_module_agree(make: Callable[[], Graph]) -> None:
    expect_the_same_program(make_plan(make(), ANY, framework.CAPABILITIES))


@pytest.mark.full
@pytest.mark.parametrize("architecture", [recipe.architecture for recipe in all_recipes()])
def test_model_py_of_recipes_and_the_built_module_agree(architecture: str) -> None:
    for member in small(next(recipe for recipe in all_recipes() if recipe.architecture == architecture)):
        expect_the_same_program(make_plan(expand(member), member.native_size(), framework.CAPABILITIES))


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
                'nnx.avg_pool(x, (3, 3), strides=(1, 1), padding="SAME", count_include_pad=False)',
            ],
        ),
    ],
)
def test_model_py_is_written_as_a_person_would(
    make: Callable[[], Graph], lines: list[str], tmp_path: Path
) -> None:
    """Units are classes, repeats are lists, SAME is SAME; and ruff would lay it out so."""
    text = model_source(make_plan(make(), ANY, framework.CAPABILITIES))
    (tmp_path / "model.py").write_text(text)
    assert [line for line in lines if line not in text] == []
    expect_formatted(tmp_path / "model.py")


def test_jit_vmap_and_grad(model: Any) -> None:
    def total(model: nnx.Module, images: jnp.ndarray) -> Any:
        return nnx.vmap(lambda model, image: model(image[None])[0], in_axes=(None, 0))(model, images).sum()

    found, gradients = nnx.jit(nnx.value_and_grad(total))(model, IMAGES)
    assert np.allclose(found, nnx.jit(lambda model, x: model(x))(model, IMAGES).sum(), rtol=1e-4)
    assert all(
        (value[...] != 0).any() for path, value in nnx.to_flat_state(gradients) if path[-1] == "kernel"
    )


def test_orbax_saves_and_restores(model: Any, folder: Path, tmp_path: Path) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "saved", nnx.state(model))
        checkpointer.wait_until_finished()
        graph, empty = nnx.split(nnx.eval_shape(lambda: loaded(folder)))
        restored = nnx.merge(graph, checkpointer.restore(tmp_path / "saved", empty))
    for path, value in nnx.to_flat_state(nnx.state(model)):
        assert np.array_equal(value, dict(nnx.to_flat_state(nnx.state(restored)))[path])


def test_other_inputs_are_refused(model: Any) -> None:
    fixed = framework.ENGINE.build(make_plan(GRAPH, (33, 32), framework.CAPABILITIES), TENSORS, {}, "float32")
    with pytest.raises(UsageError, match="N x H x W x 3, got 2 x 32 x 33 x 1"):
        fixed(jnp.zeros((2, 32, 33, 1)))


def test_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match="jax is not installed"):
        framework.ENGINE.build(PLAN, TENSORS, {}, "float32")
