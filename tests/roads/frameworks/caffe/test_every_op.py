"""Every op of porter.graph in Caffe: what porter's own engine computes of the net in float64, OpenCV of the
files in float32.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from porter.formats.reading import read_checkpoint
from porter.frameworks.caffe.destination import DESTINATION as framework
from porter.frameworks.caffe.spellings import PLAIN
from porter.graph import (
    INPUT,
    AvgPool,
    Conv,
    ConvTranspose,
    Graph,
    LayerNorm,
    LocalResponseNorm,
    MaxPool,
    Node,
    Op,
    Rearrange,
)
from porter.graph.plan import make_plan
from porter.padding import ANY, LOWEST, Convention, Size, Window
from tests.support.arrays import Array
from tests.support.frameworks.every_op import SIZE, images, tensors_of
from tests.support.frameworks.sayable import (
    AT_SIZES,
    expect_every_op,
    expect_read_back,
    expect_refused,
    ops_of,
    sayable_plan,
)
from tests.support.oracle import evaluate
from tests.support.random_graphs import difference

ROUNDED, KNOWN = 1e-5, ops_of(PLAIN)


SAID = {
    "porter writes no layer of Caffe for a gelu",
    "Caffe pads with zeros only, not with -2.5",
    "Caffe's BNLL is log(1 + exp(x)) for every x, not x above 20",
    "Caffe's Eltwise takes values of one shape",
    "Caffe's layers take maps and features, not arrays of other axes",
}


def dilated(op: Op) -> bool:
    """OpenCV 4.14 leaves out the dilation of a Deconvolution, which Caffe has (deconv_layer.cpp)."""
    return isinstance(op, ConvTranspose) and op.window.dilation != (1, 1)


def opencv(folder: Path, batch: Array, names: list[str]) -> dict[str, Array]:
    """Without fusion, which gives wrong values of layers that are asked for one after the other (OpenCV
    4.14).
    """
    net = cv2.dnn.readNetFromCaffe(str(folder / "model.prototxt"), str(folder / "model.caffemodel"))
    net.enableFusion(False)
    net.setInput(batch.astype(np.float32))
    return dict(zip(names, net.forward(names), strict=True))


@AT_SIZES
def test_every_op(tmp_path: Path, size: Size, of_maps: Any) -> None:
    graph, plan, said = sayable_plan(framework, KNOWN, size, of_maps)
    assert said == SAID | (set() if size == ANY else {"porter writes no layer of Caffe for a rearrange"})
    assert plan.only_size == (None if size == ANY else SIZE)
    metadata = {"porter.native_size": json.dumps(SIZE), "porter.zoo": "keras"}
    framework.write(tmp_path, plan, tensors_of(graph), {}, "float32", metadata)
    net, outputs = framework.make_net(plan), plan.graph.outputs
    for batch, wanted in expect_every_op(framework, KNOWN, graph, plan):
        run = opencv(tmp_path, batch, [net.values[path] for path in outputs])
        numbers = {net.values[path] for path in outputs if wanted[path].ndim == 1}
        run |= {name: run[name][:, 0] for name in numbers}  # OpenCV's arrays in Python have two axes at least
        paths = [path for path in outputs if not dilated(plan.graph.by_path[path].op)]
        assert not [path for path in paths if difference(run[net.values[path]], wanted[path]) > ROUNDED]


def test_the_files_are_read_back(tmp_path: Path) -> None:
    graph = expect_read_back(framework, KNOWN, tmp_path)
    stored = read_checkpoint(tmp_path / "model.prototxt").tensors
    places = {"scale_factor": "2", "scale": "0"}
    for name, number in framework.fillings(graph, tensors_of(graph)).items():
        layer, what = name.rsplit("/", 1)
        assert (stored[f"{layer}/{places[what]}"] == number).all()


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (LayerNorm(1e-6), "porter writes no layer of Caffe for a layer norm"),
        (Rearrange("c h w -> (h w) c"), "Caffe's layers take maps and features, not arrays of other axes"),
    ],
)
def test_what_caffe_lacks_is_refused_with_its_node(op: Op, said: str) -> None:
    expect_refused(framework, op, said)


READ_OTHERWISE = (
    Conv(4, Window((1, 7)), Convention("explicit", (0, 0, 3, 3))),
    Conv(4, Window((3, 3), (2, 2)), Convention("explicit", (0, 1, 2, 0))),
    Conv(4, Window((3, 3), (1, 1), (2, 1)), Convention("explicit", (1, 2, 0, 1))),
    MaxPool(Window((3, 3), (2, 2)), Convention("explicit", (1, 1, 1, 1), LOWEST)),
    MaxPool(Window((3, 2), (2, 2)), Convention("explicit", (0, 1, 0, 0), 0.0)),
    MaxPool(Window((3, 3), (2, 2)), Convention("valid", rounding="ceil")),
    MaxPool(Window((1, 1), (2, 2)), Convention()),
    AvgPool(Window((3, 3)), Convention("same")),
    AvgPool(Window((3, 3), (2, 2)), Convention("explicit", (1, 0, 0, 1), average="full_window")),
    AvgPool(Window((3, 3), (2, 2)), Convention("explicit", (1, 1, 1, 1), average="real_cells")),
    LocalResponseNorm(3, 0.5, 0.75, 2.0),
)


def test_what_opencv_reads_in_its_own_way(tmp_path: Path) -> None:
    """OpenCV reads neither of `pad_h` and `pad_w` without the other, and no `k` of an LRN; tests/padding has
    all pads.
    """
    nodes = tuple(Node(f"op{place}", op, (INPUT,)) for place, op in enumerate(READ_OTHERWISE))
    graph = Graph(nodes, 3, nodes[0].path, further=tuple(node.path for node in nodes[1:]))
    plan, tensors = make_plan(graph, ANY, framework.CAPABILITIES), tensors_of(graph)
    framework.write(tmp_path, plan, tensors, {}, "float32", {"porter.native_size": "[10, 9]"})
    for at in ((10, 9), (9, 12)):
        wanted, run = evaluate(graph, tensors, images(at)), opencv(tmp_path, images(at), [*graph.outputs])
        assert {path for path in graph.outputs if difference(run[path], wanted[path]) > ROUNDED} == set()
