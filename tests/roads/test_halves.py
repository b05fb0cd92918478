"""Networks that compute in half precision are ported in exact arithmetic, and how far their own outputs are
from the port's is measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import porter
from porter.base.errors import CheckFailed
from porter.formats.tensorflow import import_tensorflow
from porter.formats.torch_export.ops import READERS
from tests.support.formats.torch_export.exports import export
from tests.support.torch_onnx import export_to_onnx

pytestmark = pytest.mark.usefixtures("in_double")

SIDE = 16
Code = Callable[["Net", torch.Tensor], Any]


class Net(nn.Module):
    def __init__(self, code: Code) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 5)
        self.code = code

    def body(self, images: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(images)).relu()

    def forward(self, images: torch.Tensor) -> Any:
        return self.code(self, images)


def whole(net: Net, images: torch.Tensor) -> torch.Tensor:
    return net.head(net.body(images).mean((2, 3)))


def lowered(net: Net, images: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return whole(net, images)


def lowered_in_part(net: Net, images: torch.Tensor) -> torch.Tensor:
    found = net.conv(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return net.head(found.relu_().mean((2, 3)))


CASES: dict[str, Code] = {
    "a cast of what comes in": lambda net, images: whole(net, images.half().float()),
    "a cast inside": lambda net, images: net.head(net.body(images).bfloat16().sigmoid().float().mean((2, 3))),
    "a cast of what is given": lambda net, images: whole(net, images).half(),
    "a sum": lambda net, images: net.head(net.body(images).sum((2, 3), dtype=torch.bfloat16).float()),
    "autocast": lowered,
    "autocast of a part": lowered_in_part,
}


def far(warnings: tuple[str, ...]) -> float:
    """The distance in the one warning."""
    (said,) = (
        re.search(r"in exact arithmetic: its own outputs are ([\d.e-]+) away", each) for each in warnings
    )
    assert said is not None, warnings
    return float(said[1])


@pytest.mark.filterwarnings("ignore:.*treespec")
@pytest.mark.parametrize("name", CASES)
def test_a_module_and_its_program_are_ported_exactly_with_their_loss(name: str, tmp_path: Path) -> None:
    net = Net(CASES[name]).eval()
    images = torch.randn(8, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    path = export(net, images, tmp_path, free=True)[0]
    for source in (net, path):
        made = porter.convert(source, to="torch", out=tmp_path / "port", input_size=SIDE, overwrite=True)
        assert made.proof is not None and made.proof.ok
        lost = far(made.warnings)
        with torch.no_grad():
            own, ported = net(images).double(), made.model()(images).double()
        apart = float((own - ported).norm() / ported.norm())
        assert apart / 8 < lost < apart * 8 and lost > 1e-6, (lost, apart)


@pytest.mark.parametrize("name", ["a cast inside", "a half network"])
def test_an_onnx_file_is_run_as_it_is_to_measure_its_loss(name: str, tmp_path: Path) -> None:
    """onnxruntime computes halves in single precision, and leaves out casts there and back."""
    net, images = Net(CASES.get(name, whole)).eval(), torch.randn(8, 3, SIDE, SIDE)
    given = images if name in CASES else images.half()
    net = net if name in CASES else net.half()
    path = tmp_path / "net.onnx"
    export_to_onnx(net, (given,), path, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "N"}})
    made = porter.convert(path, to="torch", out=tmp_path / "port")
    assert made.proof is not None and made.proof.ok
    with torch.no_grad():
        own, ported = net(given).double(), made.model()(images).double()
    apart = float((own - ported).norm() / ported.norm())
    assert apart / 8 < far(made.warnings) < apart * 8


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_a_saved_model_is_run_as_it_is_to_measure_its_loss(half: str, tmp_path: Path) -> None:
    tf = import_tensorflow()
    kernel, head = (tf.Variable(tf.random.stateless_normal(s, (1, 2))) for s in ((3, 3, 3, 8), (8, 5)))

    @tf.function(input_signature=[tf.TensorSpec((None, SIDE, SIDE, 3), tf.float32, name="x")])
    def call(x: Any) -> Any:
        maps = tf.nn.relu(tf.nn.conv2d(tf.cast(x, half), tf.cast(kernel, half), 2, "SAME"))
        return tf.cast(tf.matmul(tf.reduce_mean(maps, (1, 2)), tf.cast(head, half)), tf.float32)

    module = tf.Module()
    module.kernel, module.head, module.call = kernel, head, call
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures=call)
    made = porter.convert(tmp_path / "saved", to="torch", out=tmp_path / "port")
    assert made.proof is not None and made.proof.ok
    assert (1e-4 if half == "float16" else 1e-3) < far(made.warnings) < (4e-3 if half == "float16" else 4e-2)


@pytest.mark.parametrize("what", ["a layer lost", "another epsilon"])
def test_a_mistake_beside_a_half_is_refused(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where float64 says that the function is another one, no rounding excuses it."""
    path = export(Net(CASES["a cast inside"]).eval(), torch.randn(2, 3, SIDE, SIDE), tmp_path)[0]
    norm = READERS["batch_norm"]
    if what == "a layer lost":
        monkeypatch.setitem(READERS, "sigmoid", READERS["alias"])
    else:
        monkeypatch.setitem(
            READERS,
            "batch_norm",
            lambda walk, node: norm(walk, replace(node, arguments={**node.arguments, "eps": 1.1e-5})),
        )
    with pytest.raises(CheckFailed, match="differs"):
        porter.convert(path, to="torch", out=tmp_path / "port")
