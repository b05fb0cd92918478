"""Ports of networks whose values the memory does not hold together: both sides give some at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import porter
from porter.base.dtypes import Array, Dtype
from porter.graph.plan import make_plan
from porter.padding import Convention
from porter.port import StoredPort
from porter.source.reopening import reopen_source
from porter.verification import memory
from porter.verification.check import Check
from porter.verification.proving import prove_against
from porter.verification.references.file_graph_reference import FileGraphReference
from porter.verification.verdict import Verdict
from tests.support.standin_files import with_convention

SIZE = (33, 34)


def exported(folder: Path) -> Path:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(3, 2, 1)]
    layers += [nn.Conv2d(8, 6, 3, 2, 1), nn.Sigmoid(), nn.Flatten(), nn.Linear(150, 5)]
    model = nn.Sequential(*layers).eval()
    torch.export.save(torch.export.export(model, (torch.zeros(1, 3, *SIZE),)), folder / "net.pt2")
    return folder / "net.pt2"


def to_onnx(folder: Path) -> Path:
    port = porter.convert(exported(folder), to="onnx", out=folder / "onnx", check=False)
    return (port.folder / "model.onnx").rename(folder / "net.onnx")


def to_keras(folder: Path) -> Path:
    port = porter.convert(exported(folder), to="tf", out=folder / "tf", check=False)
    return (port.folder / "model.keras").rename(folder / "net.keras")


def proved(port: StoredPort, file: Path) -> Verdict:
    return prove_against(Check(port), reopen_source(port, file, None), None)[0]


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize(
    ("made", "destination"),
    [(exported, "tf"), (to_onnx, "flax"), pytest.param(to_keras, "onnx", marks=pytest.mark.full)],
)
def test_a_proof_in_parts_is_the_proof_of_all_values(
    made: Callable[[Path], Path], destination: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, asked, run = made(tmp_path), list[int](), FileGraphReference.run
    port = porter.convert(file, to=destination, out=tmp_path / "port", check=False).port

    def counted(
        source: FileGraphReference, batch: Array, dtype: Dtype, paths: Collection[str] | None = None
    ) -> dict[str, Array]:
        found = run(source, batch, dtype, paths)
        asked.append(len(found))
        return found

    monkeypatch.setattr(FileGraphReference, "run", counted)
    together = proved(port, file)
    assert together.ok and max(asked) == 8
    asked.clear()
    monkeypatch.setattr(memory, "_memory", lambda: None)
    monkeypatch.setattr(memory, "_LEAST", 1)
    single, double = proved(port, file).parities
    # In float32 onnxruntime rounds otherwise where it gives fewer values.
    assert double == together.parities[1] and single.ok and max(asked) <= 2
    graph = with_convention(port.graph, "layer_0", Convention("same"))
    wrong = replace(port, graph=graph, plan=make_plan(graph, SIZE, port.destination.CAPABILITIES))
    bad = proved(wrong, file).proof.first_bad
    assert bad is not None and bad.path == bad.site == "layer_0"
