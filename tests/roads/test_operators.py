"""Functions of each number, in every format that has them: one model with an output for each, ported and
proved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import porter
from porter.base.errors import PorterError
from porter.verification.check import Check
from tests.support.torch_onnx import export_to_onnx

pytestmark = pytest.mark.usefixtures("in_double")

Function = Callable[[torch.Tensor], torch.Tensor]

OF_ANY: Mapping[str, Function] = {
    "abs": torch.abs,
    "square": torch.square,
    "cube": lambda x: x**3,
    "exp": torch.exp,
    "sin": torch.sin,
    "cos": torch.cos,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "erf": torch.erf,
    "log_sigmoid": F.logsigmoid,
    "celu": lambda x: F.celu(x, 0.7),
    "mish": F.mish,
    "glu": lambda x: F.glu(x, 1),
    "flip": lambda x: x.flip(1),
    "variance": lambda x: x.var((2, 3), keepdim=True),
    "unshuffled": lambda x: F.pixel_unshuffle(x, 2),
    "unit": lambda x: F.normalize(x, dim=1),
    "ratio": lambda x: x / (x.abs() + 1),
    "deviation": lambda x: x.std(1, keepdim=True),
}
OF_POSITIVE: Mapping[str, Function] = {
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "generalised_mean": lambda x: (x**3).mean((2, 3), keepdim=True) ** (1 / 3),
}


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.conv(x)
        above = torch.abs(x) + 0.3
        taken = x.index_select(1, torch.tensor([2, 0, 3, 1]))
        return taken, *(each(x) for each in OF_ANY.values()), *(each(above) for each in OF_POSITIVE.values())


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    return Network().eval()


@pytest.mark.parametrize(
    ("exporter", "to"),
    [
        ("torch.export", "onnx"),
        ("torch.onnx", "torch"),
        # The same graph, in the other destinations, whose tests of every op have these.
        pytest.param("torch.export", "tf", marks=pytest.mark.full),
        pytest.param("torch.export", "torch", marks=pytest.mark.full),
        pytest.param("TorchScript", "torch", marks=pytest.mark.full),
    ],
)
def test_functions_of_torch(exporter: str, to: str, network: nn.Module, tmp_path: Path) -> None:
    expect_proved(exported(network, exporter, tmp_path), to, tmp_path, 1 + len(OF_ANY) + len(OF_POSITIVE))


def exported(network: nn.Module, exporter: str, folder: Path) -> Path:
    file, image = (
        folder / ("model.pt2" if exporter == "torch.export" else "model.onnx"),
        torch.randn(1, 3, 8, 12),
    )
    if exporter == "torch.export":
        torch.export.save(torch.export.export(network, (image,)), file)
    else:
        pytest.importorskip("onnx")
        own: dict[str, Any] = {"external_data": False} if exporter == "torch.onnx" else {}
        export_to_onnx(network, (image,), file, dynamo=exporter == "torch.onnx", **own)
    return file


KERAS = """absolute square exp sin cos floor ceil round erf log_sigmoid celu glu flip var normalize std"""


@pytest.mark.parametrize("form", ["file", "graph"])
def test_functions_of_keras(form: str, tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    more: dict[str, dict[str, Any]]
    ops, more = (
        keras.ops,
        {"flip": {"axis": -1}, "var": {"axis": (1, 2)}, "std": {"axis": -1, "keepdims": True}},
    )
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 12, 3))
    x = keras.layers.Conv2D(8, 3, padding="same")(image)
    above = ops.absolute(x) + 0.3
    values = [getattr(ops, name)(x, **more.get(name, {})) for name in KERAS.split()]
    values += [getattr(ops, name)(above) for name in ("log", "sqrt", "rsqrt", "reciprocal")]
    values.append(ops.mean(above**3, (1, 2), keepdims=True) ** (1 / 3))
    model = keras.Model(image, values)
    if form == "file":
        model.save(tmp_path / "model.keras")
    else:
        model.export(tmp_path / "model", verbose=False)
    expect_proved(tmp_path / ("model.keras" if form == "file" else "model"), "torch", tmp_path, len(values))


def expect_proved(file: Path, to: str, folder: Path, outputs: int) -> None:
    made = porter.convert(file, to=to, out=folder / "port")
    assert made.verdict is not None and made.verdict.proof.proves and len(made.port.graph.outputs) == outputs
    batch = np.random.default_rng(0).normal(size=(2, 3, 8, 12)).astype(np.float32)
    given: Any = {
        "torch": lambda: torch.from_numpy(batch),
        "tf": lambda: batch.transpose(0, 2, 3, 1),
        "onnx": lambda: batch,
    }[to]()
    found = porter.load(folder / "port")(given)
    assert outputs == 1 or len(found) == outputs


def test_a_sign_by_itself_is_proved_where_what_it_reads_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has two numbers, and another function of the same sign would have them too."""

    class Signs(Network):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return torch.sign(self.conv(x))

    file = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Signs().eval(), (torch.randn(1, 3, 8, 12),)), file)
    made = porter.convert(file, out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.ok
    monkeypatch.setattr(Check, "_compare_at_cut_points", lambda *_: {})
    with pytest.raises(PorterError, match="is saturated: it has two numbers only"):
        porter.convert(file, out=tmp_path / "other")


class Chosen(Network):
    """Comparisons of values and of constants, and choices by them."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.conv(x)
        y = x.roll(1, 1)
        both, either = (x > 0.1) & (y < 0.3), ~(x >= y) | (y <= -0.2)
        chosen = (
            torch.where(x > y, x, 0.5 * y),
            torch.where(both, y, -1.0),
            x.masked_fill(either, 2.0),
            F.elu(x, 0.7),
        )
        return (
            *chosen,
            x.max(1, keepdim=True)[0],
            F.log_softmax(x, 1) * 2,
            F.log_softmax(x.flatten(2), 2).mean(2),
        )


@pytest.mark.parametrize(
    ("exporter", "to"),
    [
        ("torch.export", "torch"),
        ("torch.export", "tf"),
        ("torch.onnx", "onnx"),
        ("TorchScript", "torch"),
        pytest.param("TorchScript", "tf", marks=pytest.mark.full),
    ],
)
def test_choices(exporter: str, to: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    expect_proved(exported(Chosen().eval(), exporter, tmp_path), to, tmp_path, 7)


def test_choices_of_keras(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    ops, image = keras.ops, keras.Input((8, 12, 3))
    x = keras.layers.Conv2D(8, 3, padding="same")(image)
    y = ops.roll(x, 1, -1)
    tests = (
        ops.logical_and(x > 0.1, ops.less_equal(y, 0.3)),
        ops.logical_or(x >= y, ops.logical_not(y < -0.2)),
    )
    values = [
        ops.where(tests[0], x, y),
        ops.where(tests[1], x, ops.multiply(y, 0.5)),
        keras.activations.elu(x, 0.7),
    ]
    keras.Model(image, [*values, 2 * ops.log_softmax(x)]).save(tmp_path / "model.keras")
    keras.Model(image, [*values, 2 * ops.log_softmax(x)]).export(tmp_path / "model", verbose=False)
    for file in ("model.keras", "model"):
        expect_proved(tmp_path / file, "torch", tmp_path / f"of {file}", 4)


def test_a_comparison_is_no_output(tmp_path: Path) -> None:
    class Above(Network):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            x = self.conv(x)
            return x, x > 0

    with pytest.raises(
        PorterError, match=r"'gt_2' .an output that says whether something holds, in no numbers"
    ):
        porter.convert(exported(Above().eval(), "torch.export", tmp_path), out=tmp_path / "port")


def test_a_choice_of_infinite_numbers_is_refused(tmp_path: Path) -> None:
    class Masked(Network):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            x = self.conv(x)
            return x.masked_fill(x < 0, float("-inf")).softmax(1)

    with pytest.raises(PorterError, match="masked_fill of numbers that are not finite"):
        porter.convert(exported(Masked().eval(), "torch.export", tmp_path), out=tmp_path / "port")


class Computed(nn.Module):
    """Kernels that are computed from weights."""

    def __init__(self) -> None:
        super().__init__()
        own = torch.nn.utils.parametrizations
        self.norm = own.weight_norm(nn.Conv2d(3, 8, 3, padding=1))
        self.spectral = own.spectral_norm(nn.Conv2d(8, 8, 3, padding=1))
        self.turned = own.weight_norm(nn.ConvTranspose2d(8, 6, 2, 2), dim=1)
        self.centres = nn.Parameter(torch.randn(5, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.turned(torch.relu(self.spectral(torch.relu(self.norm(x))))).mean((2, 3))
        return 8 * F.linear(F.normalize(x), F.normalize(self.centres))


@pytest.mark.parametrize(
    ("exporter", "to"), [("torch.export", "torch"), ("torch.export", "tf"), ("torch.onnx", "onnx")]
)
def test_kernels_that_are_computed(exporter: str, to: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    expect_proved(exported(Computed().eval(), exporter, tmp_path), to, tmp_path, 1)
