"""Caffe's nets, held to OpenCV's reader of them in float32 and to porter's own engine in float64."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import FileError, MappingError, UsageError
from porter.filegraph.file_graph import Foreign
from porter.formats.caffe.text_format import parse_text
from porter.formats.reading import read_checkpoint
from porter.formats.recognition import recognise
from porter.frameworks.numpy.engine import build_file
from tests.support.caffe_files import run_by_opencv, write_caffe

pytestmark = pytest.mark.usefixtures("in_double")

SIZE = (33, 38)
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "conv1": [(8, 3, 7, 7), (8,)],
    "bn1": [(8,), (8,), (1,)],
    "scale1": [(8,), (8,)],
    "dw": [(8, 1, 3, 5)],
    "prelu": [(8,)],
    "up": [(8, 4, 4, 4), (4,)],
    "fc": [(6, 12 * 8 * 9), (6,)],
}
NET = """
name: "every layer"
input: "data"  # as before there was a layer for it
input_shape { dim: [1, 3, 33, 38] }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 8 kernel_size: 7 stride: 2 pad: 3 } }
layer { name: "bn1" type: "BatchNorm" bottom: "conv1" top: "conv1"
    batch_norm_param { use_global_stats: true eps: 0.001 } }
layer { name: "scale1" type: "Scale" bottom: "conv1" top: "conv1" scale_param { bias_term: true } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
    pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "dw" type: "Convolution" bottom: "pool1" top: "dw"
  convolution_param { num_output: 8 kernel_h: 3 kernel_w: 5 pad_h: 1 pad_w: 2 group: 8 bias_term: false } }
layer { name: "prelu" type: "PReLU" bottom: "dw" top: "prelu" }
layer { name: "sum" type: "Eltwise" bottom: "pool1" bottom: "prelu" top: "sum"
  eltwise_param { operation: SUM coeff: 1 coeff: -0.5 } }
layer { name: "lrn" type: "LRN" bottom: "sum" top: "lrn" lrn_param { local_size: 5 alpha: 0.5 beta: 0.75 } }
layer { name: "avg" type: "Pooling" bottom: "lrn" top: "avg"
    pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 } }
layer { name: "up" type: "Deconvolution" bottom: "avg" top: "up"
  convolution_param { num_output: 4 kernel_size: 4 stride: 2 pad: 1 } }
