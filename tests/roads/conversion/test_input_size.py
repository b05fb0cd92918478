"""The sizes that a port takes, of files whose graph computes with its input's size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import porter
from porter.port import read_port
from tests.support.fixtures import Cli
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("one_recipe")


def detector(path: Path) -> Path:
    """A file whose boxes are beside the places of their cells, counted as the model runs."""
    onnx = pytest.importorskip("onnx")
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[1,3,h,w] image) => (float[1,2,n] boxes)
        <int64 zero = {0}, int64 one = {1}, int64[1] first = {0}, int64[1] second = {1}, int64 two = {2},
         int64 three = {3},
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
    for size in ((), ("--input-size", "any")):
        refused(
            cli("convert", file, "--to", "torch", *size),
            "porter has no op for 'y' (Range with a size that depends on the input's)",
            "--input-size ROWSxCOLUMNS",
        )
    line = cli("inspect", file, "--input-size", "100x120").out.splitlines()[-1]
    assert line.endswith("--input-size 100x120")
    converted = cli("convert", file, "--to", "torch", "--input-size", "100x120", "--out", port)
    assert converted.status == 0, converted.err
    record = read_port(port).record
    assert record.input.size == (100, 120)
    assert cli("verify", port, "--weights", file).status == 0
    image = torch.randn(1, 3, 100, 120)
    runtime = pytest.importorskip("onnxruntime").InferenceSession(
        str(file), providers=["CPUExecutionProvider"]
    )
    expected = runtime.run(None, {"image": image.numpy()})[0]
    assert np.allclose(porter.load(port)(image).detach().numpy(), expected, rtol=1e-5, atol=1e-5)


def saved_model(folder: Path, make: Callable[[Any, Any, Any], Any]) -> Callable[[Any], Any]:
    """A SavedModel for images of 32x48, as what it computes of any: `make` goes on from the image and a map
    of half its size.
    """
    tf = pytest.importorskip("tensorflow")
    module = tf.Module()
    module.kernel = tf.Variable(
        np.random.default_rng(0).standard_normal((3, 3, 3, 4)) * 0.2, dtype=tf.float32
    )

    def net(image: Any) -> Any:
        return make(tf, image, tf.nn.max_pool2d(tf.nn.conv2d(image, module.kernel, 1, "SAME"), 2, 2, "SAME"))

    module.served = tf.function(net, input_signature=[tf.TensorSpec((None, 32, 48, 3), tf.float32)])
    tf.saved_model.save(module, str(folder), signatures=module.served)
    return net


@pytest.mark.parametrize(
    "make",
    [
        lambda tf, image, half: tf.image.resize(half, tf.shape(image)[1:3]),
        lambda tf, image, half: tf.concat([image, tf.image.resize(half, tf.shape(image)[1:3])], -1),
        lambda tf, image, half: tf.image.resize(half, (32, 48)),
        lambda tf, image, half: tf.image.resize(half, 2 * tf.shape(half)[1:3], "nearest"),
    ],
)
def test_what_a_graph_resizes_to_is_no_number_of_the_one_size_that_it_states(
    make: Any, tmp_path: Path
) -> None:
    net = saved_model(tmp_path / "net", make)
    made = porter.convert(tmp_path / "net", to="torch", out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.proof.proves and made.port.record.input.size is None
    assert all(rows != columns for rows, columns in made.verdict.parities[-1].sizes)
    image = np.random.default_rng(0).standard_normal((1, 33, 47, 3)).astype(np.float32)
    expected = net(image).numpy().transpose(0, 3, 1, 2)
    given = porter.load(tmp_path / "port")(torch.tensor(image.transpose(0, 3, 1, 2))).detach().numpy()
    assert given.shape == expected.shape and np.allclose(given, expected, rtol=1e-5, atol=1e-5)


def test_a_graph_with_numbers_of_its_size_holds_at_that_size_only(cli: Cli, tmp_path: Path) -> None:
    saved_model(tmp_path / "net", lambda tf, image, half: tf.reshape(half, (-1, 16 * 24, 4)))
    refused(
        cli("convert", tmp_path / "net", "--to", "torch", "--input-size", "any"),
        "works at 32x48 only",
        "write --input-size 32x48, or",
    )
    assert (
        "input 32x48 only" in cli("convert", tmp_path / "net", "--to", "torch", "--input-size", "32x48").out
    )


def test_a_model_whose_rows_only_are_open_holds_at_its_columns_only(cli: Cli, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    text = "net (float[n,3,h,48] image) => (float[n,3,h,48] y) { y = Relu (image) }"
    onnx.save(
        onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'), tmp_path / "net.onnx"
    )
    refused(
        cli("convert", tmp_path / "net.onnx", "--to", "torch"), "an input of ?x48", "--input-size ROWSx48"
    )
    refused(
        cli("convert", tmp_path / "net.onnx", "--to", "torch", "--input-size", "64"),
        "works at 64x48 only",
        "write --input-size 64x48, or",
    )
    assert cli("inspect", tmp_path / "net.onnx").out.rstrip().endswith("--input-size 224x48")
    ran = cli("convert", tmp_path / "net.onnx", "--to", "torch", "--input-size", "64x48")
    assert "input 64x48 only" in ran.out and "same function as the file's own graph at 64x48" in ran.out
