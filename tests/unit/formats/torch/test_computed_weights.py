"""Weights that torch computes from others: what porter reads is what the module uses in evaluation, or one
error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import utils
from torch.nn.utils import parametrizations, prune

from porter.formats.reading import read_checkpoint
from tests.support.arrays import Array
from tests.support.refusals import unreadable

CASES: dict[str, tuple[Callable[..., Any], nn.Module, dict[str, Any]]] = {
    "weight norm": (utils.weight_norm, nn.Conv2d(3, 4, 3), {}),
    "weight norm of the second axis": (utils.weight_norm, nn.ConvTranspose2d(4, 4, 3), {"dim": 1}),
    "weight norm of all": (utils.weight_norm, nn.Linear(3, 4), {"dim": None}),
    "weight norm of one filter": (utils.weight_norm, nn.Conv2d(3, 1, 3), {}),
    "parametrized weight norm": (parametrizations.weight_norm, nn.Conv2d(3, 4, 3), {}),
    "parametrized weight norm of all": (parametrizations.weight_norm, nn.Conv2d(3, 4, 3), {"dim": None}),
    "spectral norm": (utils.spectral_norm, nn.Conv2d(3, 4, 3), {}),
    "spectral norm, transposed": (utils.spectral_norm, nn.ConvTranspose2d(3, 4, 3), {}),
    "spectral norm of a batch norm": (utils.spectral_norm, nn.BatchNorm2d(4), {}),
    "parametrized spectral norm": (parametrizations.spectral_norm, nn.Linear(4, 4), {}),
    "parametrized spectral norm, square": (parametrizations.spectral_norm, nn.Conv2d(4, 4, 3), {}),
    "parametrized spectral norm, transposed and square": (
        parametrizations.spectral_norm,
        nn.ConvTranspose2d(4, 4, 3),
        {},
    ),
    "pruning": (prune.l1_unstructured, nn.Conv2d(3, 4, 3), {"name": "weight", "amount": 0.4}),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("case", CASES)
def test_the_weight_of_the_module(case: str, suffix: str, tmp_path: Path) -> None:
    way, plain, options = CASES[case]
    torch.manual_seed(0)
    with torch.no_grad():
        model: Any = nn.Sequential(type(plain)(*_sizes(plain))).double()
        way(model[0], **options)
        # As training moves weights after the last step of a power method.
        for parameter in model.parameters():
            parameter *= 1 + 0.2 * torch.rand_like(parameter)
        shape = (2, model[0].weight.shape[isinstance(plain, nn.Conv2d | nn.Linear)], 5, 5)
        model.eval()(torch.zeros(shape[:2] if isinstance(plain, nn.Linear) else shape).double())
    path = tmp_path / f"model{suffix}"
    torch.save(model.state_dict(), path) if suffix == ".pth" else save_file(model.state_dict(), path)
    found = read_checkpoint(path)
    weight: Array = found.tensors["0.weight"]
    np.testing.assert_allclose(weight, model[0].weight.detach().numpy(), 1e-12)
    assert {name.rpartition(".")[2] for name in found.tensors} <= {
        "weight",
        "bias",
        *dict(plain.named_buffers()),
    }
    assert found.notes == (f"'0.weight' computed by {next(what for what in NAMES if what in case)}",)


NAMES = ("weight norm", "spectral norm", "pruning")


def _sizes(module: Any) -> tuple[int, ...]:
    if isinstance(module, nn.BatchNorm2d):
        return (module.num_features,)
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    return module.in_channels, module.out_channels, 3


def test_weights_that_are_plain_beside_or_computed_in_two_ways_stay(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        twice = parametrizations.spectral_norm(parametrizations.weight_norm(nn.Conv2d(3, 4, 3)))
    zeros = torch.zeros(2, 2)
    for state in (
        twice.state_dict(),
        {"weight": zeros, "weight_orig": zeros, "weight_mask": zeros},
        {"a_g": zeros, "a_v": zeros},
    ):
        torch.save(state, tmp_path / "a.pth")
        assert read_checkpoint(tmp_path / "a.pth").tensors.keys() == state.keys()


DAMAGED: dict[str, dict[str, tuple[int, ...]]] = {
    "weight norm, from tensors that do not fit each other: g float32 (3, 1), v float32 (4, 3)": {
        "g": (3, 1),
        "v": (4, 3),
    },
    "g float32 (4, 3), v float32 (4, 3)": {"g": (4, 3), "v": (4, 3)},
    "g float32 (4,), v": {"g": (4,), "v": (4, 3)},
    "g float32 (1, 1), v": {"g": (1, 1), "v": (4, 3)},
    "spectral norm, from tensors that do not fit": {"orig": (4, 3), "u": (3,), "v": (4,)},
    "u float32 (4, 1)": {"orig": (4, 3), "u": (4, 1), "v": (3,)},
    "orig float32 (), u": {"orig": (), "u": (), "v": ()},
    "pruning, from tensors that do not fit": {"orig": (4, 3), "mask": (4, 1)},
}


@pytest.mark.parametrize("words", DAMAGED)
def test_tensors_that_do_not_fit_are_one_error(words: str, tmp_path: Path) -> None:
    torch.save(
        {f"conv.weight_{part}": torch.ones(shape) for part, shape in DAMAGED[words].items()},
        tmp_path / "a.pth",
    )
    unreadable(tmp_path / "a.pth", "'conv.weight' is computed by", words)
