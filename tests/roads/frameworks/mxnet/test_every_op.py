"""Every op of porter.graph in MXNet: what porter's own engine computes of the symbol, and under `full` MXNet of the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.dtypes import Array
from porter.base.errors import GraphError
from porter.frameworks.mxnet.destination import DESTINATION as framework
from porter.frameworks.mxnet.spellings import PLAIN
from porter.graph import INPUT, Flatten, Graph, LayerNorm, Node, Op, Rearrange
from porter.graph.plan import make_plan
from porter.padding import ANY, Size
from tests.support.frameworks.sayable import WINDOWED, sayable
from tests.support.frameworks.torch.every_op import FLATTENED, OF_MAPS, SIZE, every_op, tensors_of
from tests.support.mxnet_runs import needs_mxnet, run_symbol
from tests.support.oracle import evaluate
from tests.support.random_graphs import difference

EXACT, ROUNDED = 1e-12, 1e-5
SAID = {
    "MXNet's LRN takes an odd number of channels, not 2",
    "MXNet's LRN takes an odd number of channels, not 4",
    "MXNet's softrelu is x above 20, not log(1 + exp(x))",
    "MXNet's GELU is the exact one, not that of a tanh",
    "MXNet's Pad knows no mode symmetric",
    "MXNet's Pad knows no mode wrap",
    "porter writes MXNet's InstanceNorm, not norms of several channels",
    "porter writes no norm along an axis for MXNet",
    "porter writes maps and features for MXNet, not arrays of other axes",
}


def graph_of(of_maps: Any, size: Size) -> tuple[Graph, set[str]]:
    return sayable(every_op(of_maps), size, framework.CAPABILITIES, framework.net, PLAIN)


def images(size: tuple[int, int]) -> Array:
    return np.random.default_rng(1).standard_normal((2, 3, *size))


@pytest.mark.parametrize(("size", "of_maps"), [(ANY, OF_MAPS), (SIZE, (*OF_MAPS, *FLATTENED))])
def test_every_op(size: Size, of_maps: Any) -> None:
    graph, said = graph_of(of_maps, size)
    assert {*PLAIN, *WINDOWED} - {type(node.op) for node in graph.nodes} == ({Flatten} if size == ANY else set())
    assert said == SAID | (set() if size == ANY else {"porter writes no layer of MXNet for a rearrange"})
    plan, tensors = make_plan(graph, size, framework.CAPABILITIES), tensors_of(graph)
    assert plan.only_size == (None if size == ANY else SIZE)
    model = framework.ENGINE.build(plan, tensors, {}, "float64")
    for at in [SIZE] if plan.only_size else [SIZE, (10, 9)]:
        wanted = evaluate(graph, tensors, images(at))
        found = framework.ENGINE.run(model, images(at), [*wanted][1:])
        assert not {path: value.shape for path, value in found.items() if difference(value, wanted[path]) > EXACT}


@needs_mxnet
@pytest.mark.parametrize(("size", "of_maps"), [(ANY, OF_MAPS), (SIZE, (*OF_MAPS, *FLATTENED))])
def test_mxnet_computes_the_same_of_the_files(size: Size, of_maps: Any, tmp_path: Path) -> None:
    graph, _ = graph_of(of_maps, size)
    plan, tensors = make_plan(graph, size, framework.CAPABILITIES), tensors_of(graph)
    framework.write(tmp_path, plan, tensors, {}, "float32", {"porter.zoo": "gluon"})
    for at in [SIZE] if plan.only_size else [SIZE, (10, 9)]:
        batch = images(at).astype(np.float32)
        wanted = evaluate(graph, tensors, batch.astype(np.float64))
        found = dict(zip(graph.outputs, run_symbol(tmp_path, batch), strict=True))
        assert not {path: value.shape for path, value in found.items() if difference(value, wanted[path]) > ROUNDED}


def test_the_files_are_read_back(tmp_path: Path) -> None:
    graph, _ = graph_of(OF_MAPS, ANY)
    plan, tensors = make_plan(graph, ANY, framework.CAPABILITIES), tensors_of(graph)
    framework.write(tmp_path, plan, tensors, {}, "float32", {})
    found = framework.read_port(tmp_path, plan, {})
    assert {path: [*roles] for path, roles in found.items()} == {path: [*roles] for path, roles in tensors.items()}
    for path, roles in tensors.items():
        assert all(np.array_equal(found[path][role], array.astype(np.float32)) for role, array in roles.items())


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (LayerNorm(1e-6), "porter writes no layer of MXNet for a layer norm"),
        (Rearrange("c h w -> (h w) c"), "porter writes maps and features for MXNet, not arrays of other axes"),
    ],
)
def test_what_mxnet_lacks_is_refused_with_its_node(op: Op, said: str) -> None:
    plan = make_plan(Graph((Node("first", op, (INPUT,)),), 3, "first"), ANY, framework.CAPABILITIES)
    with pytest.raises(GraphError, match=f"first: {said}"):
        framework.net(plan)
