"""ONNX models as evaluations run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import CannotRun, UsageError
from porter.base.ways_to_run import FP32, Run
from porter.data.preparing import normalise
from porter.formats.reading import read_checkpoint
from porter.frameworks.onnx.destination import DESTINATION as framework
from porter.frameworks.onnx.session import make_session
from porter.graph import INPUT, Graph, Identity, Node
from porter.graph.plan import make_plan
from porter.padding import ANY
from tests.support.evaluation.protocols import PROTOCOLS, pixels_of

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
        got = framework.ENGINE.classifier(model, protocol, "cpu", FP32, tap)(pixels)()
        assert got.dtype == np.float32 and np.array_equal(
            got, normalise(pixels, protocol).reshape(3 * crops, -1)
        )


def test_what_onnxruntime_cannot_run_is_one_error_and_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    text = "g (float[N, 3] x) => (float[N, 3] y) { y = Relu <alpha=0.5> (x) }"
    opset = onnx.helper.make_opsetid("", 20)
    model = onnx.helper.make_model(onnx.parser.parse_graph(text), ir_version=9, opset_imports=[opset])
    model.ParseFromString(model.SerializeToString().replace(b"alpha", b"alph\xff"))
    with pytest.raises(CannotRun, match="onnxruntime cannot run this model"):
        make_session(model, {}, optimised=False)
    assert capsys.readouterr().out == ""


def test_what_onnx_models_do_not_run_in_is_refused(tmp_path: Path) -> None:
    (ours, _), (theirs, _) = port(tmp_path), file(tmp_path)
    with pytest.raises(UsageError, match="in fp32"):
        framework.ENGINE.classifier(ours, PROTOCOLS[0], "cpu", Run("bf16"))
    with pytest.raises(UsageError, match="it gives no output by default"):
        framework.ENGINE.classifier(theirs, PROTOCOLS[0], "cpu", FP32)
