"""`--outputs`: a file whose graph goes on where porter has no op is ported up to the values that a user
names.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.port import read_port
from porter.reporting.command_lines import convert as convert_line
from tests.support.fixtures import Cli
from tests.support.refusals import refused
from tests.unit.formats.onnx.test_read import model, written

SIZE = 24
pytestmark = pytest.mark.usefixtures("one_recipe", "in_double")


def of_torch(path: Path) -> Path:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv2d(3, 6, 3, 2, 1)
            self.head = torch.nn.Conv2d(6, 8, 3, 2, 1)

        def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            found = self.head(self.stem(image).relu())
            scores = found.flatten(2).transpose(1, 2).softmax(-1)
            return torch.topk(scores.cumsum(1), 5).values, found

    torch.manual_seed(0)
    torch.export.save(
        torch.export.export(Net().eval(), (torch.rand(1, 3, SIZE, SIZE),)), path.with_suffix(".pt2")
    )
    return path.with_suffix(".pt2")


def of_onnx(path: Path) -> Path:
    onnx = pytest.importorskip("onnx")
    text = f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[1,3,{SIZE},{SIZE}] image) => (int64[n,3] picked, float[1,6,11,11] low)
        <int64[3] cells = {{1, 4, 121}}, int64[3] kinds = {{1, 2, 121}}, int64[1] most = {{5}}>
        {{
            low = Conv <strides = [2,2]> (image, stem)
            places, marks = Split <axis = 1> (low, parts)
            square = Reshape (places, cells)
            boxes = Transpose <perm = [0,2,1]> (square)
            scores = Reshape (marks, kinds)
            picked = NonMaxSuppression (boxes, scores, most)
        }}"""
    model: Any = onnx.parser.parse_model(text)
    kernel = np.random.default_rng(0).standard_normal((6, 3, 3, 3)).astype(np.float32)
    stored = (
        onnx.numpy_helper.from_array(kernel, "stem"),
        onnx.numpy_helper.from_array(np.array([4, 2]), "parts"),
    )
    model.graph.initializer.extend(stored)
    onnx.save(model, path.with_suffix(".onnx"))
    return path.with_suffix(".onnx")


def keras_model() -> Any:
    import keras

    keras.utils.set_random_seed(0)
    image = keras.Input((SIZE, SIZE, 3))
    low = keras.layers.Conv2D(6, 3, strides=2, padding="same", name="stem")(image)
    bent = keras.layers.Conv2D(4, 3, activation="relu", name="bent")(low)
    lengths = [keras.ops.cumsum(each, -1) for each in (keras.layers.ReLU(name="relu")(low), bent, low)]
    other = keras.layers.Conv2D(4, 3, activation="sparsemax", name="other")(low)
    return keras.Model(image, [*map(keras.layers.GlobalMaxPooling2D(), lengths), other, low])


def of_keras(path: Path) -> Path:
    keras_model().save(path.with_suffix(".keras"))
    return path.with_suffix(".keras")


def of_keras_h5(path: Path) -> Path:
    keras_model().save(path.with_suffix(".h5"))
    return path.with_suffix(".h5")


def graph() -> tuple[Any, Any]:
    import tensorflow as tf

    kernel = tf.Variable(np.random.default_rng(0).standard_normal((3, 3, 3, 6)), dtype=tf.float32)

    @tf.function(input_signature=[tf.TensorSpec([None, SIZE, SIZE, 3])])
    def net(image: Any) -> Any:
        low = tf.nn.relu(tf.nn.conv2d(image, kernel, 2, "SAME"), name="low")
        return {
            "sums": tf.math.cumulative_logsumexp(tf.reduce_mean(low, [1, 2]), axis=1),
            "low": tf.nn.max_pool2d(low, 2, 2, "SAME"),
        }

    return net, kernel


def of_saved_model(path: Path) -> Path:
    import tensorflow as tf

    module = tf.Module()
    module.net, module.kernel = graph()
    tf.saved_model.save(module, str(path))
    return path


