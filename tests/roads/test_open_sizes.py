"""What a model computes from its image's size stays open: files without a size are ported for every one that
the model takes.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import porter
from porter.base.errors import PorterError
from tests.support.arrays import Array
from tests.support.torch_onnx import export_to_onnx


class Unshuffled(nn.Module):
    """Blocks of cells as channels, twice, and a map resized to another's size, which is a quotient of the
    image's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.down, self.last = (
            nn.Conv2d(12, 8, 3, padding=1),
            nn.Conv2d(12, 8, 3, 2, 1),
            nn.Conv2d(16, 4, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [x[..., row::2, column::2] for column in (0, 1) for row in (0, 1)]
        first, second = self.conv(F.pixel_unshuffle(x, 2)), self.down(torch.cat(parts, 1))
        wide = F.interpolate(second, size=first.shape[2:], mode="bilinear", align_corners=True)
        return F.pixel_shuffle(self.last(torch.cat([first, wide], 1)), 2)


class Normed(nn.Module):
    """Norms over neighbouring channels and by running statistics, and channels shuffled by a reshape."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 1)
        self.shuffle, self.response = nn.ChannelShuffle(4), nn.LocalResponseNorm(5, 0.3, 0.75, 2.0)
        self.norm = nn.InstanceNorm2d(8, affine=True, track_running_stats=True)
        for numbers, low in (
            (self.norm.running_mean, -1),
            (self.norm.running_var, 0.5),
            (self.norm.weight, 0.5),
        ):
            assert numbers is not None
            nn.init.uniform_(numbers, low, 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.response(self.shuffle(self.conv(x))))
        images, channels, rows, columns = x.shape
        return self.last(
            x.view(images, 2, channels // 2, rows, columns)
            .transpose(1, 2)
            .reshape(images, channels, rows, columns)
        )


class Response(nn.Sequential):
    """A norm over neighbouring channels, in which the older exporter has an If."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 8, 3, padding=1), nn.LocalResponseNorm(4, 0.3, 0.75, 2.0), nn.Conv2d(8, 4, 1)
        )


