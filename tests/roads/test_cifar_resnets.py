"""CIFAR's ResNets, from torch to tf and from tf to torch, against code of each framework that knows nothing
of the recipe.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

import porter
from porter.recipe import find_recipe
from tests.support import cifar_resnets
from tests.support.weights_files import published_like

pytestmark = pytest.mark.full


@pytest.mark.parametrize("variant", find_recipe("resnet_cifar").variants)
def test_both_directions(variant: str, tmp_path: Path) -> None:
    weights = published_like(tmp_path, variant, "akamaster")
    network = getattr(cifar_resnets, variant)()
    network.load_state_dict(torch.load(weights, weights_only=True))
    file = tmp_path / "own.keras"
    cifar_resnets.keras_model(network).save(file)
    references = (f"{cifar_resnets.__file__}:{variant}", str(file))
    for place, (framework, reference) in enumerate(product(("tf", "torch"), references)):
        settings: dict[str, Any] = {"weights": weights, "reference": reference, "out": tmp_path / str(place)}
        expect_proved(porter.convert(variant, "akamaster", framework, **settings))
    expect_proved(porter.convert(file, to="torch", input_size="32", out=tmp_path / "own"))


def expect_proved(made: porter.Ported) -> None:
    record: Any = made.record()
    assert record["check"] == "passed"
    assert record["parity"]["dtype"] == "float64" and record["parity"]["logits"]["rel_l2"] <= 1e-10
