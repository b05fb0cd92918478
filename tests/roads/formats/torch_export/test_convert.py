"""Ports of .pt2 archives: proved against their programs, of the size that they hold for, and by a recipe if
it has their graph.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import porter
from porter.base.errors import CheckFailed, MappingError, UsageError
from porter.filegraph.tensors import resampling
from porter.formats.reading import read_checkpoint
from porter.graph import BatchNorm
from porter.padding import ANY
from tests.support.formats.torch_export.exports import export
from tests.support.torch_onnx import export_to_onnx

pytestmark = [pytest.mark.filterwarnings("ignore:.*treespec"), pytest.mark.usefixtures("in_double")]


class Net(nn.Module):
    """A stem, a block that adds what it takes, and a head. Its pads are right at every size."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.block = nn.ModuleDict({"conv": nn.Conv2d(8, 8, 3, padding=1, groups=2), "act": nn.Hardswish()})
        self.fc = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.block["act"](self.block["conv"](x))
        return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("free", [False, True])
def test_a_port_takes_the_sizes_that_the_program_takes(free: bool, tmp_path: Path) -> None:
    model = Net().eval()
    path = export(model, torch.randn(2, 3, 17, 20), tmp_path, free)[0]
    out = tmp_path / "port"
    made = porter.convert(path, to="torch", out=out, input_size="any" if free else None)
    assert made.verdict is not None and made.verdict.ok
    assert {parity.reference for parity in made.verdict.parities} == {"the file's own graph"}
    assert made.port.record.input.size == (None if free else (17, 20))
    assert [node.op.momentum for node in made.port.graph.nodes if isinstance(node.op, BatchNorm)] == [0.1]
    names = made.port.record.names
    own = [names[node.path] for node in made.port.graph.nodes]
    assert own[:5] == ["stem/layer_0", "stem/layer_1", "stem/layer_2", "block/conv", "block/act"]
    assert own[5:] == ["add", "adaptive_avg_pool2d", "flatten", "fc"]
    image = torch.randn(3, 3, *((33, 18) if free else (17, 20)))
    ported = porter.load(out)(image).detach().numpy()
    np.testing.assert_allclose(ported, model(image).detach().numpy(), rtol=1e-4, atol=1e-6)
    if not free:
        with pytest.raises(UsageError, match="the file works at 17x20 only"):
            porter.convert(path, to="torch", out=tmp_path / "other", input_size="any")


class Standardised(nn.Conv2d):
    """A convolution whose kernel is standardised each time that it runs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.weight.reshape(1, len(self.weight), -1)
        kernel = nn.functional.batch_norm(rows, None, None, training=True, momentum=0.0, eps=1e-6).reshape_as(
            self.weight
        )
        return nn.functional.conv2d(x, kernel, self.bias)


@pytest.mark.usefixtures("one_recipe")
def test_a_kernel_that_a_program_computes_is_proved_before_its_rounding(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Standardised(3, 6, 3), nn.GroupNorm(2, 6), nn.Conv2d(6, 4, 1)).eval()
    path = export(model, torch.randn(2, 3, 9, 8), tmp_path)[0]
    made = porter.convert(path, to="torch", out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.ok
    assert made.port.record.evaluated == ("reshape_as (computed)",) and made.port.record.dtype == "float32"
    assert porter.verify(tmp_path / "port", weights=path, float64=True).ok


class Looks(nn.Module):
    """A model that computes otherwise for images of an odd width, as those do that pad by their input's
    size.
    """

    def __init__(self, looks: Callable[[torch.Tensor], bool]) -> None:
        super().__init__()
        self.conv, self.looks = nn.Conv2d(3, 4, 3, 2), looks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x + 1 if self.looks(x) else x).relu()


LOOKS: dict[str, tuple[Callable[[torch.Tensor], bool], bool]] = {
    "never": (lambda x: True, True),
    "at the width": (lambda x: x.shape[3] % 4 == 0, False),
    "at the height": (lambda x: x.shape[2] > 7, False),
    "at both": (lambda x: x.shape[2] == x.shape[3], False),
    "at what is always so": (lambda x: x.shape[2] + x.shape[3] > 2, True),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_program_that_looked_at_the_size_holds_for_the_traced_one(name: str, tmp_path: Path) -> None:
    looks, free = LOOKS[name]
    graph = read_checkpoint(export(Looks(looks), torch.randn(2, 3, 12, 12), tmp_path, free=True)[0]).graph
    assert graph is not None and (graph.size, graph.traced) == ((ANY, False) if free else ((12, 12), True))


class Nested(nn.Module):
    """A U-Net of one step, which fits even sizes only, and a head that resolves more than its image has."""

    def __init__(self, like: bool) -> None:
        super().__init__()
        self.conv, self.last, self.like = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(7, 4, 1), like

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        to: dict[str, Any] = {"size": x.shape[2:]} if self.like else {"scale_factor": 2}
        wide = nn.functional.interpolate(self.conv(x), mode="bilinear", **to)
        return nn.functional.interpolate(self.last(torch.cat([wide, x], 1)), scale_factor=3.0, mode="bicubic")


class Skips(nn.Module):
    """Two steps down and up, of which each joins maps whose sizes differ where a map has an odd one."""

    def __init__(self, join: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.join, self.pad = join, 0 if join is cropped else 1
        self.down = nn.ModuleList(nn.Conv2d(n, 4, 3, padding=self.pad) for n in (3, 4, 4))
        self.up = nn.ModuleList(nn.ConvTranspose2d(n, 4, 2, 2) for n in (4, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = list[torch.Tensor]()
        for place, conv in enumerate(self.down):
            x = nn.functional.max_pool2d(x, 2) if place else x
            skips.append(x := torch.relu(conv(x)))
        for conv, skip in zip(self.up, skips[-2::-1], strict=True):
            x = conv(x) if self.join in (padded, cropped) else x
            x = torch.cat(self.join(x, skip), 1)
        return x


def padded(x: torch.Tensor, skip: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows, columns = (skip.size(axis) - x.size(axis) for axis in (2, 3))
    pads = [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2]
    return skip, nn.functional.pad(x, pads)


def cropped(x: torch.Tensor, skip: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows, columns = x.shape[2:]
    top, left = (skip.shape[2] - rows) // 2, (skip.shape[3] - columns) // 2
    return skip[:, :, top : top + rows, left : left + columns], x


def nearest(x: torch.Tensor, skip: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return skip, nn.functional.interpolate(x, size=skip.shape[2:])


class Coordinates(nn.Module):
    """Coordinate attention: the means of the rows and of the columns, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.both = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 4, 1)
        self.rows, self.columns = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        means = torch.cat([x.mean(3, keepdim=True), x.mean(2, keepdim=True).permute(0, 1, 3, 2)], 2)
        rows, columns = torch.split(self.both(means).relu(), list(x.shape[2:]), 2)
        return x * self.rows(rows).sigmoid() * self.columns(columns.permute(0, 1, 3, 2)).sigmoid()


