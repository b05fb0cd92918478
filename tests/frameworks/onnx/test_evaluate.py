"""ONNX models as evaluations run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import UsageError
from porter.data.pipeline import normalise
from porter.formats.reading import read_checkpoint
from porter.frameworks.onnx import destination as framework
from porter.graph import INPUT, Graph, Identity, Node
from porter.graph.plan import make_plan
from porter.padding import ANY
from tests.evaluation.protocols import PROTOCOLS, pixels_of

pytest.importorskip("onnxruntime")

PLAN = make_plan(Graph((Node("shown", Identity(), (INPUT,)),), 3, "shown"), ANY, framework.CAPABILITIES)


def port(folder: Path) -> tuple[Any, str | None]:
    return framework.ENGINE.build(PLAN, {}, {}, "float32"), None


def file(folder: Path) -> tuple[Any, str | None]:
    framework.write(folder, PLAN, {}, {}, "float32", {})
    return framework.ENGINE.build_file(read_checkpoint(folder / "model.onnx"), "float32", ANY), "shown"


@pytest.mark.parametrize("make", [port, file])
@pytest.mark.parametrize("crops", [1, 10])
def test_pixels_are_scaled_as_porter_data_does(tmp_path: Path, make: Any, crops: int) -> None:
    model, tap = make(tmp_path)
    for protocol in PROTOCOLS:
        pixels = pixels_of(protocol, photos=3, crops=crops)
        got = framework.ENGINE.classifier(model, protocol, "cpu", "fp32", tap)(pixels)()
        assert got.dtype == np.float32 and np.array_equal(got, normalise(pixels, protocol).reshape(3 * crops, -1))


def test_what_onnx_models_do_not_run_in_is_refused(tmp_path: Path) -> None:
    (ours, _), (theirs, _) = port(tmp_path), file(tmp_path)
    with pytest.raises(UsageError, match="in fp32"):
        framework.ENGINE.classifier(ours, PROTOCOLS[0], "cpu", "bf16")
    with pytest.raises(UsageError, match="only values that are named"):
        framework.ENGINE.classifier(theirs, PROTOCOLS[0], "cpu", "fp32")
