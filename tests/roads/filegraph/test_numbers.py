"""Models that give one number of each image: their port does too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import porter
from porter.base.errors import GraphError

PROTOCOL = "resize=squash,size=12,interpolation=pil_bilinear,divide=255"


class Squeezed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.dense = nn.Conv2d(3, 8, 3), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(torch.relu(self.conv(x)).mean((2, 3))).squeeze(1)


class Mean(Squeezed):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x)).mean((1, 2, 3))


class Pair(Squeezed):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        whole = self.dense(torch.relu(self.conv(x)).mean((2, 3)))
        return whole, whole[:, 0]


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("make", [Squeezed, Mean, Pair])
@pytest.mark.parametrize("to", ["torch", "tf", "onnx", "caffe", "mxnet"])
def test_a_number_of_each_image_has_no_further_axis(
    make: Callable[[], nn.Module], to: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    network, image = make().eval(), torch.randn(3, 3, 12, 13)
    torch.export.save(torch.export.export(network, (image,)), tmp_path / "model.pt2")
    if make is Mean and to == "caffe":
        with pytest.raises(GraphError, match='to="onnx"'):
            porter.convert(tmp_path / "model.pt2", to=to, out=tmp_path / "port")
        return
    made = porter.convert(tmp_path / "model.pt2", to=to, out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.proof.proves
    model = porter.load(tmp_path / "port")
    given: Any = image if to == "torch" else image.numpy()
    found = model(given.transpose(0, 2, 3, 1) if to == "tf" else given)
    wanted = network(image)
    pairs = zip(found, wanted, strict=True) if make is Pair else [(found, wanted)]
    for ours, theirs in pairs:
        as_array = ours.detach() if to == "torch" else ours
        np.testing.assert_allclose(
            np.asarray(as_array), theirs.detach().numpy(), rtol=1e-4, atol=1e-6, strict=True
        )


class Sure(Squeezed):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(super().forward(x))


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("make", [Squeezed, Sure])
@pytest.mark.parametrize("to", ["torch", "tf", "onnx", "caffe", "mxnet"])
def test_a_number_of_each_image_is_one_class(make: Callable[[], nn.Module], to: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = make().eval()
    torch.export.save(torch.export.export(network, (torch.randn(3, 3, 12, 12),)), tmp_path / "model.pt2")
    made = porter.convert(tmp_path / "model.pt2", to=to, out=tmp_path / "port", preprocess=PROTOCOL)
    assert made.verdict is not None and made.verdict.proof.proves
    assert (made.port.record.classes, made.port.record.activation) == (1, "sigmoid" if make is Sure else None)
    pixels = np.random.default_rng(0).integers(0, 256, (12, 12, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    (seen,) = porter.predict(tmp_path / "port", tmp_path / "photo.png")
    (wanted,) = network(torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255).detach()
    got = seen.top5[0].probability if make is Sure else seen.top5[0].logit
    assert got == pytest.approx(float(wanted), rel=1e-5)
