"""Ports for Flax as people use them: jit, vmap and grad; and orbax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx

from porter.frameworks.flax import QUICKLY
from porter.frameworks.flax.destination import DESTINATION as framework
from porter.graph.plan import make_plan
from porter.padding import ANY
from tests.support.frameworks.every_op import images, tensors_of
from tests.support.frameworks.flax.generated import loaded
from tests.support.frameworks.torch.graphs import resnet_v2

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
