"""`--input-size` of a file whose input is open, and whose graph computes with its size what porter has no op for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import porter
from porter.port import read_port
from tests.conftest import Cli, refused

pytestmark = pytest.mark.usefixtures("one_recipe")


def detector(path: Path) -> Path:
    """A file whose boxes are beside the places of their cells, counted as the model runs."""
    onnx = pytest.importorskip("onnx")
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[1,3,h,w] image) => (float[1,2,n] boxes)
        <int64 zero = {0}, int64 one = {1}, int64[1] first = {0}, int64[1] second = {1}, int64 two = {2}, int64 three = {3},
         int64[3] flat = {1, 2, -1}>
        {
            cells = Conv <strides = [2, 2]> (image, stem)
            sides = Shape (cells)
            rows = Gather (sides, two)
            columns = Gather (sides, three)
            y = Range (zero, rows, one)
            x = Range (zero, columns, one)
            standing = Unsqueeze (y, second)
            lying = Unsqueeze (x, first)
            ones = ConstantOfShape <value = int64[1] {1}> (sides)
            every = Squeeze (ones, first)
            field = Slice (every, first, second)
            down = Mul (standing, field)
            along = Mul (lying, field)
            places = Concat <axis = 0> (down, along)
            real = Cast <to = 1> (places)
            anchors = Reshape (real, flat)
            offsets = Reshape (cells, flat)
            boxes = Add (offsets, anchors)
        }""")
    kernel = np.random.default_rng(0).standard_normal((2, 3, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "stem"))
    onnx.save(model, path)
    return path


def test_a_graph_is_read_at_the_size_that_a_user_states(cli: Cli, tmp_path: Path) -> None:
    file, port = detector(tmp_path / "detector.onnx"), tmp_path / "port"
    assert "(say at which size the model runs: --input-size ROWSxCOLUMNS, which" in cli("inspect", file).out
    refused(cli("convert", file, "--to", "torch"), "porter has no op for 'y' (Range)", "--input-size ROWSxCOLUMNS")
    line = cli("inspect", file, "--input-size", "100x120").out.splitlines()[-1]
    assert line.endswith("--input-size 100x120")
    converted = cli("convert", file, "--to", "torch", "--input-size", "100x120", "--out", port)
    assert converted.status == 0, converted.err
    record = read_port(port).record
    assert record.input.size == (100, 120)
    assert cli("verify", port, "--weights", file).status == 0
    image = torch.randn(1, 3, 100, 120)
    runtime = pytest.importorskip("onnxruntime").InferenceSession(str(file), providers=["CPUExecutionProvider"])
    expected = runtime.run(None, {"image": image.numpy()})[0]
    assert np.allclose(porter.load(port)(image).detach().numpy(), expected, rtol=1e-5, atol=1e-5)
