"""Adaptive pools, and the pools that a plan makes of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from porter.base.errors import GraphError
from porter.frameworks import get_destination
from porter.graph import INPUT, AdaptiveAvgPool, AdaptiveMaxPool, AdaptivePool, Graph, Node
from porter.graph.plan import make_plan
from porter.padding import ANY, KnownSize
from tests.support.oracle import evaluate

SIZES = [(7, 11), (12, 6), (5, 13), (2, 3)]


def graph_of(op: AdaptivePool) -> Graph:
    return Graph((Node("pool", op, (INPUT,)),), 2, "pool")


def with_windows(graph: Graph, size: KnownSize) -> Graph:
    return make_plan(graph, size, get_destination("onnx").CAPABILITIES).lowered


@pytest.mark.parametrize("counts", [(3, 4), (1, 5), (6, 6), (7, 1), (2, 3)])
@pytest.mark.parametrize("size", SIZES)
def test_windows_are_torchs(size: tuple[int, int], counts: tuple[int, int]) -> None:
    batch = np.random.default_rng(0).normal(size=(2, 2, *size))
    for op, function in ((AdaptiveAvgPool, F.adaptive_avg_pool2d), (AdaptiveMaxPool, F.adaptive_max_pool2d)):
        graph, wanted = graph_of(op(*counts)), function(torch.from_numpy(batch), counts).numpy()
        windows = with_windows(graph, size)
        assert not any(isinstance(node.op, AdaptivePool) for node in windows.nodes)
        for each in (graph, windows):
            assert np.abs(evaluate(each, {}, batch)["pool"] - wanted).max() < 1e-12


def test_torch_has_them_at_every_size_and_others_at_one() -> None:
    graph = graph_of(AdaptiveAvgPool(3, 2))
    assert make_plan(graph, ANY, get_destination("torch").CAPABILITIES).only_size is None
    for name in ("tf", "onnx", "caffe", "mxnet"):
        capabilities = get_destination(name).CAPABILITIES
        assert make_plan(graph, (7, 8), capabilities).only_size == (7, 8)
        with pytest.raises(GraphError, match="an adaptive pool to 3x2 fixes the input's size") as caught:
            make_plan(graph, ANY, capabilities)
        assert "--input-size" in (caught.value.next or "")


def test_too_many_windows_that_differ_are_refused() -> None:
    graph = graph_of(AdaptiveMaxPool(65, 65))
    assert len(with_windows(graph, (130, 195)).nodes) == 1
    with pytest.raises(GraphError, match="more than 64 windows that differ in size"):
        with_windows(graph, (100, 195))
