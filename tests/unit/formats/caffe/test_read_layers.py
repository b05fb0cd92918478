"""Every layer of Caffe's with its parameters, by the reader's graph and by porter's own engine, held to what
OpenCV computes: the two could share a mistake. OpenCV does not read the `transpose` of an InnerProduct, the
`k` of an LRN, the dilation of a Deconvolution, the parameters of a Log, the `eps` of an MVN, a Bias, nor a
Slice without points.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from porter.filegraph.file_graph import Foreign
from porter.formats.reading import read_checkpoint
from porter.frameworks.numpy.engine import build_file, run_reference
from tests.support.arrays import Array
from tests.support.caffe_files import run_by_opencv, write_caffe
from tests.support.filegraph.values import distance, values_of

IMAGE = (2, 4, 7, 6)
HEAD = f'input: "data" input_shape {{ dim: {list(IMAGE)} }}\n'
TANH = 'layer { name: "beside" type: "TanH" bottom: "data" top: "beside" }\n'
POOL = """layer { name: "beside" type: "Pooling" bottom: "data" top: "beside"
    pooling_param { kernel_size: 3 } }\n"""
ROW = """layer { name: "beside" type: "Pooling" bottom: "data" top: "beside"
    pooling_param { kernel_h: 1 kernel_w: 3 } }\n"""
MEAN = """layer { name: "mean" type: "Pooling" bottom: "data" top: "mean"
    pooling_param { pool: AVE global_pooling: true } }
