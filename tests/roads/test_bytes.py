"""A network whose image has bytes is ported for real numbers, if all that it computes is of real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import porter
from porter.base.errors import PorterError
from tests.support.formats.torch_export.exports import export
from tests.support.torch_onnx import export_to_onnx

Begin = Callable[[torch.Tensor], torch.Tensor]
MEAN = torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)
BEGINNINGS: dict[str, Begin] = {
    "a cast": lambda x: x.float(),
    "a cast and a protocol": lambda x: (x.to(torch.float32) / 255 - MEAN) / 0.25,
    "a quotient": lambda x: x / 255,
    "a turn before the cast": lambda x: x.transpose(2, 3).float() / 255,
}


class Net(nn.Module):
    def __init__(self, begin: Begin) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head, self.begin = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8, 5), begin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.conv(self.begin(x)).relu().mean((2, 3)))
        return found


def written(net: Net, image: torch.Tensor, folder: Path, form: str) -> Path:
    if form == "pt2":
        return export(net, image, folder)[0]
    export_to_onnx(net, (image,), folder / "net.onnx", dynamo=False)
    return folder / "net.onnx"


@pytest.mark.filterwarnings("ignore:.*treespec")
@pytest.mark.parametrize("form", ["pt2", "onnx"])
@pytest.mark.parametrize("name", BEGINNINGS)
def test_a_port_takes_the_same_numbers_as_real_ones(name: str, form: str, tmp_path: Path) -> None:
    net = Net(BEGINNINGS[name]).eval()
    image = torch.randint(0, 256, (1, 3, 20, 24), dtype=torch.uint8)
    made = porter.convert(written(net, image, tmp_path, form), to="torch", out=tmp_path / "port")
    assert made.proof is not None and made.proof.ok
    with torch.no_grad():
        found, wanted = made.model()(image.float()), net(image)
    assert torch.allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*treespec")
@pytest.mark.parametrize("form", ["pt2", "onnx"])
def test_arithmetic_of_bytes_is_refused(form: str, tmp_path: Path) -> None:
    """Twice 200 is 144 there."""
    net = Net(lambda x: (x * 2).float()).eval()
    image = torch.randint(0, 256, (1, 3, 20, 24), dtype=torch.uint8)
    said = r"whole numbers( of its input 'x'|, with which the model computes)"
    with pytest.raises(PorterError, match=said):
        porter.convert(written(net, image, tmp_path, form), to="torch", out=tmp_path / "port")