def of_frozen_graph(path: Path) -> Path:
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    net, kernel = graph()
    frozen = convert_variables_to_constants_v2(net.get_concrete_function()).graph.as_graph_def()
    del kernel  # a function holds its variables only while something else does
    path.with_suffix(".pb").write_bytes(frozen.SerializeToString())
    return path.with_suffix(".pb")


FILES = (of_torch, of_onnx, of_keras, of_keras_h5, of_saved_model, of_frozen_graph)


@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
def test_the_cut_that_a_refusal_proposes_works(
    make: Callable[[Path], Path], tmp_path: Path, cli: Cli
) -> None:
    file = make(tmp_path / "net")
    ran = cli("convert", file, "--to", "torch", "--out", "port")
    refused(ran, "porter has no op for", "ends the graph before them")
    (names,) = re.findall(r"--outputs (\S+) ends", ran.err)
    made = cli("convert", file, "--to", "torch", "--outputs", names, "--out", "port")
    assert made.status == 0 and "float64: same function as the file's own graph" in made.out, made.err
    port, one = read_port(tmp_path / "port"), read_port(tmp_path / "port").record
    assert one.ended_at == tuple(names.split(",")) and len(port.graph.outputs) == names.count(",") + 1
    assert cli("verify port --weights", file).status == 0
    assert cli(*shlex.split(convert_line(one, "again"))[1:], "--no-check").status == 0
    two = read_port(tmp_path / "again").record
    assert (one.graph, one.model, one.ended_at) == (two.graph, two.model, two.ended_at)


def test_a_cut_model_runs_without_the_kernels_behind_the_cut(tmp_path: Path, cli: Cli) -> None:
    made = written(model("low = Conv (x, k6) y = Conv (low, k3)", image=("N", 6, SIZE, SIZE)), tmp_path)
    ran = cli("convert", made, "--to", "torch", "--outputs", "low", "--out", "port")
    assert "float32: same function as the file's own graph" in ran.out and "warning" not in ran.out, ran.out
    assert cli("verify port --weights", made).status == 0


@pytest.mark.parametrize("image", [("N", 3, SIZE, SIZE), ("N", 3, SIZE)])
def test_no_graph_ends_before_its_first_layer(image: tuple[Any, ...], tmp_path: Path, cli: Cli) -> None:
    made = written(model("low = Hardmax (x) high = Relu (low)", image=image), tmp_path)
    refused(
        cli("convert", made, "--to", "torch"),
        "porter has no op for 'low'",
        "port the layers behind them alone, which then take",
    )


@pytest.mark.parametrize("batch", ["N", 2, 1])
def test_an_output_that_joins_the_images_with_something_is_refused(
    batch: int | str, tmp_path: Path, cli: Cli
) -> None:
    """Of a file for one image the port has a free batch, and gives the channels of each."""
    made = written(
        model("low = Conv (x, k3) high = Flatten <axis = 2> (low)", image=(batch, 6, SIZE, SIZE)), tmp_path
    )
    ran = cli("convert", made, "--to", "torch", "--out", "port")
    if batch == 1:
        assert ran.status == 0 and read_port(tmp_path / "port").record.output_layouts == ("file",)
    else:
        refused(
            ran,
            "'high' (an output whose first axis has more than the images)",
            "--outputs low ends the graph before them",
        )


def test_what_no_graph_has_is_refused(tmp_path: Path, cli: Cli) -> None:
    file = of_onnx(tmp_path / "net")
    refused(
        cli("convert", file, "--to", "torch", "--outputs", "lo"),
        "no value 'lo' (write the file's own name",
        "such as low",
    )
    ran = cli("convert resnet18 --from torch --to tf --outputs low")
    refused(ran, "--outputs: a port by a recipe (--from) always gives logits")
    assert cli("convert", file, "--to", "torch", "--outputs", "low", "--out", "port").status == 0
    refused(
        cli("convert port --to tf --outputs low"), "--outputs", "leave out --outputs, or convert net.onnx"
    )
    numbers = tmp_path / "net.npz"
    np.savez(numbers, kernel=np.zeros(3))
    refused(cli("convert", numbers, "--to", "torch", "--outputs", "low"), "--outputs: ", "carries no graph")


