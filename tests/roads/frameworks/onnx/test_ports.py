"""Ports to onnx on the whole road: made, proved, loaded, asked, measured, reported, and ported on."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import porter
from porter.base.errors import PaddingError, UsageError
from porter.formats.reading import read_checkpoint
from porter.padding import ANY
from porter.port import PASSED, read_port
from porter.recipe import find_recipe
from porter.source.own_graph import translate
from porter.source.wishes import Wishes
from tests.support.checkout import ROOT
from tests.support.fixtures import WeightsMaker

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

VARIANT, ZOO = "shufflenet_v2_x0_5", "torchvision"


@pytest.fixture(scope="module")
def made(weights_file: WeightsMaker, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Path]:
    """The weights, the conversion, and the port."""
    weights, folder = weights_file(VARIANT, ZOO, ".pth"), tmp_path_factory.mktemp("onnx") / "port"
    return weights, porter.convert(VARIANT, ZOO, "onnx", weights=weights, out=folder), folder


def test_a_port_is_proved_and_proved_again(made: tuple[Path, Any, Path]) -> None:
    weights, conversion, folder = made
    assert conversion.port.record.check == PASSED and conversion.port.plan.only_size is None
    assert sorted(path.name for path in folder.iterdir()) == ["model.onnx", "port.json"]
    record = read_port(folder).record
    assert (record.input.layout, record.framework, [*record.model]) == ("NCHW", "onnx", ["model.onnx"])
    assert "onnxruntime" in record.versions
    found = porter.verify(folder, weights=weights)
    assert found.ok and found.proof.reference == ZOO and len(found.proof.nodes) > 80
    assert conversion.verdict.proof.dtype == "float64" and all(
        node.rel_l2 <= 1e-10 for node in conversion.verdict.proof.nodes
    )


def test_a_file_says_by_itself_what_it_is(made: tuple[Path, Any, Path]) -> None:
    model, zoo = onnx.load(made[2] / "model.onnx"), find_recipe(VARIANT).zoo(ZOO, VARIANT)
    stated = {entry.key.removeprefix("porter."): entry.value for entry in model.metadata_props}
    assert (stated["variant"], stated["zoo"], stated["classes"], stated["labels"]) == (
        VARIANT,
        ZOO,
        "1000",
        "imagenet-1000",
    )
    assert zoo.preprocess is not None and json.loads(stated["preprocess"])["size"] == zoo.preprocess.size
    assert (
        stated["native_size"] == "[224, 224]" and stated["source_sha256"] == made[1].port.record.source.sha256
    )
    assert model.producer_name == "porter" and "head/logits.weight" in {
        tensor.name for tensor in model.graph.initializer
    }


def test_a_file_is_run_as_the_page_says(
    made: tuple[Path, Any, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    (block,) = (code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "onnxruntime" in code)
    (tmp_path / "resnet50v2-keras-onnx").symlink_to(made[2])  # another network: the lines do not depend on it
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["logits"].shape == (1, 1000)


def test_a_port_is_loaded_asked_and_reported(made: tuple[Path, Any, Path], tmp_path: Path) -> None:
    _, _, folder = made
    batch = np.random.default_rng(0).normal(size=(2, 3, 97, 64)).astype(np.float32)
    model = porter.load(folder)
    assert model(batch).shape == (2, 1000) and np.array_equal(model(batch), model(batch))
    Image.fromarray(np.random.default_rng(1).integers(0, 255, (80, 90, 3), np.uint8)).save(
        tmp_path / "photo.png"
    )
    (prediction,) = porter.predict(folder, [tmp_path / "photo.png"])
    assert len(prediction.top5) == 5
    porter.report(folder, tmp_path / "report.html")
    assert "onnx, stored as float32" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_port_is_ported_on(made: tuple[Path, Any, Path], tmp_path: Path) -> None:
    again = porter.convert(VARIANT, ZOO, "torch", weights=made[2], out=tmp_path / "torch", check=False).port
    wanted = read_port(made[2]).tensors()
    for path, roles in again.tensors().items():
        assert all(
            np.array_equal(array, wanted[path][role]) for role, array in roles.items() if role != "batches"
        )
    read, _ = translate(read_checkpoint(made[2] / "model.onnx"), Wishes(size=ANY))
    # The map of a global pool.
    assert read.graph.by_path.keys() - again.graph.by_path.keys() == {"head/pool_cell"}


def test_norms_are_folded(made: tuple[Path, Any, Path], tmp_path: Path) -> None:
    folded = porter.convert(VARIANT, ZOO, "onnx", weights=made[0], out=tmp_path / "folded", fold_bn=True)
    assert folded.port.record.check == PASSED and not folded.port.record.norms
    assert "BatchNormalization" not in {
        node.op_type for node in onnx.load(tmp_path / "folded" / "model.onnx").graph.node
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [({"stock": True}, "onnx has no stock classes"), ({"dtype": "float64"}, "no convolutions in float64")],
)
def test_what_onnx_lacks_is_refused(
    made: tuple[Path, Any, Path], tmp_path: Path, options: Any, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        porter.convert(VARIANT, ZOO, "onnx", weights=made[0], out=tmp_path / "port", **options)
    assert not (tmp_path / "port").exists()


def test_without_onnxruntime_the_port_is_written_and_not_checked(
    made: tuple[Path, Any, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    port = porter.convert(VARIANT, ZOO, "onnx", weights=made[0], out=tmp_path / "port").port
    assert (
        port.record.check.startswith("skipped: onnxruntime is not installed") and (tmp_path / "port").is_dir()
    )


def test_a_window_that_starts_in_the_pads_is_dropped(tmp_path: Path) -> None:
    """Of 5 cells padded by 1, windows of 2 at stride 3 are 2: a third would start in the last pad. Of 6,
    windows of 3 are 4.
    """
    for kernel, stride, columns in ((2, 3, 5), (3, 2, 6)):
        stated = (
            f"kernel_shape=[2, {kernel}], strides=[3, {stride}], pads=[1, 1, 1, 1], ceil_mode=1, "
            "count_include_pad=1"
        )
        graph = onnx.parser.parse_graph(
            f"g (float[N,2,5,{columns}] x) => (float[N,2,a,b] y) {{ y = AveragePool <{stated}> (x) }}"
        )
        opset = onnx.helper.make_opsetid("", 19)
        onnx.save(
            onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9), tmp_path / f"{columns}.onnx"
        )
    assert porter.convert(tmp_path / "5.onnx", to="onnx", out=tmp_path / "port").port.record.check == PASSED
    with pytest.raises(PaddingError, match="drops a window of one axis"):
        porter.convert(tmp_path / "6.onnx", to="onnx", out=tmp_path / "none")
