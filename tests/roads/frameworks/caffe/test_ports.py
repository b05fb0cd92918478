"""What OpenCV computes of Caffe's ports: of the network whose port was reported wrong for years, and of pads
that it reads in its own way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from porter.frameworks import Destination, get_destination
from porter.frameworks.caffe.destination import DESTINATION as caffe
from porter.graph import INPUT, AvgPool, Conv, Graph, LocalResponseNorm, MaxPool, Node
from porter.graph.pads import with_conventions
from porter.graph.plan import make_plan
from porter.padding import ANY, LOWEST, Convention, Window
from tests.support.arrays import Array
from tests.support.caffe_files import run_by_opencv
from tests.support.frameworks.every_op import images, tensors_of
from tests.support.oracle import evaluate
from tests.support.random_graphs import difference
from tests.support.standin import smooth_images
from tests.support.standin_files import standin_graph, standin_tensors


def db(found: Array, wanted: Array) -> float:
    """The signal to noise ratio."""
    return float(20 * np.log10(np.linalg.norm(wanted) / np.linalg.norm(found - wanted)))


def logits(framework: Destination, graph: Graph, tensors: Any, images: Array) -> Array:
    model = framework.ENGINE.build(
        make_plan(graph, (224, 224), framework.CAPABILITIES), tensors, {}, "float64"
    )
    return framework.ENGINE.run(model, images.astype(np.float64), [graph.output])[graph.output]


def test_mobilenet_of_tensorflow(tmp_path: Path) -> None:
    """Its strided convolutions pad by SAME: 112x112 cells, of which converters made 111x111, or 112x112
    others. The ratio reported was 5 dB. In float32 it is that of the source's own rounding with these
    weights, which is 99 dB in torch.
    """
    graph, tensors = (
        standin_graph("mobilenet_v1_0.25", "keras"),
        standin_tensors("mobilenet_v1_0.25", "keras"),
    )
    images, plan = smooth_images(3, (224, 224), 5, 2), make_plan(graph, (224, 224), caffe.CAPABILITIES)
    wanted = logits(get_destination("torch"), graph, tensors, images)
    assert db(logits(caffe, graph, tensors, images), wanted) > 250
    caffe.write(tmp_path, plan, tensors, {}, "float32", {"porter.native_size": "[224, 224]"})
    head = caffe.make_net(plan).values[graph.output]
    assert db(run_by_opencv(tmp_path / "model.prototxt", images, [head])[head], wanted) > 95
    strided = {
        path: Convention("explicit", (1, 1, 1, 1))
        for path, found in plan.realisations.items()
        if found.kind != "native"
    }
    assert (
        len(strided) == 5 and str(plan.realisations["stem/conv"]) == "1, its kernel amid zeros ((1,0),(1,0))"
    )
    why = (
        "SAME puts the odd cell at the bottom and right; the destination pads both sides alike, with "
        "zeros around its kernel"
    )
    assert plan.realisations["stem/conv"].why == why
    assert db(logits(caffe, with_conventions(graph, strided), tensors, images), wanted) < 15


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
    plan, tensors = make_plan(graph, ANY, caffe.CAPABILITIES), tensors_of(graph)
    caffe.write(tmp_path, plan, tensors, {}, "float32", {"porter.native_size": "[10, 9]"})
    for at in ((10, 9), (9, 12)):
        wanted, run = (
            evaluate(graph, tensors, images(at)),
            run_by_opencv(tmp_path / "model.prototxt", images(at), graph.outputs),
        )
        assert {path for path in graph.outputs if difference(run[path], wanted[path]) > 1e-5} == set()