layer { name: "beside" type: "Flatten" bottom: "mean" top: "beside" }\n"""


class Case(NamedTuple):
    """A layer `end` of the image, of what `before` gives, or of both."""

    kind: str
    stated: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    before: str = ""
    reads: str = "data"

    @property
    def net(self) -> str:
        bottoms = " ".join(f'bottom: "{name}"' for name in self.reads.split())
        return (
            f'{HEAD}{self.before}layer {{ name: "end" type: "{self.kind}" {bottoms} top: "end" '
            f"{self.stated} }}\n"
        )


def numbers(name: str, shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(zlib.crc32(f"{name} {shape}".encode())).normal(0, 0.6, shape).astype("f4")


def conv(stated: str, kernel: tuple[int, ...], bias: bool = True, kind: str = "Convolution") -> Case:
    units = kernel[0] if kind != "Deconvolution" else kernel[1]
    own = "" if bias else "bias_term: false"
    return Case(
        kind,
        f"convolution_param {{ num_output: {units} {stated} {own} }}",
        (kernel, (units,)) if bias else (kernel,),
    )


def pool(stated: str) -> Case:
    return Case("Pooling", f"pooling_param {{ {stated} }}")


def both(kind: str, stated: str = "", before: str = TANH) -> Case:
    return Case(kind, stated, (), before, "data beside")


def parts(stated: str, count: int, place: int) -> Case:
    tops = " ".join(f'top: "part{each}"' for each in range(count))
    before = f'layer {{ name: "parts" type: "Slice" bottom: "data" {tops} {stated} }}\n'
    return Case("TanH", "", (), before, f"part{place}")


NORM = ((4,), (4,), (1,))
CASES = {
    "conv": conv("kernel_size: 3", (8, 4, 3, 3)),
    "conv without bias": conv("kernel_size: 3", (8, 4, 3, 3), bias=False),
    "conv of rows and columns": conv(
        "kernel_h: 3 kernel_w: 2 pad_h: 1 pad_w: 0 stride_h: 2 stride_w: 1", (8, 4, 3, 2)
    ),
    "conv of repeated numbers": conv(
        "kernel_size: 3 kernel_size: 2 pad: 1 pad: 0 stride: 2 stride: 1", (8, 4, 3, 2)
    ),
    "conv dilated": conv("kernel_size: 3 dilation: 2 pad: 2", (8, 4, 3, 3)),
    "conv of groups": conv("kernel_size: 3 group: 2", (8, 2, 3, 3)),
    "depthwise": conv("kernel_size: 3 pad: 1", (4, 1, 3, 3), kind="ConvolutionDepthwise"),
    "deconv": conv("kernel_size: 3 stride: 2 pad: 1", (4, 6, 3, 3), kind="Deconvolution"),
    "deconv without bias": conv("kernel_size: 4 stride: 2", (4, 6, 4, 4), False, "Deconvolution"),
    "max pool": pool("kernel_size: 3"),
    "max pool rounded up": pool("kernel_size: 3 stride: 2"),
    "max pool with pads": pool("kernel_size: 3 stride: 2 pad: 1"),
    "max pool of rows and columns": pool("kernel_h: 3 kernel_w: 2 stride_h: 1 stride_w: 2 pad_h: 1 pad_w: 0"),
    "max pool rounded down": pool("kernel_size: 3 stride: 2 ceil_mode: false"),
    "mean pool": pool("pool: AVE kernel_size: 3 stride: 3"),
    "mean pool with pads": pool("pool: AVE kernel_size: 3 stride: 2 pad: 1"),
    "mean pool with more pads": pool("pool: AVE kernel_size: 4 stride: 3 pad: 2"),
    "mean pool rounded down": pool("pool: AVE kernel_size: 3 stride: 2 ceil_mode: false"),
    "global max pool": pool("pool: MAX global_pooling: true"),
    "global mean pool": pool("pool: AVE global_pooling: true"),
    "dense": Case("InnerProduct", "inner_product_param { num_output: 5 }", ((5, 168), (5,))),
    "dense without bias": Case(
        "InnerProduct", "inner_product_param { num_output: 5 bias_term: false }", ((5, 168),)
    ),
    "norm": Case("BatchNorm", "", NORM),
    "norm with an epsilon": Case("BatchNorm", "batch_norm_param { eps: 0.1 }", NORM),
    "norm of global statistics": Case("BatchNorm", "batch_norm_param { use_global_stats: true }", NORM),
    "scale": Case("Scale", "", ((4,),)),
    "scale with a bias": Case("Scale", "scale_param { bias_term: true }", ((4,), (4,))),
    "scale by another value": both("Scale", "scale_param { axis: 0 }", MEAN),
    "prelu": Case("PReLU", "", ((4,),)),
    "prelu of one slope": Case("PReLU", "prelu_param { channel_shared: true }", ((1,),)),
    "sum": both("Eltwise"),
    "weighted sum": both("Eltwise", "eltwise_param { operation: SUM coeff: 1 coeff: -0.5 }"),
    "product": both("Eltwise", "eltwise_param { operation: PROD }"),
    "largest": both("Eltwise", "eltwise_param { operation: MAX }"),
    "concat": both("Concat"),
    "concat of rows": both("Concat", "concat_param { axis: 2 }"),
    "concat of columns": both("Concat", "concat_param { axis: -1 }"),
    "concat by its older name": both("Concat", "concat_param { concat_dim: 1 }"),
    "power": Case("Power", "power_param { power: 2 scale: 0.5 shift: 0.3 }"),
    "power of a line": Case("Power", "power_param { scale: 0.5 shift: 0.3 }"),
    "power below one": Case("Power", "power_param { power: -1 scale: 0.5 shift: 4 }"),
    "power of nothing": Case("Power", "power_param { power: 0 scale: 0.5 shift: 4 }"),
    "power of a cube": Case("Power", "power_param { power: 3 }"),
    "response norm": Case("LRN", "lrn_param { local_size: 3 alpha: 0.5 beta: 0.6 }"),
    "response norm within": Case(
        "LRN", "lrn_param { local_size: 3 alpha: 0.5 beta: 0.6 norm_region: WITHIN_CHANNEL }"
    ),
    "relu": Case("ReLU"),
    "relu with a slope": Case("ReLU", "relu_param { negative_slope: 0.2 }"),
    "relu6": Case("ReLU6"),
    "elu": Case("ELU"),
    "elu with a number": Case("ELU", "elu_param { alpha: 0.4 }"),
    "sigmoid": Case("Sigmoid"),
    "tanh": Case("TanH"),
    "absolute": Case("AbsVal"),
    "exp": Case("Exp"),
    "exp of a base": Case("Exp", "exp_param { base: 2 scale: 0.5 shift: 0.2 }"),
    "exp of a line": Case("Exp", "exp_param { scale: 0.5 shift: 0.2 }"),
    "bnll": Case("BNLL"),
    "softmax": Case("Softmax"),
    "softmax of rows": Case("Softmax", "softmax_param { axis: 2 }"),
    "softmax of columns": Case("Softmax", "softmax_param { axis: -1 }"),
    "softmax of features": Case("Softmax", "", (), MEAN, "beside"),
    "flatten": Case("Flatten"),
    "flatten of rows": Case("Flatten", "flatten_param { axis: 2 }"),
    "flatten to rows": Case("Flatten", "flatten_param { axis: 1 end_axis: 2 }"),
    "flatten from the end": Case("Flatten", "flatten_param { axis: -2 }"),
    "reshape": Case("Reshape", "reshape_param { shape { dim: 0 dim: -1 } }"),
    "reshape to five axes": Case(
        "Reshape", "reshape_param { shape { dim: 0 dim: 2 dim: 2 dim: -1 dim: 6 } }"
    ),
    **{
        f"part {place} of {name}": parts(stated, count, place)
        for name, stated, count in (
            ("channels", "slice_param { slice_point: 1 }", 2),
            ("rows", "slice_param { axis: 2 slice_point: 3 }", 2),
            ("columns", "slice_param { axis: -1 slice_point: 2 slice_point: 5 }", 3),
        )
        for place in range(count)
    },
    "deviation of channels": Case("MVN"),
    "deviation of all": Case("MVN", "mvn_param { across_channels: true }"),
    "mean of channels": Case("MVN", "mvn_param { normalize_variance: false }"),
    "norm of all of SSD": Case("Normalize", "", ((1,),)),
    "norm of each cell of SSD": Case(
        "Normalize", "norm_param { across_spatial: false channel_shared: false }", ((4,),)
    ),
    "axes in another order": Case("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }"),
    "crop": both("Crop", "crop_param { axis: 2 offset: 1 }", POOL),
    "crop at two offsets": both("Crop", "crop_param { axis: 2 offset: 1 offset: 2 }", POOL),
    "crop of columns": both("Crop", "crop_param { axis: 3 offset: 1 }", ROW),
    "crop from the first cell": both("Crop", "", POOL),
    "crop counted from the end": both("Crop", "crop_param { axis: -2 offset: 1 offset: 0 }", POOL),
}


def images() -> Array:
    return numbers("images", IMAGE)


def written(case: Case, path: Path) -> Path:
    """The file of a case's net, beside its weights."""
    blobs = [numbers(f"blob {place}", shape) for place, shape in enumerate(case.shapes)]
    if case.kind == "BatchNorm":  # sums over 0.9 batches
        blobs[1:] = [np.abs(blobs[1]) + 0.3, np.array([0.9], np.float32)]
    return write_caffe(path, case.net, {"end": blobs} if blobs else {})


