"""An ONNX model's input that is no map: the port has its axes, and computes the model's function of it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import porter
from porter.base.errors import PorterError, UsageError
from porter.cli import inspect_text
from porter.port import NOT_MADE, PASSED
from tests.support.node_tests import run

onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")

STORED = {
    "k": np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5),
    "rows": np.linspace(-1, 2, 15, dtype=np.float32).reshape(3, 5),
    "two": np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4),
    "row": np.linspace(1, 2, 4, dtype=np.float32),
}
WHOLE = "its input {} has no batch: the port takes N such inputs"
CASES = {
    "a vector": ("N,4", "y = Gemm (x, k)", ""),
    "a number": ("N,3", "y = ReduceMax <axes=[1], keepdims=0> (x)", ""),
    "tokens": ("2,3,4", "y = MatMul (x, k)", ""),
    "open tokens": ("N,l,4", "z = Transpose <perm=[0, 2, 1]> (x) y = Softmax <axis=1> (z)", ""),
    "of five axes": ("2,3,4,2,4", "y = MatMul (x, k)", ""),
    "a product of vectors": ("4", "y = MatMul (x, row)", WHOLE.format("4")),
    "windows": ("2,3,4,5", "y = Flatten <axis=2> (x)", ""),
    "the first axis turned": (
        "4,3",
        "y = Gemm <transA=1, alpha=0.5, beta=2.0> (x, k, rows)",
        WHOLE.format("4x3"),
    ),
    "the first axis joined": ("3,4", "y = Concat <axis=0> (two, x, two)", WHOLE.format("3x4")),
    "the first axis moved": ("2,3,4,5", "y = Transpose <perm=[1, 3, 0, 2]> (x)", WHOLE.format("2x3x4x5")),
    "over the first axis": ("3,4", "z = Softmax <axis=0> (x) y = Add (z, row)", WHOLE.format("3x4")),
}


def model(shape: str, text: str) -> Any:
    graph = onnx.parser.parse_graph(f"g (float[{shape}] x) => (float[] y) {{ {text} }}")
    graph.output[0].type.tensor_type.ClearField("shape")
    graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in STORED.items() if name in text
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("name", CASES)
def test_an_input_that_is_no_map_has_its_axes_in_the_port(name: str, tmp_path: Path) -> None:
    shape, text, note = CASES[name]
    made, path = model(shape, text), tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    x = np.random.default_rng(0).normal(
        size=[int(size) if size.isdigit() else 5 for size in shape.split(",") if size]
    )
    size = "5x4" if "l" in shape else None
    # The file's own graph takes parts of the batch, or one image at a time.
    check = name in ("windows", "a product of vectors")
    port = porter.convert(path, out=tmp_path / "port", input_size=size, check=check, keep_activation=True)
    assert port.record()["check"] == (PASSED if check else NOT_MADE) and note in (
        *port.port.record.source.notes,
        "",
    )
    assert port.port.record.input.native_size[0] > 1 or not port.warnings
    (found,) = run(tmp_path / "port", "torch", x=x)
    (wanted,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x.astype(np.float32)})
    np.testing.assert_allclose(found.ravel(), wanted.ravel(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "to"),
    [
        *(
            (name, to)
            for name in ("a vector", "open tokens", "of five axes")
            for to in ("torch", "tf", "onnx")
        ),
        *(("a vector", to) for to in ("caffe", "mxnet")),
    ],
)
def test_a_port_keeps_the_rank_of_its_input(name: str, to: str, tmp_path: Path) -> None:
    shape, text, _ = CASES[name]
    made, path = model(shape, text), tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    port = porter.convert(
        path, to=to, out=tmp_path / "port", input_size="6x4" if "l" in shape else None, keep_activation=True
    )
    assert (
        port.verdict is not None
        and port.verdict.proof.proves
        and not any("squares" in each for each in port.warnings)
    )
    sizes = [int(size) if size.isdigit() else 6 for size in shape.split(",")]
    x = np.random.default_rng(0).normal(size=sizes).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    loaded, given = porter.load(tmp_path / "port"), torch.from_numpy(x) if to == "torch" else x
    models = [
        loaded,
        *(
            [runpy.run_path(str(tmp_path / "port/model.py"))["load"](tmp_path / "port")]
            if to == "torch"
            else []
        ),
    ]
    for each in models:
        found = np.asarray(each(given).detach() if to == "torch" else each(given))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, strict=True)
    for wrong in (given[:, None], given[..., :2], given[0]):
        for each in models:
            with pytest.raises((PorterError, ValueError)):
                each(wrong)
    with pytest.raises(UsageError, match=r"takes N x .*, no photos"):
        porter.predict(tmp_path / "port", ["photo.png"])
    # A port without tensors is no file to inspect.
    for each in (path, *([tmp_path / "port"] if name == "a vector" else [])):
        assert any("; input N x " in line for line in inspect_text.inspection(porter.inspect(each)))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("N,a,b,c,d", "and others of known sizes; found 'x'"),
        ("N,9000", "a tensor that can be one"),
        (f"N{',2' * 11}", "found 'x'"),
        (",".join("2" * 12), "found 'x'"),
    ],
)
def test_an_input_that_no_map_can_hold_is_refused(shape: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(model(shape, "y = Mul (x, row)").SerializeToString())
    with pytest.raises(UsageError, match=words):
        porter.convert(tmp_path / "model.onnx", out=tmp_path / "port")
