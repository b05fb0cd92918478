"""What tells and what does not: values that vary anywhere tell, wherever the cells lie that do not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.graph import Graph, Identity, Node
from porter.verification.evidence import LEAST, Samples, tells_nothing_because
from tests.support.arrays import Array

OF_ONE = Graph((Node("y", Identity(), ("input",)),), 3, "y")


def between(period: int, first: int, shape: tuple[int, ...]) -> Array:
    """Numbers that vary in every so manieth cell of rows and columns, and are one number in the others."""
    found = np.ones(shape)
    cells: tuple[Any, ...] = (..., *(slice(first, None, period),) * (len(shape) - 2))
    varying = found[cells]
    varying += np.random.default_rng(0).standard_normal(varying.shape)
    return found


@pytest.mark.parametrize("period", [2, 3, 4, 8])
@pytest.mark.parametrize("shape", [(2, 6, 130, 128), (2, 512, 32, 32), (2, 4096, 16, 16)])
def test_values_that_vary_in_some_cells_only_are_seen_to_vary(period: int, shape: tuple[int, ...]) -> None:
    for first in (0, 1):
        samples = Samples()
        samples.add(between(period, first, shape))
        assert samples.variation > 0.01, first


def test_values_that_are_the_same_everywhere_do_not_vary() -> None:
    samples = Samples()
    samples.add(np.full((2, 6, 130, 128), 3.7))
    assert samples.variation < LEAST


def test_an_output_is_not_saturated_because_its_even_places_are() -> None:
    values = np.ones((2, 1 << 17))
    values[:, 1::2] = np.random.default_rng(0).random((2, 1 << 16))
    assert tells_nothing_because(OF_ONE, "y", {"y": 1.0}, values) is None
    values[:, 1::2] = 0
    assert tells_nothing_because(OF_ONE, "y", {"y": 1.0}, values) == "is saturated: it has two numbers only"


@pytest.mark.usefixtures("one_recipe")
def test_a_transposed_convolution_with_a_dilation_is_proved(tmp_path: Path) -> None:
    """Of stride and dilation 2, it gives its bias only in three of four cells."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.ConvTranspose2d(3, 6, 3, stride=2, dilation=2, padding=1, output_padding=1).eval()
    torch.export.save(torch.export.export(model, (torch.zeros(1, 3, 64, 64),)), tmp_path / "net.pt2")
    made = porter.convert(tmp_path / "net.pt2", to="torch", out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.proof.proves
