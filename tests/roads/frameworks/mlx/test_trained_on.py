"""A port for MLX is trained on and saved, and porter ports what was saved."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest
import torch

import porter
from porter.base.errors import MappingError, UsageError
from tests.support.frameworks.mlx.generated import loaded

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(6, 16, 16, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> porter.Port:
    torch.manual_seed(0)
    unit = [
        torch.nn.Sequential(
            torch.nn.Conv2d(8, 8, 3, padding=1, groups=groups), torch.nn.BatchNorm2d(8), torch.nn.ReLU()
        )
        for groups in (1, 8)
    ]
    up = torch.nn.ConvTranspose2d(8, 6, 3, stride=2, groups=2)
    ends = torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Dropout(0.1), torch.nn.Linear(6, 5)
    )
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=2, padding=1), *unit, up, ends).eval()
    folder = tmp_path_factory.mktemp("port") / "port"
    return porter.convert(model, to="mlx", input_size=16, out=folder, check=False, keep_dropout=True)


@pytest.fixture(scope="module", params=["built", "model.py"])
def trained(request: pytest.FixtureRequest, port: porter.Port) -> Any:
    """After three steps."""
    with mx.stream(mx.cpu):
        model: Any = loaded(port.folder) if request.param == "model.py" else porter.load(port)
        optimizer = optim.SGD(learning_rate=0.1)

        def loss(x: mx.array) -> mx.array:
            return nn.losses.cross_entropy(model(x), mx.arange(6) % 5).mean()

        step = nn.value_and_grad(model.train(), loss)
        for _ in range(3):
            _, gradients = step(mx.array(IMAGES))
            optimizer.update(model, gradients)
            mx.eval(model.parameters(), optimizer.state)
    return model.eval()


@pytest.mark.parametrize("file", ["tuned.safetensors", "tuned.npz"])
def test_what_was_trained_on_is_ported(file: str, port: porter.Port, trained: Any, tmp_path: Path) -> None:
    trained.save_weights(str(tmp_path / file))
    home = porter.convert(port, weights=tmp_path / file, to="torch", out=tmp_path / "home")
    assert home.proof is not None and home.proof.ok
    with torch.no_grad():
        found = porter.load(home)(torch.from_numpy(IMAGES.transpose(0, 3, 1, 2))).numpy()
    with mx.stream(mx.cpu):
        own, before = (np.array(model(mx.array(IMAGES))) for model in (trained, porter.load(port)))
    assert np.linalg.norm(found - own) < 1e-5 * np.linalg.norm(own)
    assert np.linalg.norm(before - own) > 1e-2 * np.linalg.norm(own)


def test_tensors_of_torch_are_those_of_a_port_to_torch(port: porter.Port, tmp_path: Path) -> None:
    twin = porter.convert(port, to="torch", out=tmp_path / "torch", check=False)
    torch.save(porter.load(twin).state_dict(), tmp_path / "tuned.pth")
    home = porter.convert(port, weights=tmp_path / "tuned.pth", to="mlx", out=tmp_path / "home", check=False)
    one, other = (np.array(porter.load(each)(IMAGES)) for each in (port, home))
    assert np.array_equal(one, other)


def test_what_is_refused(port: porter.Port, trained: Any, tmp_path: Path) -> None:
    trained.save_weights(str(port.folder.parent / "tuned.safetensors"))
    assert porter.inspect(port.folder.parent / "tuned.safetensors").tuned == port.folder
    convert = partial(porter.convert, to="torch", out=tmp_path / "home")
    nn.Linear(2, 3).save_weights(str(tmp_path / "other.safetensors"))
    with pytest.raises(MappingError, match=r"these are not the tensors of port.*save_weights"):
        convert(port, weights=tmp_path / "other.safetensors")
    with pytest.raises(UsageError, match=r"object of GraphModule.*save_weights"):
        convert(trained if hasattr(trained, "program") else porter.load(port))
