"""The road in Python closes: a model becomes a port, the port's own model is trained, and what it is then
becomes a port again, in every framework that trains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import porter

pytestmark = pytest.mark.usefixtures("in_double")

SIDE = 16
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(6, 1, SIDE, SIDE)).astype(np.float32)
CLASSES = np.arange(6) % 3
LAST = IMAGES.transpose(0, 2, 3, 1)


class Net(nn.Module):
    """Of images with one channel, with a norm and a dropout, and with a map beside its classes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(1, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6)
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(6, 3)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        maps = torch.relu(self.norm(self.conv(images)))
        return self.head(self.drop(maps.mean((2, 3)))), maps


def _in_torch(model: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    loss = nn.functional.cross_entropy(model.train()(torch.from_numpy(IMAGES))[0], torch.from_numpy(CLASSES))
    loss.backward()
    optimizer.step()
    model.eval()


def _in_keras(model: Any) -> None:
    import keras

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.5), loss=[loss, None])
    model.fit(LAST, [CLASSES, CLASSES], batch_size=len(LAST), epochs=1, verbose=0)


def _in_flax(model: Any) -> None:
    import jax
    import jax.numpy as jnp
    from flax import nnx

    def loss(model: Any) -> Any:
        return -jax.nn.log_softmax(model(jnp.asarray(LAST))[0])[jnp.arange(len(LAST)), CLASSES].mean()

    model.train()
    gradients = nnx.grad(loss)(model)
    nnx.update(model, jax.tree.map(lambda own, by: own - 0.5 * by, nnx.state(model, nnx.Param), gradients))
    model.eval()


TRAINED: Mapping[str, Callable[[Any], None]] = {"torch": _in_torch, "tf": _in_keras, "flax": _in_flax}


def _given(framework: str, model: Any) -> list[Any]:
    """The classes, and the maps N x C x H x W."""
    with torch.no_grad():
        images = (
            torch.from_numpy(IMAGES) if framework == "torch" else LAST if framework in TRAINED else IMAGES
        )
        logits, maps = (np.asarray(each) for each in model(images))
    return [logits, maps.transpose(0, 3, 1, 2) if framework in ("tf", "flax") else maps]


AGAIN = {"torch": "tf", "tf": "torch", "flax": "torch"}
"""In CI, what a model of each framework becomes."""


@pytest.mark.parametrize(
    ("framework", "to"),
    [
        pytest.param(framework, to, marks=() if AGAIN[framework] == to else pytest.mark.full)
        for framework in TRAINED
        for to in ("torch", "tf", "flax", "onnx")
        if to != framework
    ],
)
def test_the_model_of_a_port_is_trained_and_becomes_a_port_again(framework: str, to: str) -> None:
    port = porter.convert(Net().eval(), to=framework, input_size=SIDE, keep_dropout=True, check=False)
    model = port.model()
    before = _given(framework, model)
    TRAINED[framework](model)
    wanted = _given(framework, model)
    assert all(abs(one - other).max() > 1e-3 for one, other in zip(before, wanted, strict=True))
    again = porter.convert(model, to=to)  # it knows its channels and its size
    assert again.proof is not None and again.proof.ok
    assert again.port.record.input.native_size == (SIDE, SIDE) and again.port.graph.channels == 1
    for one, other in zip(wanted, _given(to, again.model()), strict=True):
        assert np.allclose(one, other, rtol=0, atol=1e-5), to
