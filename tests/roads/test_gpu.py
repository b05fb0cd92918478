"""Ports on a GPU. Skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import porter
from porter.port import read_port
from tests.support.arrays import Array
from tests.support.fixtures import WeightsMaker
from tests.support.standin import smooth_images

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


@pytest.fixture(
    params=[
        ("resnet18", "torchvision", ".pth"),
        ("mobilenet_v3_small", "timm_tf", ".pth"),
        ("mobilenet_v2_0.35", "keras", ".h5"),
    ],
    ids="-".join,
)
def ported(request: pytest.FixtureRequest, weights_file: WeightsMaker, tmp_path: Path) -> tuple[Path, Path]:
    """A port's folder, and the weights it was made from."""
    variant, zoo, suffix = request.param
    if zoo == "keras":
        pytest.importorskip("keras", reason="Keras writes this zoo's weights")
    weights = weights_file(variant, zoo, suffix)
    porter.convert(variant, zoo, "torch", weights=weights, out=tmp_path / "port", check=False)
    return tmp_path / "port", weights


def test_logits_are_those_of_double_precision_on_the_cpu(ported: tuple[Path, Path]) -> None:
    port = read_port(ported[0])
    batch, taps = smooth_images(3, (224, 224), seed=1), [port.graph.output]
    wanted: Array = port.destination.ENGINE.run(port.build("float64"), batch.astype(np.float64), taps)[
        port.graph.output
    ]
    found: Array = port.destination.ENGINE.run(port.build("float32", "cuda"), batch, taps)[port.graph.output]
    assert np.linalg.norm(found - wanted) <= 1e-4 * np.linalg.norm(wanted)
    assert (found.argmax(axis=1) == wanted.argmax(axis=1)).all()


def test_verify_takes_the_gpu(ported: tuple[Path, Path]) -> None:
    folder, weights = ported
    assert porter.verify(folder, weights=weights, device="cuda", tolerance=1e-4).ok
