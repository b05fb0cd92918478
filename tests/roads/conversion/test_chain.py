"""Weights that go through every framework come back bit for bit: keras to mxnet, onnx, caffe, torch and keras
again; torch to flax, keras and torch again.
"""

from pathlib import Path

import pytest

import porter
from porter.formats.reading import read_with_digests
from tests.support.fixtures import WeightsMaker
from tests.support.weights_files import published_like

CHAIN = ("mxnet", "onnx", "caffe", "torch", "tf")
FILES = {
    "mxnet": "model-symbol.json",
    "onnx": "model.onnx",
    "caffe": "model.caffemodel",
    "torch": "",
    "tf": "",
}
"""By framework, the file of a port that carries its graph; a port of torch is read with its record."""


def through(first: Path, variant: str, folder: Path, bare: bool) -> dict[str, bytes]:
    """The tensors' bytes by name after the chain: from port to port, or from the `bare` files of those that
    carry their graph, where each port is proved. Of a port of a port no proof is asked: its source is
    porter's own build.
    """
    made = porter.convert(variant, "keras", CHAIN[0], weights=first, out=folder / CHAIN[0], check=bare)
    for to in CHAIN[1:]:
        last = made.port.folder
        if bare and FILES[last.name]:
            (last / "port.json").unlink()
            last = last / FILES[last.name]
        made = porter.convert(last, to=to, out=folder / to, check=bare)
    return tensors(folder / "tf/model.keras")


def tensors(file: Path) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in read_with_digests(file).tensors.items()}


@pytest.mark.parametrize(
    "variant",
    [
        "mobilenet_v1_0.25",
        *(pytest.param(name, marks=pytest.mark.full) for name in ("resnet50", "mobilenet_v2")),
    ],
)
def test_ports_of_ports_end_with_the_tensors_of_the_first(variant: str, tmp_path: Path) -> None:
    first = published_like(tmp_path, variant, "keras")
    assert sorted(through(first, variant, tmp_path, bare=False).values()) == sorted(tensors(first).values())


@pytest.mark.parametrize(
    "variant",
    [
        "shufflenet_v2_x0_5",
        *(pytest.param(name, marks=pytest.mark.full) for name in ("resnet50", "mobilenet_v2")),
    ],
)
def test_torch_to_flax_to_keras_to_torch(variant: str, weights_file: WeightsMaker, tmp_path: Path) -> None:
    first = weights_file(variant, "torchvision", ".pth")
    made = porter.convert(variant, "torchvision", "flax", weights=first, out=tmp_path / "flax", check=False)
    for to in ("tf", "torch"):
        made = porter.convert(made.port.folder, to=to, out=tmp_path / to, check=False)
    last = tensors(made.port.folder / "model.safetensors")
    assert sorted(last.values()) == sorted(tensors(first).values())


@pytest.mark.full
@pytest.mark.parametrize(("variant", "grown"), [("resnet50", 0), ("mobilenet_v2", 5)])
def test_bare_files_lose_only_what_caffe_says_otherwise(variant: str, grown: int, tmp_path: Path) -> None:
    """Caffe has no pad of one side: the kernels of MobileNet's windows of stride 2 are 4x4 there, with zeros
    at one side.
    """
    first = published_like(tmp_path, variant, "keras")
    known, last = set(tensors(first).values()), set(through(first, variant, tmp_path, bare=True).values())
    assert len(known - last) == grown
