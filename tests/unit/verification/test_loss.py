"""What the rounding of a converted port's weights is said to do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porter

NOTHING = "the converter rounded no weights: it leaves tensors of fewer than 1,024 numbers in float32"


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize(
    ("how", "said"),
    [({"quantize": "dynamic"}, NOTHING), ({"dtype": "float16"}, "the rounding moves the output")],
)
def test_where_nothing_moves_the_reason_is_that_of_the_type(how: dict[str, str], said: str) -> None:
    """The weights are small, and exact in half precision."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    module = nn.Sequential(*layers).eval().half().float()
    verdict = porter.convert(module, to="tflite", input_size=32, **how).verdict  # type: ignore[arg-type]
    assert verdict is not None and verdict.rounding is not None and verdict.rounding.startswith(said)