@pytest.mark.parametrize("name", CASES)
def test_a_layer_is_what_opencv_computes(name: str, tmp_path: Path) -> None:
    file, batch = written(CASES[name], tmp_path / "model"), images()
    wanted = run_by_opencv(file, batch, ["end"])["end"]
    checkpoint = read_checkpoint(file)
    graph = checkpoint.graph
    assert graph is not None and not any(isinstance(node.op, Foreign) for node in graph.nodes)
    net = build_file(checkpoint, "float64", graph.size)
    read = values_of(graph, checkpoint.tensors, batch)[graph.given["end"]]
    run = run_reference(net, batch.astype(np.float64), {"end": "end"})["end"]
    for found in (read, run):
        assert found.shape == wanted.shape and distance(found, wanted) <= 1e-6


def test_a_parameter_that_a_reader_passes_over_is_refused_by_its_name(tmp_path: Path) -> None:
    """It would make another function of the same layer."""
    names = {"BatchNorm": "batch_norm_param", "Normalize": "norm_param"}
    for name, case in CASES.items():
        stated, _, inner = case.stated.rpartition("}")[0].partition("{")
        stated = stated or names.get(case.kind, f"{case.kind.lower()}_param")
        planted = case._replace(stated=f"{stated} {{ {inner} planted: 7 }}")
        graph = read_checkpoint(written(planted, tmp_path / "model")).graph
        assert graph is not None
        kinds = [node.op.kind for node in graph.nodes if isinstance(node.op, Foreign)]
        assert len(kinds) == 1 and kinds[0].endswith("with planted"), name


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (both("Eltwise", "eltwise_param { operation: DIV }"), "of kind DIV"),
        (Case("LRN", "lrn_param { norm_region: 2 }"), "of kind 2"),
        (pool("pool: STOCHASTIC kernel_size: 3"), "of kind STOCHASTIC"),
        (pool("kernel_size: 3 round_mode: NEAREST"), "of kind NEAREST"),
    ],
)
def test_a_value_that_caffe_s_enumeration_does_not_have_is_refused(
    case: Case, said: str, tmp_path: Path
) -> None:
    """It would be a fork's, and another function than the default's."""
    graph = read_checkpoint(written(case, tmp_path / "model")).graph
    assert graph is not None
    assert [node.op.kind for node in graph.nodes if isinstance(node.op, Foreign)] == [f"{case.kind} {said}"]


@pytest.mark.parametrize("number", ["0", "1", "2"])
def test_an_operation_may_be_stated_by_its_number(number: str, tmp_path: Path) -> None:
    names = {"0": "PROD", "1": "SUM", "2": "MAX"}
    stated = (both("Eltwise", f"eltwise_param {{ operation: {word} }}") for word in (number, names[number]))
    by_number, by_name = (read_checkpoint(written(case, tmp_path / "model")).graph for case in stated)
    assert by_number is not None and by_name is not None and by_number.nodes == by_name.nodes


@pytest.mark.parametrize("before", ["data", "conv"])
def test_a_bias_is_added_to_each_channel(before: str, tmp_path: Path) -> None:
    """Behind a convolution without one it becomes the convolution's."""
    kernel, beta, batch = numbers("kernel", (4, 4, 1, 1)), numbers("beta", (4,)), images().astype(np.float64)
    conv = """layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 4 kernel_size: 1 bias_term: false } }\n"""
    net = Case("Bias", "", ((4,),), conv if before == "conv" else "", before).net
    blobs = {"end": [beta], **({"conv": [kernel]} if before == "conv" else {})}
    checkpoint = read_checkpoint(write_caffe(tmp_path / "model", net, blobs))
    graph = checkpoint.graph
    assert graph is not None and len(graph.nodes) == 1
    product = np.einsum("nchw,fc->nfhw", batch, kernel[:, :, 0, 0]) if before == "conv" else batch
    wanted = product + beta[:, None, None]
    read = values_of(graph, checkpoint.tensors, batch)[graph.given["end"]]
    run = run_reference(build_file(checkpoint, "float64", graph.size), batch, {"end": "end"})["end"]
    assert distance(read, wanted) <= 1e-6 and distance(run, wanted) <= 1e-6
