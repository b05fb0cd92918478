"""Mistakes in how a port is said in MLX, and of MLX itself: each is refused, at the layer that has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
import torch

import porter
from porter.frameworks.code.plan_layers import Layer
from porter.frameworks.mlx import graph_module
from porter.frameworks.mlx.code import PORTS
from porter.port import StoredPort
from porter.source.reopening import reopen_source
from porter.verification.check import Check
from porter.verification.proving import prove_against
from porter.verification.verdict import Verdict

SIZE = (16, 15)
Patch = pytest.MonkeyPatch


class Net(torch.nn.Module):
    """Convolutions with and without groups, pads on one side, a pool that pads, and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.deep = torch.nn.Conv2d(3, 6, 3), torch.nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.norm, self.pool = torch.nn.BatchNorm2d(6), torch.nn.MaxPool2d(3, 2, 1)
        self.last = torch.nn.Conv2d(12, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.conv(torch.nn.functional.pad(x, (0, 1, 0, 1)))
        other = torch.nn.functional.gelu(self.norm(self.deep(one)))
        given: torch.Tensor = self.last(self.pool(torch.cat([one, other], 1)))
        return given


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[StoredPort, Path]:
    folder = tmp_path_factory.mktemp("planted")
    exported = torch.export.export(Net().eval(), (torch.zeros(1, 3, *SIZE),))
    torch.export.save(exported, folder / "net.pt2")
    return porter.convert(
        folder / "net.pt2", to="mlx", out=folder / "port", check=False
    ).port, folder / "net.pt2"


def proved(made: tuple[StoredPort, Path]) -> Verdict:
    port, file = made
    verdict, _ = prove_against(Check(port), reopen_source(port, file, None))
    return verdict


def _wrong_pad(patch: Patch) -> None:
    right = mx.pad

    def pad(x: Any, pad_width: Any, **own: Any) -> Any:
        return right(x, [ends[::-1] for ends in pad_width], **own)

    patch.setattr(mx, "pad", pad)


def _dropped_bias(patch: Patch) -> None:
    right = nn.Conv2d.__call__
    patch.setattr(nn.Conv2d, "__call__", lambda self, x: right(self, x) - self.get("bias", 0))


def _swapped_wire(patch: Patch) -> None:
    right = graph_module._function

    def function(layer: Layer) -> Callable[..., Any]:
        found = right(layer)
        return (lambda *values: found(*values[::-1])) if layer.kind == "concat" else found

    patch.setattr(graph_module, "_function", function)


def _transposed_twice(patch: Patch) -> None:
    right = PORTS.stored

    def stored(graph: Any, node: Any, role: str, array: Any) -> Any:
        found = right(graph, node, role, array)
        return found.swapaxes(1, 2) if found.ndim == 4 else found

    patch.setattr(graph_module, "PORTS", replace(PORTS, stored=stored))


def _zeros_in_pads(patch: Patch) -> None:
    right = mx.pad
    patch.setattr(mx, "pad", lambda x, pad_width, constant_values=0: right(x, pad_width))


def _wrong_groups(patch: Patch) -> None:
    """Of MLX's own, which float64 does not run."""
    right = mx.conv2d

    def conv2d(x: Any, weight: Any, *settings: Any) -> Any:
        return right(x, weight[:, ::-1] if settings[-1] > 1 else weight, *settings)

    patch.setattr(mx, "conv2d", conv2d)


def _rough_activation(patch: Patch) -> None:
    patch.setattr(mx, "erf", lambda x: mx.tanh(1.1283792 * x + 0.1009 * x**3))


PLANTED = {
    "a wrong pad": (_wrong_pad, "conv"),
    "a dropped bias": (_dropped_bias, "conv"),
    "a swapped wire": (_swapped_wire, "cat"),
    "a kernel transposed twice": (_transposed_twice, "conv"),
    "pads of zeros": (_zeros_in_pads, "pool"),
}
OF_MLX = {"groups": (_wrong_groups, "deep"), "an activation": (_rough_activation, "gelu")}


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize(
    ("plant", "path", "of_mlx"),
    [
        *(pytest.param(*case, False, id=name) for name, case in PLANTED.items()),
        *(pytest.param(*case, True, id=f"{name} of MLX") for name, case in OF_MLX.items()),
    ],
)
def test_a_mistake_is_refused_at_its_layer(
    plant: Callable[[Patch], None],
    path: str,
    of_mlx: bool,
    made: tuple[StoredPort, Path],
    monkeypatch: Patch,
) -> None:
    """One of MLX itself shows in float32 only, because porter runs other operations in float64."""
    plant(monkeypatch)
    verdict = proved(made)
    parities = {parity.dtype: parity for parity in verdict.parities}
    wrong = parities["float32" if of_mlx else "float64"]
    assert not verdict.ok and parities["float64"].ok is of_mlx
    assert wrong.first_bad is not None and path in wrong.first_bad.path


@pytest.mark.usefixtures("one_recipe")
def test_without_one_it_is_proved_in_both(made: tuple[StoredPort, Path]) -> None:
    verdict = proved(made)
    assert verdict.ok and {parity.dtype for parity in verdict.parities} == {"float32", "float64"}
    for parity in verdict.parities:
        assert parity.cut is not None and not parity.cut.inside, parity.dtype
        assert parity.limit == (1e-10 if parity.dtype == "float64" else 1e-5)