@pytest.mark.usefixtures("in_double")
@pytest.mark.parametrize(
    ("exporter", "made", "to"),
    [
        ("torch.export", Unshuffled, "tf"),
        ("torch.onnx", Unshuffled, "torch"),
        ("torch.onnx", Normed, "onnx"),
        # The same graphs, in each of the other destinations.
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (
                ("torch.export", Unshuffled, "torch"),
                ("torch.onnx", Unshuffled, "onnx"),
                ("torch.onnx", Normed, "torch"),
            )
        ),
        ("TorchScript", Unshuffled, "torch"),
        ("TorchScript", Response, "torch"),
        ("torch.export", Normed, "torch"),
    ],
)
def test_models_at_every_size_that_they_take(
    exporter: str, made: type[nn.Module], to: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    network = made().eval()
    file, image = (
        tmp_path / ("model.pt2" if exporter == "torch.export" else "model.onnx"),
        torch.randn(2, 3, 20, 28),
    )
    sizes = {0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
    if exporter == "torch.export":
        with warnings.catch_warnings(action="ignore"):
            torch.export.save(torch.export.export(network, (image,), dynamic_shapes=(sizes,)), file)
    else:
        pytest.importorskip("onnx")
        own: dict[str, Any] = {"dynamic_axes": {"x": [0, 2, 3]}, "input_names": ["x"]}
        if exporter == "torch.onnx":
            own = {"external_data": False, "dynamic_shapes": (sizes,)}
        export_to_onnx(network, (image,), file, dynamo=exporter == "torch.onnx", **own)
    port = porter.convert(str(file), to=to, out=tmp_path / "port", input_size="any").port
    assert port.record.check == "passed" and port.record.input.size is None
    model = porter.load(tmp_path / "port")
    for size in ((20, 28), (34, 22)):
        x = torch.randn(2, 3, *size)
        given = model(x if to == "torch" else x.numpy().transpose(0, 2, 3, 1) if to == "tf" else x.numpy())
        found = np.asarray(given.detach() if to == "torch" else given)
        wanted = network(x).detach().numpy()
        np.testing.assert_allclose(
            found.transpose(0, 3, 1, 2) if to == "tf" else found, wanted, rtol=0, atol=2e-5
        )


@pytest.mark.parametrize("to", [pytest.param("torch", marks=pytest.mark.full), "onnx"])
def test_pools_of_windows_that_differ_in_size_as_torch_onnx_writes_them(to: str, tmp_path: Path) -> None:
    """By the places of their cells, at one size. The file is also the reference of the program, whose norm
    its first layer has taken in, and whose pool is another op.
    """
    pytest.importorskip("onnx")
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(8)
    nn.init.uniform_(norm.running_mean, -0.5, 0.5)  # type: ignore[arg-type]
    nn.init.uniform_(norm.running_var, 0.5, 2.0)  # type: ignore[arg-type]
    pool = nn.AdaptiveAvgPool2d((2, 4))
    network = nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.ReLU(), pool, nn.Conv2d(8, 4, 1)).eval()
    file, image = tmp_path / "model.onnx", torch.randn(1, 3, 11, 12)
    export_to_onnx(network, (image,), file, dynamo=True, external_data=False)
    assert b"GatherND" in file.read_bytes()
    assert porter.convert(str(file), to=to, out=tmp_path / "port").port.record.check == "passed"
    found = porter.load(tmp_path / "port")(image if to == "torch" else image.numpy())
    np.testing.assert_allclose(
        np.asarray(found.detach() if to == "torch" else found), network(image).detach(), rtol=0, atol=1e-5
    )
    torch.export.save(torch.export.export(network, (image,)), tmp_path / "model.pt2")
    verdict = porter.convert(tmp_path / "model.pt2", to=to, out=tmp_path / "again", reference=file).verdict
    given = verdict and verdict.user_proof
    assert given is not None and given.parities[-1].ok and given.parities[-1].dtype == "float32"
    assert "0" not in {node.path for node in given.parities[-1].nodes}


class Pyramid(nn.Module):
    """Pools to so many cells, as PSPNet has them, and AlexNet before its dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.mix, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(24, 4, 1), nn.Linear(4 * 6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        pools = [nn.functional.adaptive_avg_pool2d(x, 3), nn.functional.adaptive_max_pool2d(x, (2, 5))]
        parts = [nn.functional.interpolate(pool, size=x.shape[2:], mode="bilinear") for pool in pools]
        x = self.mix(torch.cat([x, *parts], 1))
        return self.head(nn.functional.adaptive_avg_pool2d(x, (2, 3)).flatten(1))


@pytest.mark.parametrize("to", ["torch", "tf", "onnx"])
def test_pools_to_so_many_cells(to: str, tmp_path: Path) -> None:
    """Torch has them at every size; elsewhere they are pools of each window, at one."""
    torch.manual_seed(0)
    network, image = Pyramid().eval(), torch.randn(2, 3, 21, 34)
    free = {0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
    torch.export.save(torch.export.export(network, (image,), dynamic_shapes=(free,)), tmp_path / "model.pt2")
    if to != "torch":
        with pytest.raises(PorterError, match="fixes the input's size") as caught:
            porter.convert(tmp_path / "model.pt2", to=to, input_size="any")
        assert "input_size" in (caught.value.next or "")
    if to == "tf":  # what a .pt2 is ported to first
        (command,) = porter.inspect(tmp_path / "model.pt2").commands
        assert command.endswith("--to tf --input-size 224x224")
    size = "any" if to == "torch" else "21x34"
    made = porter.convert(tmp_path / "model.pt2", to=to, out=tmp_path / "port", input_size=size)
    assert made.port.record.proved and made.port.record.input.size == (None if to == "torch" else (21, 34))
    for given in [image, torch.randn(2, 3, 45, 38)][: 2 if to == "torch" else 1]:
        found = porter.load(tmp_path / "port")(given if to == "torch" else _array(given, to))
        np.testing.assert_allclose(
            np.asarray(found.detach() if to == "torch" else found), network(given).detach(), atol=1e-5
        )
    if to == "torch":
        assert "nn.AdaptiveMaxPool2d((2, 5))" in (tmp_path / "port" / "model.py").read_text()


def _array(value: torch.Tensor, to: str) -> Array:
    return value.numpy().transpose(0, 2, 3, 1) if to == "tf" else value.numpy()


class Rows(nn.Module):
    """Windows over the cells of a map in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.first = nn.Conv2d(3, 6, 3), nn.Conv1d(6, 8, 3, 2, 2, 2)
        self.groups, self.back = (
            nn.Conv1d(8, 8, 3, groups=4, bias=False),
            nn.ConvTranspose1d(8, 6, 4, 3, 1, 1),
        )
        self.pools = nn.Sequential(nn.AvgPool1d(3, 2, 1), nn.MaxPool1d(2, ceil_mode=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.back(self.groups(self.pools(torch.relu(self.first(self.map(x).flatten(2))))))


class Queried(nn.Module):
    """Stored tokens, queries and factors that are repeated for each image."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.last = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 4)
        self.token, self.places, self.query = (nn.Parameter(torch.randn(1, count, 8)) for count in (1, 13, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = torch.cat([self.token.expand(len(x), -1, -1), self.map(x).flatten(2).transpose(1, 2)], 1)
        tokens = tokens + self.places.expand(len(x), -1, -1)
        shares = (self.query.expand(len(x), -1, -1) @ tokens.transpose(1, 2)).softmax(-1)
        return self.last(shares @ tokens)


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("made", [Rows, Queried])
def test_models_of_a_stated_batch_as_onnx(made: type[nn.Module], dynamo: bool, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    torch.manual_seed(0)
    network, file, images = made().eval(), tmp_path / "model.onnx", torch.randn(2, 3, 16, 12)
    export_to_onnx(network, (images,), file, dynamo=dynamo, external_data=not dynamo)
    assert porter.convert(str(file), out=tmp_path / "port").port.record.check == "passed"
    images = torch.randn(3, 3, 16, 12)
    found = porter.load(tmp_path / "port")(images).detach()
    np.testing.assert_allclose(found, network(images).detach(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"min": 8, "max": 64}, "at most 64 rows and 64 columns"),
        ({"min": 8}, "states a least one"),
        ({}, None),
    ],
)
def test_why_a_program_of_open_sizes_is_read_at_one(
    limits: dict[str, int], reason: str | None, tmp_path: Path
) -> None:
    auto = torch.export.Dim.AUTO
    rows, columns = (torch.export.Dim(name, **limits) if limits else auto for name in ("rows", "columns"))
    network = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU()).eval()
    with warnings.catch_warnings(action="ignore"):
        program = torch.export.export(
            network, (torch.zeros(2, 3, 20, 28),), dynamic_shapes=({2: rows, 3: columns},)
        )
    torch.export.save(program, tmp_path / "model.pt2")
    found = porter.inspect(tmp_path / "model.pt2")
    assert (found.size == (20, 28)) is (reason is not None)
    _, *notes = found.checkpoint.notes  # the first says which torch wrote it
    assert len(notes) == (reason is not None) and all(str(reason) in note for note in notes)
