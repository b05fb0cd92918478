"""A port for Flax is trained on and saved, and porter ports what was saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
import torch
from flax import nnx
from safetensors.flax import save_file

import porter
from porter.base.errors import MappingError

pytestmark = pytest.mark.usefixtures("in_double")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> porter.Port:
    torch.manual_seed(0)
    unit = [
        torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
        for _ in range(2)
    ]
    ends = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 5))
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=2, padding=1), *unit, ends).eval()
    folder = tmp_path_factory.mktemp("port") / "port"
    return porter.convert(model, to="flax", input_size=16, out=folder, check=False)


@pytest.fixture(scope="module")
def trained(port: porter.Port) -> Any:
    model: Any = porter.load(port)

    def loss(model: nnx.Module) -> jnp.ndarray:
        return (model(jnp.ones((2, 16, 16, 3))) ** 2).sum()

    steps = nnx.grad(loss)(model)
    nnx.update(
        model, jax.tree.map(lambda value, step: value - 0.1 * step, nnx.state(model, nnx.Param), steps)
    )
    return model


def save_by_orbax(model: nnx.Module, place: Path) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(place, nnx.state(model))


def save_as_safetensors(model: nnx.Module, place: Path) -> None:
    save_file(
        {".".join(map(str, path)): value[...] for path, value in nnx.to_flat_state(nnx.state(model))}, place
    )


@pytest.mark.parametrize("save", [save_by_orbax, save_as_safetensors])
def test_what_was_trained_on_is_ported(
    save: Callable[[nnx.Module, Path], None], port: porter.Port, trained: nnx.Module, tmp_path: Path
) -> None:
    save(trained, tmp_path / "tuned")
    home = porter.convert(port, weights=tmp_path / "tuned", to="torch", out=tmp_path / "home")
    assert home.proof is not None and home.proof.ok
    images = np.random.default_rng(0).normal(size=(2, 3, 16, 16)).astype(np.float32)
    with torch.no_grad():
        found = porter.load(home)(torch.from_numpy(images)).numpy()
    own = np.asarray(trained(jnp.asarray(images.transpose(0, 2, 3, 1))))
    assert np.linalg.norm(found - own) < 1e-5 * np.linalg.norm(own)
    assert (
        np.linalg.norm(np.asarray(porter.load(port)(jnp.asarray(images.transpose(0, 2, 3, 1)))) - own) > 1e-3
    )


def test_another_tree_is_refused_and_inspect_finds_the_port(
    port: porter.Port, trained: nnx.Module, tmp_path: Path
) -> None:
    save_by_orbax(trained, port.folder.parent / "tuned")
    assert porter.inspect(port.folder.parent / "tuned").tuned == port.folder
    save_by_orbax(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), tmp_path / "other")
    with pytest.raises(MappingError, match=r"these are not the tensors of port.*nnx\.state"):
        porter.convert(port, weights=tmp_path / "other", to="torch", out=tmp_path / "home")
