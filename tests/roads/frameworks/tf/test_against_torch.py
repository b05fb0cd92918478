"""The same plan's graph built by both frameworks, in float64 and at every node."""

from __future__ import annotations

import numpy as np
import pytest

from porter.frameworks import get_destination
from porter.graph import Graph
from porter.graph.plan import make_plan
from porter.padding import ANY, Size
from tests.support.arrays import Array
from tests.support.frameworks.tf.models import mobilenet_v2, network, random_tensors


def _values(framework_name: str, graph: Graph, size: Size, batch: Array) -> dict[str, Array]:
    framework = get_destination(framework_name)
    model = framework.ENGINE.build(
        make_plan(graph, size, framework.CAPABILITIES), random_tensors(graph), {}, "float64", "cpu"
    )
    return framework.ENGINE.run(model, batch, [node.path for node in graph.nodes])


@pytest.mark.parametrize(
    ("graph", "size", "shape"),
    [
        (network(), ANY, (15, 18)),
        (network(), ANY, (22, 13)),
        (mobilenet_v2(0.35, 7), ANY, (33, 47)),
        (mobilenet_v2(0.35, 7), (48, 34), (48, 34)),
    ],
    ids=["every op 15x18", "every op 22x13", "mobilenet_v2 at any size", "mobilenet_v2 at its size"],
)
def test_tensorflow_and_torch_agree_at_every_node(graph: Graph, size: Size, shape: tuple[int, int]) -> None:
    batch = np.random.default_rng(6).normal(size=(2, 3, *shape))
    ours, theirs = _values("tf", graph, size, batch), _values("torch", graph, size, batch)
    for node in graph.nodes:
        assert ours[node.path].shape == theirs[node.path].shape, node.path
        distance = np.linalg.norm(ours[node.path] - theirs[node.path])
        assert distance <= 1e-12 * np.linalg.norm(ours[node.path]), node.path
