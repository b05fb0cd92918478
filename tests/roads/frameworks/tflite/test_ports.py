"""Ports for TensorFlow Lite as people use them: proved, run, read again, and refused where they are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import CheckFailed, UsageError
from porter.frameworks.tflite import destination as framework, port_files
from porter.frameworks.tflite.conversion import convert
from porter.frameworks.tflite.running import LiteModel
from porter.graph.plan import make_plan
from porter.padding import ANY
from tests.support.frameworks.torch.every_op import images, tensors_of
from tests.support.frameworks.torch.graphs import resnet_v2
from tests.support.oracle import evaluate
from tests.support.random_graphs import difference
from tests.support.weights_files import write_weights

GRAPH = resnet_v2((1, 1))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_weights(tmp_path_factory.mktemp("weights") / "net.h5", "mobilenet_v1_0.25", "keras")


@pytest.fixture(scope="module")
def made(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return porter.convert("mobilenet_v1_0.25", "keras", "tflite", weights=weights, out=tmp_path_factory.mktemp("made") / "port")


def test_open_sizes_and_batches() -> None:
    plan, tensors = make_plan(GRAPH, ANY, framework.CAPABILITIES), tensors_of(GRAPH)
    content = convert(plan, tensors)
    for size, count in [((33, 32), 1), ((48, 64), 2)]:
        wanted = evaluate(GRAPH, tensors, images(size)[:count])
        for delegated in (True, False):
            found = LiteModel(plan, content, delegated).values(images(size)[:count], [*wanted])
            assert {"stem/conv", "stem/pool", "stage1/unit1/relu1", "stage2/unit1/out", "head/pool"} <= found.keys()
            assert max(difference(value, wanted[path]) for path, value in found.items()) <= 1e-6


def test_a_port_is_proved_run_and_read_again(made: Any, weights: Path, tmp_path: Path) -> None:
    assert made.verdict.ok and made.verdict.proof.proves and made.port.record.input.layout == "NHWC"
    model, batch = porter.load(made.folder), np.random.default_rng(0).uniform(-1, 1, (2, 224, 224, 3)).astype(np.float32)
    assert model(batch).shape == (2, 1000) and porter.verify(made.folder, weights=weights).ok
    again = porter.convert(made.folder / "model.tflite", to="tf", out=tmp_path / "again")
    assert again.verdict.ok and difference(np.asarray(again.model()(batch)), model(batch)) <= 1e-4
    with pytest.raises(UsageError, match=r"convert\(.*model\.tflite"):
        porter.convert(made.folder, to="torch", out=tmp_path / "torch")
    with pytest.raises(UsageError, match="the model takes"):
        model(batch.transpose(0, 3, 1, 2))


def test_the_file_states_the_native_size(made: Any) -> None:
    interpreter = LiteModel(made.port.plan, (made.folder / "model.tflite").read_bytes())._plain
    assert interpreter.get_input_details()[0]["shape"].tolist() == [1, 224, 224, 3]
    assert interpreter.get_input_details()[0]["shape_signature"].tolist() == [-1, -1, -1, 3]


def test_a_wrong_file_is_refused(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(plan: Any, tensors: Any) -> bytes:
        head = {role: 1.001 * array for role, array in tensors["head/logits"].items()}
        return convert(plan, {**tensors, "head/logits": head})

    monkeypatch.setattr(port_files, "convert", wrong)
    with pytest.raises(CheckFailed, match=r"head/logits is the first node that differs, relative L2 1\.0e-03 in float32"):
        porter.convert("mobilenet_v1_0.25", "keras", "tflite", weights=weights, out=tmp_path / "port")
