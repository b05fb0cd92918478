"""What destinations that refuse some ops can say of a graph with every op, and that it is what the oracle
computes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import GraphError, PorterError
from porter.frameworks.numpy.nets import NetDestination
from porter.graph import INPUT, OPS, AdaptivePool, AsLarge, AvgPool, Conv, Flatten, Graph, MaxPool, Node, Op
from porter.graph.lowering import LOWERINGS
from porter.graph.ops import row_of
from porter.graph.plan import Plan, make_plan
from porter.padding import ANY, Capabilities, Size
from tests.support.arrays import Array
from tests.support.frameworks.every_op import FLATTENED, OF_MAPS, SIZE, every_op, images, tensors_of
from tests.support.oracle import evaluate
from tests.support.random_graphs import difference

WINDOWED = (Conv, MaxPool, AvgPool)
EXACT = 1e-12
AT_SIZES = pytest.mark.parametrize(("size", "of_maps"), [(ANY, OF_MAPS), (SIZE, (*OF_MAPS, *FLATTENED))])


def ops_of(table: Mapping[type[Op], object]) -> tuple[type[Op], ...]:
    """The ops that a destination with this table of plain ones says at every size: what it has, and what a
    plan makes of it whatever the size is.
    """
    rows = {**table, **LOWERINGS}
    return tuple(op for op in OPS.values() if row_of(rows, op) and not issubclass(op, AdaptivePool | AsLarge))


def sayable(
    graph: Graph,
    size: Size,
    capabilities: Capabilities,
    make: Callable[[Plan], object],
    known: Collection[Any],
) -> tuple[Graph, set[str]]:
    """The graph without the nodes that `make` refuses, and what it says of those whose op is among the
    `known`.
    """
    said, gone = set[str](), {node.path for node in graph.nodes if type(node.op) not in (*known, *WINDOWED)}
    while True:
        for node in graph.nodes:
            if gone.intersection(node.inputs):
                gone.add(node.path)
        outputs = [path for path in graph.outputs if path not in gone]
        nodes = tuple(node for node in graph.nodes if node.path not in gone)
        graph = replace(graph, nodes=nodes, output=outputs[0], further=tuple(outputs[1:]))
        try:
            make(make_plan(graph, size, capabilities))
            return graph, said
        except PorterError as error:
            gone.add(error.where or "")
            said.add(error.message)


def sayable_plan(
    framework: NetDestination[Any], known: Collection[Any], size: Size, of_maps: Any
) -> tuple[Graph, Plan, set[str]]:
    """The graph, its plan, and what the framework says of the other ops."""
    graph, said = sayable(every_op(of_maps), size, framework.CAPABILITIES, framework.make_net, known)
    return graph, make_plan(graph, size, framework.CAPABILITIES), said


def expect_every_op(
    framework: NetDestination[Any], known: Collection[Any], graph: Graph, plan: Plan
) -> Iterator[tuple[Array, dict[str, Array]]]:
    """The ops that it knows give what the oracle gives, at every size of the plan; gives these images and
    values.
    """
    tensors, fixed = tensors_of(graph), plan.only_size
    assert {*known, *WINDOWED} - {type(node.op) for node in graph.nodes} == (set() if fixed else {Flatten})
    assert fixed in (None, SIZE)
    model = framework.ENGINE.build(plan, tensors, {}, "float64")
    for batch in map(images, [SIZE] if fixed else [SIZE, (10, 9)]):
        wanted = evaluate(graph, tensors, batch)
        found = framework.ENGINE.run(model, batch, [*wanted][1:])
        assert not {
            path: value.shape for path, value in found.items() if difference(value, wanted[path]) > EXACT
        }
        yield batch, wanted


def expect_read_back(framework: NetDestination[Any], known: Collection[Any], folder: Path) -> Graph:
    """The tensors of its files are those that were written; gives the graph."""
    graph, plan, _ = sayable_plan(framework, known, ANY, OF_MAPS)
    tensors = tensors_of(graph)
    framework.write(folder, plan, tensors, {}, "float32", {})
    found = framework.read_port(folder, plan, {})
    assert {path: [*roles] for path, roles in found.items()} == {
        path: [*roles] for path, roles in tensors.items()
    }
    for path, roles in tensors.items():
        assert all(
            np.array_equal(found[path][role], array.astype(np.float32)) for role, array in roles.items()
        )
    return graph


def expect_refused(framework: NetDestination[Any], op: Op, said: str) -> None:
    plan = make_plan(Graph((Node("first", op, (INPUT,)),), 3, "first"), ANY, framework.CAPABILITIES)
    with pytest.raises(GraphError, match=f"first: {said}"):
        framework.make_net(plan)