FITTED = {
    "a pad": lambda: Skips(padded),
    "a crop": lambda: Skips(cropped),
    "the nearest cells": lambda: Skips(nearest),
    "coordinate attention": Coordinates,
}


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("form", ["pt2", "onnx"])
def test_maps_that_are_made_as_large_as_others_are_so_at_every_size(
    name: str, form: str, tmp_path: Path
) -> None:
    model, image = FITTED[name]().eval(), torch.randn(2, 3, 37, 45)
    if form == "pt2":
        path = export(model, image, tmp_path, free=True)[0]
    else:
        path = tmp_path / "model.onnx"
        axes = {"x": {0: "images", 2: "rows", 3: "columns"}}
        export_to_onnx(model, (image,), path, input_names=["x"], dynamic_axes=axes, dynamo=False)
    made = porter.convert(path, to="torch", out=tmp_path / "port", input_size="any")
    assert made.verdict is not None and made.verdict.ok and made.port.record.input.size is None
    ported = porter.load(tmp_path / "port")
    for rest in range(4):
        x = torch.randn(1, 3, 32 + rest, 34 - rest)
        with torch.no_grad():
            assert torch.allclose(ported(x), model(x), rtol=0, atol=1e-5), x.shape


def test_a_crop_at_the_wrong_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "_side", lambda before, after, half: "end")
    path = export(Skips(cropped).eval(), torch.randn(2, 3, 37, 45), tmp_path, free=True)[0]
    with pytest.raises(CheckFailed, match="slice is the first node that differs"):
        porter.convert(path, to="torch", out=tmp_path / "port", input_size="any")


class Squeezed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.squeeze()


@pytest.mark.parametrize("like", [False, True])
def test_a_program_that_fits_some_sizes_only_holds_at_all_of_them(like: bool, tmp_path: Path) -> None:
    path = export(Nested(like).eval(), torch.randn(2, 3, 12, 16), tmp_path, free=True)[0]
    made = porter.convert(path, to="torch", out=tmp_path / "port", input_size="any")
    assert made.verdict is not None and made.verdict.ok
    x = torch.randn(1, 3, 34, 30)
    assert porter.load(tmp_path / "port")(x).shape == (1, 4, 102, 90)


def test_a_squeeze_of_the_batch_is_refused_with_the_way_round(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), Squeezed())
    path = export(model.eval(), torch.randn(1, 3, 12, 16), tmp_path)[0]
    with pytest.raises(MappingError, match="squeeze of the batch of one image: name the axes in the model"):
        porter.convert(path, to="torch", out=tmp_path / "port")


@pytest.mark.full
def test_a_network_of_torchvision_is_its_recipe_s(tmp_path: Path) -> None:
    from porter.zoos.torchvision import import_models

    path = export(import_models().resnet18().eval(), torch.randn(2, 3, 64, 64), tmp_path, free=True)[0]
    made = porter.convert(path, to="tf", out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.ok
    assert (made.port.record.variant, made.port.record.zoo) == ("resnet18", "torchvision")
