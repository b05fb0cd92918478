"""Sizes are values: what is open is no number, and a number is never taken for what is open."""

from __future__ import annotations

import itertools
import math
import re
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.filegraph.file_graph import Foreign
from porter.filegraph.layouts.dims import (
    Dim,
    Open,
    Undecided,
    Unknown,
    divides,
    exact_size,
    fixed_sizes,
    product,
    quotient,
    ratio,
    sizes_text,
    unknown,
)
from porter.filegraph.layouts.size_arrays import sizes_array
from porter.formats.reading import read_checkpoint
from tests.support.filegraph.values import values_of

ROWS, COLUMNS = unknown("rows"), unknown("columns")
SIZES = (999_983, 1_000_003, 1_000_005, 1 << 20)
"""Three of them once stood for sizes that are open; a fourth is one that models have."""


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (ROWS - ROWS, 0),
        (ROWS * COLUMNS // COLUMNS, ROWS),
        (4 * ROWS * COLUMNS // (2 * ROWS), 2 * COLUMNS),
        ((2 * ROWS + 2 * COLUMNS) // (ROWS + COLUMNS), 2),
        ((2 * ROWS + 3) // 2, ROWS + 1),
        ((ROWS - 1) * (COLUMNS - ROWS) // (ROWS - COLUMNS), 1 - ROWS),
        ((2 * ROWS + 3) % 2, 1),
        (COLUMNS * ROWS, ROWS * COLUMNS),
        (product([2, ROWS, 3]), 6 * ROWS),
        (ratio(6 * ROWS, 2 * ROWS), 3),
        (ratio(6 * ROWS, 2), None),
        (sizes_text([ROWS, 7, -1]), "?x7x?"),
        ((ROWS > 0, ROWS - 1 >= 0, -ROWS < 0, ROWS * COLUMNS >= ROWS - COLUMNS + 1 - ROWS), (True,) * 4),
        ([divides(one, 2 * ROWS) for one in (ROWS, 2, 29, 4, 0)], [True, True, False, False, False]),
        ([*(sizes_array([2, ROWS]) * 2.0)], [4, 2 * ROWS]),
        ((ROWS - ROWS // 2 * 2).bounds, (0, 1)),
        ((ROWS // 2 * 2 - ROWS).bounds, (-1, 0)),
        ((ROWS // 2 - ROWS // 4 * 2).bounds, (0, 1)),
        ((ROWS - ROWS // 4 * 4).bounds, (0, 3)),
        ((ROWS - (ROWS - 1) // 2).bounds, (1, math.inf)),
    ],
)  # fmt: skip
def test_what_holds_whatever_the_input_is_is_said(found: Any, wanted: Any) -> None:
    assert found == wanted


@pytest.mark.parametrize("size", range(1, 40))
def test_a_quotient_is_rounded_down_whatever_the_size_is(size: int) -> None:
    def at_size(number: Dim) -> Any:
        if isinstance(number, int):
            return number
        return sum(factor * math.prod(map(of_one, unknowns)) for unknowns, factor in number.terms)

    def of_one(unknown: Unknown) -> int:
        return size if unknown.rounded is None else math.floor(at_size(unknown.rounded))

    for steps in itertools.product((-1, 1, 5), (2, 3, 7), (-2, 1), (2, 4), (-1, 3)):
        found: Dim = ROWS
        whole = size
        for place, number in enumerate(steps):
            found, whole = (
                (found // number, whole // number) if place % 2 else (found + number, whole + number)
            )
        assert at_size(found) == whole
        assert isinstance(found, Open) and found.bounds[0] <= whole


def test_a_quotient_is_one_unknown_however_it_is_computed() -> None:
    assert ((ROWS - 1) // 2 + 2) // 2 == (ROWS + 3) // 4 == (2 * ROWS - 2) // 8 + 1
    assert ROWS // 2 != (ROWS + 1) // 2
    assert exact_size(ROWS // 2) * 2 == ROWS and (ROWS // 2) * 2 != ROWS
    assert quotient(ROWS * COLUMNS, 2 * COLUMNS) == exact_size(ROWS // 2)
    assert quotient(ROWS * COLUMNS, 2) is None  # either of them may be even


@pytest.mark.parametrize(
    "ask",
    [
        lambda: ROWS > 1,
        lambda: ROWS < 1_000_000,
        lambda: ROWS > COLUMNS,
        lambda: bool(ROWS - 3),
        lambda: fixed_sizes([4, ROWS]),
        lambda: ROWS * COLUMNS // 2,
        lambda: bool(ROWS % 29),
        lambda: 8 // ROWS,
        lambda: ROWS * 0.5,
        lambda: ROWS // COLUMNS,
        lambda: product([ROWS + COLUMNS + place for place in range(80)]),
    ],
)
def test_what_depends_on_the_input_is_refused(ask: Callable[[], Any]) -> None:
    with pytest.raises(Undecided, match="a size that depends on the input's"):
        ask()


def _onnx(folder: Path, size: int) -> Path:
    onnx = pytest.importorskip("onnx")
    text = """g (float[N,1,2,2] x) => (float[N,M] y, float[N,1] s, float[N,M] n) {
        p = GlobalAveragePool (x) f = Flatten (p)
        d = Gemm (f, kernel) a, y = Split <axis=1> (d, parts) s = ReduceSum (d, one)
        n = LayerNormalization (d, kernel1) }"""
    graph = onnx.parser.parse_graph(text)
    stored = {
        "kernel": _kernel(size),
        "kernel1": _kernel(size)[0],
        "parts": np.array([3, size - 3]),
        "one": np.array([1]),
    }
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in stored.items())
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    return folder / "model.onnx"


def _pt2(folder: Path, size: int) -> Path:
    import torch

    from tests.support.formats.torch_export.exports import export

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense, self.norm = torch.nn.Linear(1, size), torch.nn.LayerNorm(size)

        def forward(self, x: torch.Tensor) -> Any:
            wide = self.dense(x.mean((2, 3)))
            return wide.split([3, size - 3], 1)[1], wide.sum(1, keepdim=True), self.norm(wide)

    return export(Net().eval(), torch.zeros(2, 1, 2, 2), folder)[0]


def _compute(tf: Any, size: int) -> Any:
    def compute(image: Any) -> Any:
        wide = tf.reduce_mean(image, [1, 2]) @ tf.constant(_kernel(size))
        return tf.split(wide, [3, size - 3], 1)[1], tf.reduce_sum(wide, 1, keepdims=True)

    return tf.function(compute, [tf.TensorSpec((None, 2, 2, 1), tf.float32)]).get_concrete_function()


def _frozen(folder: Path, size: int) -> Path:
    pytest.importorskip("tensorflow")
    from porter.formats.tensorflow import import_tensorflow

    definition = _compute(import_tensorflow(), size).graph.as_graph_def()
    (folder / "model.pb").write_bytes(definition.SerializeToString())
    return folder / "model.pb"


def _tflite(folder: Path, size: int) -> Path:
    pytest.importorskip("tensorflow")
    from porter.formats.tensorflow import import_tensorflow

    tf = import_tensorflow()
    made = tf.lite.TFLiteConverter.from_concrete_functions([_compute(tf, size)], tf.Module()).convert()
    (folder / "model.tflite").write_bytes(made)
    return folder / "model.tflite"


def _tfjs(folder: Path, size: int) -> Path:
    from tests.unit.formats.tfjs.test_read import node, write

    arrays: dict[str, Any] = {
        "k": _kernel(size),
        "parts": np.array([3, size - 3], np.int32),
        "axis": np.array([1], np.int32),
    }
    arrays["axes"] = np.array([1, 2], np.int32)
    nodes = [
        node(
            "image",
            "Placeholder",
            dtype="DT_FLOAT",
            shape={"dim": [{"size": str(side)} for side in (-1, 2, 2, 1)]},
        ),
        *(node(name, "Const", dtype="DT_FLOAT" if name == "k" else "DT_INT32") for name in arrays),
        node("mean", "Mean", "image", "axes", Tidx="DT_INT32", keep_dims=False),
        node("wide", "MatMul", "mean", "k", transpose_a=False, transpose_b=False),
        node("part", "SplitV", "wide", "parts", "axis", num_split=2, Tlen="DT_INT32"),
        node("second", "Relu", "part:1"),
        node("total", "Sum", "wide", "axis", Tidx="DT_INT32", keep_dims=True),
    ]
    return write(folder, {"node": nodes, "versions": {"producer": 1}}, arrays)


def _keras(folder: Path, size: int) -> Path:
    pytest.importorskip("tensorflow")
    from porter.frameworks.tf.runtime import import_keras

    keras = import_keras()
    image = keras.Input((2, 2, 1))
    wide = keras.layers.Dense(size)(keras.layers.GlobalAveragePooling2D()(image))
    ends = [
        keras.ops.split(wide, [3], 1)[1],
        keras.ops.sum(wide, 1, keepdims=True),
        keras.layers.LayerNormalization()(wide),
    ]
    keras.Model(image, ends).save(folder / "model.keras")
    return folder / "model.keras"


def _caffe(folder: Path, size: int) -> Path:
    from tests.support.caffe_files import write_caffe

    net = """input: "data" input_shape { dim: [1, 1, 2, 2] }
        layer { name: "pool" type: "Pooling" bottom: "data" top: "pool"
            pooling_param { pool: AVE global_pooling: true } }
        layer { name: "fc" type: "InnerProduct" bottom: "pool" top: "fc"
            inner_product_param { num_output: SIZE } }
        layer { name: "part" type: "Slice" bottom: "fc" top: "a" top: "b"
            slice_param { axis: 1 slice_point: 3 } }"""
    return write_caffe(
        folder / "model", net.replace("SIZE", str(size)), {"fc": [_kernel(size).T, _kernel(size)[0]]}
    )


def _mxnet(folder: Path, size: int) -> Path:
    from tests.support.mxnet_files import write_mxnet

    lines: list[Any] = [
        ("pool", "Pooling", {"kernel": (1, 1), "global_pool": True, "pool_type": "avg"}, ["data"]),
        ("fc", "FullyConnected", {"num_hidden": size, "no_bias": True}, ["pool", "fc_weight"]),
        ("part", "slice_axis", {"axis": 1, "begin": 3, "end": size}, ["fc"]),
    ]
    return write_mxnet(folder / "model", lines, {"fc_weight": _kernel(size).T})


def _torch7(folder: Path, size: int) -> Path:
    from tests.support.torch7_files import Module, Sizes, write_torch7

    view = Module("View", size=Sizes([-1]), numElements=1, numInputDims=3)
    pool = Module("SpatialAdaptiveAveragePooling", W=1, H=1)
    dense = Module("Linear", weight=_kernel(size).T, bias=_kernel(size)[0])
    part = Module("Narrow", dimension=2, index=4, length=size - 3)
    conv = Module(
        "SpatialConvolution",
        nInputPlane=1,
        nOutputPlane=1,
        kW=1,
        kH=1,
        dW=1,
        dH=1,
        weight=np.ones((1, 1, 1, 1), np.float32),
    )
    return write_torch7(folder / "model.t7", Module("Sequential", conv, pool, view, dense, part))


def _kernel(size: int) -> Any:
    return np.linspace(0.5, 1, size, dtype=np.float32)[None]


READERS = {
    "onnx": _onnx,
    "torch-export": _pt2,
    "tf-graph": _frozen,
    "tflite": _tflite,
    "tfjs": _tfjs,
    "keras": _keras,
    "caffe": _caffe,
    "mxnet": _mxnet,
    "torch7": _torch7,
}


@pytest.mark.parametrize(
    "size", [SIZES[0], *(pytest.param(size, marks=pytest.mark.full) for size in SIZES[1:])]
)
@pytest.mark.parametrize("reader", READERS)
def test_any_number_is_a_number(reader: str, size: int, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(READERS[reader](tmp_path, size))
    assert checkpoint.graph is not None and not [
        node for node in checkpoint.graph.nodes if isinstance(node.op, Foreign)
    ]
    values = values_of(checkpoint.graph, checkpoint.tensors, np.ones((1, 1, 2, 2)))
    shapes = {values[name].shape for name in checkpoint.graph.outputs}
    assert (1, size - 3) in shapes, "the second part"
    assert reader in ("caffe", "mxnet", "torch7") or (1, 1) in shapes, "the sum"


@pytest.mark.parametrize("parts", [2, 3, 7, 29, 31])
def test_open_rows_are_in_no_number_of_parts(parts: int, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    text = (
        f"g (float[N,3,H,8] x) => (float[N,3,P,R,8] y) {{ s = Constant <value_ints=[0, 3, {parts}, "
        f"-1, 8]> () y = Reshape (x, s) }}"
    )
    graph = onnx.parser.parse_graph(text)
    (tmp_path / "model.onnx").write_bytes(onnx.helper.make_model(graph, ir_version=9).SerializeToString())
    graph = read_checkpoint(tmp_path / "model.onnx").graph
    assert graph is not None and [node.op for node in graph.nodes] == [
        Foreign(f"Reshape from 3x?x8 to 3x{parts}x?x8")
    ]


def test_no_number_stands_for_what_is_open() -> None:
    folder, spelled = Path(porter.__file__).parent, set[str]()
    for file in (*(folder / "filegraph").rglob("*.py"), *(folder / "formats").rglob("*.py")):
        with tokenize.open(file) as text:
            words = {
                token.string
                for token in tokenize.generate_tokens(text.readline)
                if token.type == tokenize.NUMBER
            }
        spelled |= {word for word in words if re.fullmatch(r"\d[\d_]{6,}", word)}
        assert not re.search(r"\b10 ?\*\* ?\d|^(LARGE|ONLY|IMAGE) = \d", file.read_text(), re.MULTILINE), file
    assert spelled == {"100_000_000"}, "bytes, of two limits"
