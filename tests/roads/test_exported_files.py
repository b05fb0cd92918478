"""What users do with files that torch's exporters wrote of one network: drafts, ports with a recipe, and
references.
"""

from __future__ import annotations

import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import porter
from porter.authoring.new_recipe import new_recipe
from tests.support.fixtures import Cli
from tests.support.refusals import refused

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

SIDE = 21


class Unit(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, ceil_mode=True),
        )
        self.layer1 = nn.Sequential(Unit(8), Unit(8))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.flatten(self.pool(self.layer1(self.stem(x))), 1))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one network as `folded.onnx`, `raw.onnx`, `whole.pt2` and `weights.pth`, and `mine.yaml`,
    drafted from `raw.onnx`.
    """
    folder = tmp_path_factory.mktemp("exported")
    torch.manual_seed(0)
    network, image = Network(), torch.zeros(1, 3, SIDE, SIDE)
    for norm in network.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.momentum = None
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, 0, 0.2)
    network(torch.randn(16, 3, SIDE, SIDE))
    torch.save(network.state_dict(), folder / "weights.pth")
    network.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older exporter is deprecated
        unfolded: dict[str, Any] = {
            "do_constant_folding": False,
            "training": torch.onnx.TrainingMode.PRESERVE,
        }
        torch.onnx.export(network, (image,), folder / "folded.onnx", dynamo=False)
        torch.onnx.export(network, (image,), folder / "raw.onnx", dynamo=False, **unfolded)
        torch.export.save(torch.export.export(network, (image,)), folder / "whole.pt2")
    new_recipe("mine", folder / "mine.yaml", folder / "raw.onnx")
    return folder


@pytest.mark.parametrize("name", ["raw.onnx", "folded.onnx", "whole.pt2"])
def test_a_draft_says_what_torchs_own_files_are_called(name: str, files: Path, tmp_path: Path) -> None:
    drafted = new_recipe("mine", tmp_path / "mine.yaml", files / name)
    assert "framework: torch" in drafted.draft.text and '"stem.{l}"' in drafted.draft.text.replace(
        "stem.0", '"stem.{l}"'
    )
    assert "flatten" not in drafted.draft.text and (
        "bn_epsilon" not in drafted.draft.text or "bn_epsilon: 1.0e-5" in drafted.draft.text
    )
    made = porter.convert("mine", "own", "tf", weights=files / name, recipes=tmp_path, out=tmp_path / "port")
    assert made.verdict is not None and all(parity.proves for parity in made.verdict.parities)


@pytest.mark.parametrize("name", ["raw.onnx", "folded.onnx", "whole.pt2"])
def test_one_recipe_serves_all_files_of_a_network(name: str, files: Path, tmp_path: Path) -> None:
    made = porter.convert("mine", "own", "torch", weights=files / name, recipes=files, out=tmp_path / "port")
    paths = set(made.port.graph.by_path)
    assert made.verdict is not None and made.verdict.ok
    assert {"stem/conv", "layer1/unit1/conv2", "fc"} <= paths
    assert ("layer1/unit1/bn2" in paths) == (name != "folded.onnx")


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("name", ["folded.onnx", "whole.pt2"])
def test_a_file_is_measured_beside_its_port(name: str, files: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    square = "{resize: squash, size: 21, interpolation: pil_bilinear, divide: 255}"
    text = (
        (files / "mine.yaml")
        .read_text()
        .replace("    framework: torch\n", f"    framework: torch\n    protocol: {square}\n")
    )
    (tmp_path / "own" / "mine.yaml").write_text(text)
    for kind in "abcde":
        (tmp_path / "photos" / kind).mkdir(parents=True)
        colours = np.random.default_rng(ord(kind)).integers(0, 255, (30, 40, 3), np.uint8)
        Image.fromarray(colours).save(tmp_path / "photos" / kind / "photo.png")
    porter.convert(files / name, to="onnx", recipes=tmp_path / "own", out=tmp_path / "port", check=False)
    settings: dict[str, Any] = {"weights": files / name, "recipes": tmp_path / "own", "workers": 1}
    found = porter.evaluate(tmp_path / "port", tmp_path / "photos", source=True, **settings)
    assert found.source is not None and found.source.compared == 5
    assert (
        found.source.reference == "the file's own graph"
        and found.source.agreeing == 5
        and found.source.rel_l2 < 1e-5
    )


def test_inspect_names_the_recipe_of_a_folded_file(files: Path, cli: Cli) -> None:
    ran = cli("inspect", files / "folded.onnx", "--recipes", files)
    assert (
        "is         mine from own" in ran.out
        and "differs    its batch norms: 5 folded into the layers before them" in ran.out
    )
    assert (
        f"porter convert mine --from own --to tf --weights {files / 'folded.onnx'} --recipes {files}"
        in ran.out
    )


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize(
    ("name", "reference", "nodes", "dtype"),
    [
        ("weights.pth", "raw.onnx", 20, "float64"),
        ("raw.onnx", "whole.pt2", 20, "float64"),
        ("whole.pt2", "folded.onnx", 15, "float32"),
        pytest.param("folded.onnx", "whole.pt2", 15, "float32", marks=pytest.mark.full),
    ],
)
def test_a_file_is_the_reference_of_another_one(
    name: str, reference: str, nodes: int, dtype: str, files: Path, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "reference": str(files / reference),
        "out": tmp_path / "port",
        "overwrite": True,
    }
    made = [porter.convert("mine", "own", "torch", weights=files / name, recipes=files, **settings)]
    made += [] if name == "weights.pth" else [porter.convert(files / name, to="torch", **settings)]
    given = [verdict.user_proof for each in made if (verdict := each.verdict) is not None]
    again = porter.verify(
        tmp_path / "port", weights=files / name, reference=str(files / reference), float64=True, recipes=files
    )
    for proof in (*given, again.user_proof):
        assert proof is not None and all(parity.proves for parity in proof.parities)
        # A graph of a file's own may have the reshape between its pool and its dense layer as a node; the
        # recipe has none.
        compared = [node for node in proof.parities[-1].nodes if node.path.lower() != "flatten"]
        assert (proof.parities[-1].dtype, len(compared)) == (dtype, nodes)
    assert len(given) == len(made)


@pytest.mark.usefixtures("one_recipe")
def test_a_reference_whose_weights_are_others_says_how_far_they_are(
    files: Path, tmp_path: Path, cli: Cli
) -> None:
    """Two exporters that fold batch norms round the same kernels in two ways."""
    onnx = pytest.importorskip("onnx")
    for name, factor in (("rounded.onnx", 1 + 2**-23), ("other.onnx", 1.001)):
        model = onnx.load(files / "folded.onnx")
        kernel = next(tensor for tensor in model.graph.initializer if len(tensor.dims) == 4)
        array = onnx.numpy_helper.to_array(kernel)
        kernel.CopyFrom(onnx.numpy_helper.from_array(array * np.float32(factor), kernel.name))
        onnx.save(model, tmp_path / name)
    settings: dict[str, Any] = {"to": "torch", "out": tmp_path / "port", "overwrite": True}
    made = porter.convert(files / "folded.onnx", reference=str(tmp_path / "rounded.onnx"), **settings)
    assert made.verdict is not None and made.verdict.user_proof is not None
    assert [parity.dtype for parity in made.verdict.user_proof.parities] == [
        "float32"
    ] and made.verdict.user_proof.parities[0].proves
    (note,) = made.verdict.user_proof.notes
    assert re.search(
        r"compared in float32: its weights are .* to rounding only, \d\.\de-0[78] apart at stem.*\.pt2", note
    )
    ran = cli("convert", files / "folded.onnx", "--to", "torch", "--reference", tmp_path / "other.onnx")
    refused(ran, "in float64; the weights of stem/conv are 1.0e-03 from the source's", status=1)
    assert "padding" not in ran.err


@pytest.mark.usefixtures("one_recipe")
def test_another_network_is_no_reference(files: Path, tmp_path: Path, cli: Cli) -> None:
    other = Network().eval()
    torch.export.save(torch.export.export(other, (torch.zeros(1, 3, SIDE, SIDE),)), tmp_path / "other.pt2")
    ran = cli("convert", files / "folded.onnx", "--to", "tf", "--reference", tmp_path / "other.pt2")
    refused(ran, "the port is not the function of the given other.pt2", status=1)


def test_a_port_in_onnx_is_read_back_as_what_it_is(files: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"recipes": files, "check": False}
    there = porter.convert(
        "mine", "own", "onnx", weights=files / "whole.pt2", out=tmp_path / "there", **settings
    ).port
    alone = shutil.copyfile(there.folder / "model.onnx", tmp_path / "alone.onnx")
    back = porter.convert(alone, to="torch", out=tmp_path / "back", recipes=files)
    assert back.verdict is not None and all(parity.proves for parity in back.verdict.parities)
    assert (back.port.record.variant, set(back.port.graph.by_path)) == ("mine", set(there.graph.by_path))
    mine, theirs = back.port.tensors(), there.tensors()
    assert all(
        np.array_equal(array, mine[path][role])
        for path, roles in theirs.items()
        for role, array in roles.items()
    )
    image = np.random.default_rng(0).standard_normal((2, 3, SIDE, SIDE)).astype(np.float32)
    with torch.no_grad():
        expected = porter.load(tmp_path / "back")(torch.from_numpy(image)).numpy()
    assert np.allclose(porter.load(tmp_path / "there")(image), expected, rtol=0, atol=1e-5)
    proved = porter.convert(
        "mine",
        "own",
        "tf",
        weights=files / "weights.pth",
        reference=str(alone),
        out=tmp_path / "tf",
        recipes=files,
    )
    assert (
        proved.verdict is not None
        and proved.verdict.user_proof is not None
        and proved.verdict.user_proof.parities[-1].proves
    )
