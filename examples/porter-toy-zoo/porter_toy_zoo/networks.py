"""The zoo's own code. torch is imported where a network is built."""

from __future__ import annotations

from typing import Any

from porter.base.dtypes import NamedArrays
from porter.zoos.added import AddedZoo
from porter.zoos.implementation import BuildRequest, Implementation, expect_usual


def toynet(classes: int) -> Any:
    """Return the network, as the zoo publishes it."""
    from torch import nn

    class Toynet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm = nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16)
            self.pool, self.body = nn.MaxPool2d(3, 2, 1), nn.Conv2d(16, 32, 3, padding=1)
            self.head = nn.Linear(32, classes)

        def forward(self, x: Any) -> Any:
            x = self.pool(self.norm(self.stem(x)).relu())
            return self.head(self.body(x).relu().mean((2, 3)))

    return Toynet()


def _loaded(model: Any, tensors: NamedArrays, dtype: str) -> Any:
    import torch

    model.load_state_dict(
        {name: torch.from_numpy(array.copy()) for name, array in tensors.items()}, strict=False
    )
    return model.to(getattr(torch, dtype)).eval()


def build(request: BuildRequest) -> Any:
    """Build the zoo's own model: see porter.zoos.implementation.Build."""
    expect_usual("the toy zoo's network", request.options.keys())
    return _loaded(toynet(request.classes), request.checkpoint.tensors, request.dtype)


ZOO = AddedZoo("torch", ("toynet",), Implementation(build, runs_at_any_size=lambda variant: True))