def test_what_has_no_op_is_said_before_a_size_is_asked_for(tmp_path: Path, cli: Cli) -> None:
    onnx = pytest.importorskip("onnx")
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> net (float[1,3,H,W] image) => (float[1,3,H,W] y) { '
        "y = Atan (image) }"
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    refused(cli("convert", tmp_path / "net.onnx", "--to", "torch"), "porter has no op for 'y' (Atan)")


def test_tensors_of_torch_without_a_recipe_are_told_how_a_graph_is_saved(tmp_path: Path, cli: Cli) -> None:
    import torch

    torch.save({"own.weight": torch.rand(3, 3)}, tmp_path / "net.pth")
    refused(
        cli("convert", tmp_path / "net.pth", "--to", "tf"),
        "no graph",
        "torch.export.save(torch.export.export(model.eval()",
    )


def test_what_a_destination_cannot_say_is_named_as_the_file_does_with_where_to_end(
    tmp_path: Path, cli: Cli
) -> None:
    made = written(
        model("a = Relu (x)\n b = Conv <pads = [1, 1, 1, 1]> (a, k3)\n c = Softplus (b)\n y = Relu (a)"),
        tmp_path,
    )
    ran = cli("convert", made, "--to", "mxnet", "--out", tmp_path / "port")
    refused(ran, "c: MXNet's softrelu is x above 20", "--outputs b,y)")
    cli("convert", made, "--to", "mxnet", "--out", tmp_path / "port", "--outputs", "b,y")
    assert read_port(tmp_path / "port").record.ended_at == ("b", "y")


def test_pads_says_what_a_destination_refuses_and_where_to_end_before_all_of_it(
    tmp_path: Path, cli: Cli
) -> None:
    text = (
        "a = Relu (x)\n b = Softplus (a)\n c = Softplus (a)\n d = Add (b, c)\n e = Softplus (d)\n y = "
        "Conv (a, k3)"
    )
    made = written(model(text), tmp_path)
    why, next = "MXNet's softrelu is x above 20, not log(1 + exp(x))", "before them: --outputs a,y"
    found = json.loads(cli("pads", made, "--to", "mxnet", "--json").out)
    assert [(each["node"], each["why"]) for each in found["refused"]] == [(name, why) for name in "bce"]
    assert all(each["next"].endswith(next) and "--to onnx" in each["next"] for each in found["refused"])
    lines = cli("pads", made, "--to", "mxnet").out.splitlines()
    assert [line.split(maxsplit=1) for line in lines if line.endswith(why)] == [[name, why] for name in "bce"]
    assert lines[-1].startswith("next: ") and lines[-1].endswith(next)
    refused(cli("convert", made, "--to", "mxnet"), f"b: {why}", next)
    assert cli("convert", made, "--to", "mxnet", "--outputs", "a,y", "--no-check").status == 0
    assert not json.loads(cli("pads", made, "--to", "onnx", "--json").out)["refused"]
    assert len(json.loads(cli("pads", made, "--to", "caffe", "--json").out)["refused"]) == 0
    variant = json.loads(cli("pads vit_b_16 --from torchvision --to caffe --json").out)
    assert "arrays of other axes" in variant["refused"][0]["why"]


def onnx_of_two_images(path: Path) -> tuple[Path, str]:
    made = model("low = Conv (x, k6) high = Conv (map, k6) y = Add (low, high)", image=("N", 6, SIZE, SIZE))
    made.graph.initializer.remove(next(tensor for tensor in made.graph.initializer if tensor.name == "map"))
    made.graph.input.add(name="map", type=made.graph.input[0].type)
    return written(made, path), "high"


def export_of_two_images(path: Path) -> tuple[Path, str]:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.low, self.high = torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(3, 4, 3)

        def forward(self, image: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return self.low(image) + self.high(other)

    images = torch.zeros(1, 3, SIZE, SIZE), torch.ones(1, 3, SIZE, SIZE)
    torch.export.save(torch.export.export(Net().eval(), images), path / "net.pt2")
    return path / "net.pt2", "value_conv2d_1"


def saved_model_of_two_images(path: Path) -> tuple[Path, str]:
    import tensorflow as tf

    module, image = tf.Module(), tf.TensorSpec([None, SIZE, SIZE, 3])
    module.kernel = tf.Variable(np.random.default_rng(0).standard_normal((3, 3, 3, 6)), dtype=tf.float32)

    def net(one: Any, other: Any) -> Any:
        return {
            "sum": tf.nn.conv2d(one, module.kernel, 1, "SAME")
            + tf.nn.conv2d(other, module.kernel, 1, "SAME", name="high")
        }

    module.net = tf.function(net, input_signature=[image, image])
    tf.saved_model.save(module, str(path / "net"), signatures=module.net)
    return path / "net", "high"


@pytest.mark.parametrize("make", [onnx_of_two_images, export_of_two_images, saved_model_of_two_images])
def test_an_input_that_the_chosen_outputs_do_not_need_is_left_out(
    make: Any, tmp_path: Path, cli: Cli
) -> None:
    file, name = make(tmp_path)
    whole = cli("convert", file, "--to", "torch", "--no-check", "--out", "whole")
    assert whole.status == 0 and len(read_port(tmp_path / "whole").graph.inputs) == 2, whole.err
    ran = cli("convert", file, "--to", "torch", "--outputs", name, "--out", "port")
    assert "float64: same function as the file's own graph" in ran.out, ran.err
    assert len(read_port(tmp_path / "port").graph.inputs) == 1
    assert cli("verify port --weights", file).status == 0


def test_what_a_stated_size_does_not_help_is_said_of_that_size(tmp_path: Path, cli: Cli) -> None:
    """Of an open size the Range is not known, and at a stated one all but the last op is."""
    text = """s = Shape (x) h = Gather (s, rows) r = Range (first, h, next) c = Cast <to=1> (r)
    t = Transpose <perm=[0, 1, 3, 2]> (x) a = Add (t, c) y = Atan (a)"""
    made = written(model(text, image=("N", 6, "rows", 11)), tmp_path)
    refused(
        cli("convert", made, "--to", "torch", "--input-size", f"{SIZE}x11"),
        "porter has no op for 'y' (Atan)",
        "--outputs a ends",
    )
    ran = cli(
        "convert", made, "--to", "torch", "--input-size", f"{SIZE}x11", "--outputs", "a", "--out", "port"
    )
    assert ran.status == 0, ran.err


def test_a_quantised_model_is_told_to_be_taken_from_before_that(tmp_path: Path, cli: Cli) -> None:
    made = written(
        model(
            "q, s, z = DynamicQuantizeLinear (x) y = DequantizeLinear (q, s, z)", image=("N", 6, SIZE, SIZE)
        ),
        tmp_path,
    )
    refused(
        cli("convert", made, "--to", "torch"),
        "DynamicQuantizeLinear",
        "name the file that it was quantised from",
    )


def test_what_a_dict_of_keras_gives_keeps_its_order_its_names_and_the_layout_of_maps(tmp_path: Path) -> None:
    import keras

    image = keras.Input((6, 7, 3))
    low = keras.layers.Conv2D(4, 3)(image)
    whole = {"whole": keras.layers.LayerNormalization(axis=[1, 2, 3])(low), "low": low}
    rest = {"cells": keras.layers.Reshape((20, 4))(low), "few": keras.layers.GlobalAveragePooling2D()(low)}
    keras.Model(image, whole | rest).save(tmp_path / "net.keras")
    for framework, of_maps in (("torch", "NCHW"), ("tf", "NHWC")):
        port = porter.convert(tmp_path / "net.keras", to=framework, out=tmp_path / framework).port
        record = read_port(port.folder).record
        assert record.proved and record.output_names == ("whole", "low", "cells", "few")
        assert record.output_layouts == (of_maps, of_maps, "file", "NC")
