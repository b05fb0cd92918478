"""Heads that are a convolution before a pool, as SqueezeNet's, in files of weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import porter
from porter.base.errors import MappingError
from porter.zoos.torchvision import import_models
from tests.support.standin import smooth_images

CLASSES, SIZE = 7, (64, 65)
HEADS: dict[str, tuple[Callable[[], nn.Module], str | None]] = {
    "own": (
        lambda: nn.Sequential(nn.Dropout(), nn.Conv2d(512, CLASSES, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        None,
    ),
    "elsewhere": (
        lambda: nn.Sequential(nn.Conv2d(512, CLASSES, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        "classifier.0=head/logits",
    ),
    "none": (lambda: nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(1)), None),
    "dense": (
        lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES)),
        "classifier.2=head/logits",
    ),
    "dense in its place": (
        lambda: nn.Sequential(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), nn.Linear(512, CLASSES)),
        "classifier.1=head/logits",
    ),
}
LATER = ("own", "none", "dense")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] if name in LATER else []) for name in HEADS]
)
def test_a_head_of_ones_own_is_that_or_is_asked_for(name: str, tmp_path: Path) -> None:
    head, setting = HEADS[name]
    torch.manual_seed(0)
    model = import_models().squeezenet1_1().eval()
    model.classifier = head().eval()
    torch.save(model.state_dict(), tmp_path / "own.pth")

    def ported(*mapped: str) -> porter.Ported:
        files: dict[str, Any] = {"weights": tmp_path / "own.pth", "out": tmp_path / "port", "overwrite": True}
        return porter.convert(
            "squeezenet1_1", "torchvision", "torch", input_size="64x65", mapped=mapped, **files
        )

    if setting:
        with pytest.raises(MappingError, match=r"where it has 'classifier\.\d'") as caught:
            ported()
        assert caught.value.maps == (setting,)
    made = ported(*([setting] if setting else []))
    assert made.verdict is not None and made.verdict.proof.proves
    images = smooth_images(3, SIZE, 1)
    with torch.no_grad():
        wanted = model(torch.from_numpy(images)).numpy()
        got = made.port.build()(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)