layer { name: "crop" type: "Crop" bottom: "up" bottom: "lrn" top: "crop" crop_param { axis: 2 offset: 1 } }
layer { name: "cat" type: "Concat" bottom: "crop" bottom: "lrn" top: "cat" }
layer { name: "drop" type: "Dropout" bottom: "cat" top: "cat" dropout_param { dropout_ratio: 0.5 } }
layer { name: "pow" type: "Power" bottom: "cat" top: "pow" power_param { scale: 2 shift: -0.25 } }
layer { name: "elu" type: "ELU" bottom: "pow" top: "elu" elu_param { alpha: 0.7 } }
layer { name: "fc" type: "InnerProduct" bottom: "elu" top: "fc" inner_product_param { num_output: 6 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""
OLDER = """
input: "data" input_dim: 1 input_dim: 3 input_dim: 33 input_dim: 38
layers { name: "conv1" type: CONVOLUTION bottom: "data" top: "conv1" blobs_lr: 1
  convolution_param { num_output: 8 kernel_size: 7 stride: 2 pad: 3 } }
layers { name: "relu1" type: RELU bottom: "conv1" top: "conv1" relu_param { negative_slope: 0.1 } }
layers { name: "pool1" type: POOLING bottom: "conv1" top: "pool1"
    pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 } }
layers { name: "tanh" type: TANH bottom: "pool1" top: "tanh" }
layers { name: "most" type: ELTWISE bottom: "pool1" bottom: "tanh" top: "most"
    eltwise_param { operation: MAX } }
layers { name: "cat" type: CONCAT bottom: "most" bottom: "tanh" top: "cat" concat_param { concat_dim: 1 } }
layers { name: "within" type: LRN bottom: "cat" top: "within"
  lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 norm_region: WITHIN_CHANNEL } }
layers { name: "over" type: POWER bottom: "within" top: "over" power_param { power: -1 scale: 0.5 shift: 9 } }
layers { name: "fc" type: INNER_PRODUCT bottom: "over" top: "fc" inner_product_param { num_output: 6 } }
layers { name: "prob" type: SOFTMAX bottom: "fc" top: "prob" }
"""
TRAINED = """
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { crop_size: 16 } data_param { source: "x" } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { crop_size: 15 } data_param { source: "x" } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
    convolution_param { num_output: 8 kernel_size: 7 } }
layer { name: "parts" type: "Slice" bottom: "conv1" top: "low" top: "high" slice_param { slice_point: 3 } }
layer { name: "least" type: "Pooling" bottom: "low" top: "least"
    pooling_param { pool: AVE global_pooling: true } }
layer { name: "most" type: "Pooling" bottom: "high" top: "most"
    pooling_param { pool: MAX global_pooling: true } }
layer { name: "cat" type: "Concat" bottom: "least" bottom: "most" top: "cat" }
layer { name: "flat" type: "Flatten" bottom: "cat" top: "flat" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "flat" bottom: "label" top: "loss" }
layer { name: "acc" type: "Accuracy" bottom: "flat" bottom: "label" top: "acc" include { phase: TEST } }
"""


def blobs(names: str, shapes: dict[str, list[tuple[int, ...]]] = SHAPES) -> dict[str, list[Any]]:
    random = np.random.default_rng(0)
    found: dict[str, list[Any]] = {}
    for name, sizes in shapes.items():
        if f'"{name}"' in names:
            arrays = [
                random.normal(0, 0.3 if len(size) > 2 else 0.03 if len(size) == 2 else 0.5, size).astype(
                    np.float32
                )
                for size in sizes
            ]
            found[name] = arrays
    if "bn1" in found:  # sums over 999 batches
        found["bn1"] = [
            found["bn1"][0] * 999,
            np.abs(found["bn1"][1]) * 999 + 300,
            np.array([998.5], np.float32),
        ]
    return found


@pytest.mark.parametrize(("net", "legacy"), [(NET, False), (OLDER, True)], ids=["net", "older"])
def test_every_layer_is_what_opencv_computes(net: str, legacy: bool, tmp_path: Path) -> None:
    shapes = SHAPES | ({"fc": [(6, 16 * 9 * 10), (6,)]} if legacy else {})
    file = write_caffe(tmp_path / "model", net, blobs(net, shapes), legacy)
    images = np.random.default_rng(1).normal(0, 1, (2, 3, *SIZE)).astype(np.float32)
    names = [name for name in re.findall(r'name: "(\w+)"', net) if name not in ("drop", "bn1")]
    own = build_file(read_checkpoint(file), "float64", SIZE)(images.astype(float), tuple(names))
    for name, wanted in run_by_opencv(file, images, names).items():
        assert own[name].shape == wanted.shape, name
        assert np.linalg.norm(own[name] - wanted) <= 1e-5 * np.linalg.norm(wanted), name
    made = porter.convert(file.with_suffix(".caffemodel"), to="torch", out=tmp_path / "port")
    assert (
        made.verdict is not None
        and made.verdict.ok
        and made.verdict.proof.reference == "the file's own graph"
    )
    steps = {"sum_product", "fc_flatten", "over_affine", "over_filled"}
    steps |= {"within_conv", "within_local_response_norm"}
    assert {*made.verdict.proof.uncompared} <= steps, "which are steps within a layer"
    assert [warning.partition("squares: ")[2] for warning in made.warnings] == [
        "the model's own layers take no other size"
    ]
    other = porter.convert(file, to="onnx", out=tmp_path / "other")
    assert (
        other.verdict is not None and other.verdict.ok and porter.verify(tmp_path / "other", weights=file).ok
    )


def test_a_size_that_the_layers_do_not_take_is_told_as_one(tmp_path: Path) -> None:
    file = write_caffe(tmp_path / "model", NET, blobs(NET))
    with pytest.raises(UsageError, match="the file works at 33x38 only") as caught:
        porter.convert(file, to="torch", input_size="33", out=tmp_path / "port")
    assert caught.value.where == "input_size"
    assert str(caught.value.next).startswith('write input_size="33x38"')


OPEN = """
layer { name: "data" type: "Input" top: "data" }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
    convolution_param { num_output: 4 kernel_size: 3 pad: 1 } }
layer { name: "dense" type: "InnerProduct" bottom: "conv" top: "dense" inner_product_param { num_output: 6 } }
"""


def test_a_net_that_states_no_size_has_the_users(tmp_path: Path) -> None:
    shapes: dict[str, list[tuple[int, ...]]] = {"conv": [(4, 3, 3, 3), (4,)], "dense": [(6, 4 * 9 * 7), (6,)]}
    file = write_caffe(tmp_path / "model", OPEN, blobs(OPEN, shapes))
    with pytest.raises(MappingError, match="without the input's size"):
        porter.convert(file, to="torch", out=tmp_path / "port")
    made = porter.convert(file, to="torch", input_size="9x7", out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.ok and made.port.record.input.size == (9, 7)


def test_a_net_of_training_is_read_without_it(tmp_path: Path) -> None:
    file = write_caffe(tmp_path / "train_val", TRAINED, blobs(TRAINED))
    made = porter.convert(file, to="torch", out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.ok
    assert (made.port.record.input.native_size, made.port.record.input.channels) == ((15, 15), 3)
    assert [node.path for node in made.port.graph.nodes][-1] == "flat"


def test_a_layer_of_more_blobs_than_caffe_s_is_refused(tmp_path: Path) -> None:
    """A fork's BatchNorm has a scale and a bias of its own."""
    stored = blobs(NET)
    stored["bn1"] += [stored["scale1"][0], stored["scale1"][1]]
    with pytest.raises(FileError, match="layer 'bn1' of the net has 3 blobs, and the weights have 5 of it"):
        read_checkpoint(write_caffe(tmp_path / "model", NET, stored))


@pytest.mark.parametrize("factor", [1.0, 0.0])
def test_what_divides_the_sums_of_a_norm(factor: float, tmp_path: Path) -> None:
    stored = blobs(NET)
    stored["bn1"][2][0] = factor
    file = write_caffe(tmp_path / "model", NET, stored)
    norm = read_checkpoint(file).graph.by_name["scale1"].tensors  # type: ignore[union-attr]
    assert norm["mean"].name == ("bn1/0" if factor else "bn1/0 / bn1/2")
    assert porter.convert(file, to="torch", out=tmp_path / "port").verdict.ok  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("what", "net", "said"),
    [
        ("no layer", 'layer { name: "a" type: "ReLU" bottom: "x" top: "y" }',
            "reads 'x', which no layer before it gives"),
        ("no end", 'layer { name: "a"', "a message does not end"),
        ("no begin", NET + "}", "a message ends that has not begun"),
        ("no word", NET.replace('"conv1"', '"conv1', 1), "is no protobuf text"),
        ("oldest", 'layers { layer { name: "a" type: "relu" } bottom: "d" top: "a" }', "first format"),
        ("no image", NET.replace('input: "data"', 'layer { type: "Data" }'),
            "reads 'data', which no layer before it gives"),
        ("no axis", NET.replace("scale_param { bias", "scale_param { axis: x bias", 1),
            "invalid literal for int() with base 10: 'x'"),
        ("no weights", NET.replace('name: "dw"', 'name: "dwise"'),
            "'dwise' of the net has 1 blobs, and the weights have 0"),
    ],
)  # fmt: skip
def test_a_damaged_net_is_one_error(what: str, net: str, said: str, tmp_path: Path) -> None:
    file = write_caffe(tmp_path / "model", net, blobs(NET))
    with pytest.raises(FileError, match=re.escape(said)):
        read_checkpoint(file)


@pytest.mark.parametrize(("layer", "shape"), [("conv1", (1176,)), ("fc", (2, 6, 432))])
def test_a_kernel_of_other_axes_is_one_error(layer: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    stored = blobs(NET)
    stored[layer][0] = stored[layer][0].ravel()[: math.prod(shape)].reshape(shape)
    file = write_caffe(tmp_path / "model", NET.replace("dim: [1, 3, 33, 38]", ""), stored)
    with pytest.raises(FileError, match=rf"blob 0 of layer '{layer}' has shape \[{shape[0]}.*no kernel of"):
        read_checkpoint(file)


@pytest.mark.parametrize("size", [0, -3, 65, 32767])
def test_a_norm_over_more_cells_than_memory_holds_is_not_read(size: int, tmp_path: Path) -> None:
    net = NET.replace("local_size: 5", f"local_size: {size} norm_region: WITHIN_CHANNEL")
    graph = read_checkpoint(write_caffe(tmp_path / "model", net, blobs(NET))).graph
    assert graph is not None and isinstance(graph.by_name["lrn"].op, Foreign)


def test_weights_without_their_net_and_a_net_without_its_weights(tmp_path: Path) -> None:
    file = write_caffe(tmp_path / "model", NET, blobs(NET))
    weights = file.with_suffix(".caffemodel")
    file.rename(tmp_path / "net.txt")
    bare = read_checkpoint(weights)
    factor = blobs(NET)["bn1"][2][0]
    assert bare.graph is None and "bn1/2" not in bare.tensors and "there is none beside it" in bare.notes[0]
    assert np.array_equal(bare.tensors["bn1/0"], blobs(NET)["bn1"][0].astype(float) * (1 / float(factor)))
    (tmp_path / "net.txt").rename(file)
    weights.unlink()
    with pytest.raises(
        FileError,
        match=r"weights are in a \.caffemodel beside it: there is none \(name it model\.caffemodel\)",
    ):
        read_checkpoint(file)


def test_the_content_tells_the_format(tmp_path: Path) -> None:
    file = write_caffe(tmp_path / "model", NET, blobs(NET))
    assert (recognise(file).name, recognise(file.with_suffix(".caffemodel")).name) == ("caffe-net", "caffe")
    assert parse_text("a: 1 a: 2; b { c: 'x' } d <e: [1, 2]>").part("d").counts("e") == [1, 2]
