"""What destinations say of a graph with every op: those that refuse some, the ops that they can say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache
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


@cache
def sayable_plan(
    framework: NetDestination[Any], size: Size, of_maps: tuple[Op, ...]
) -> tuple[Graph, Plan, set[str]]:
    """The graph, its plan, and what the framework says of the other ops."""
    graph, said = sayable(
        every_op(of_maps), size, framework.CAPABILITIES, framework.make_net, ops_of(framework.SPELLINGS)
    )
    return graph, make_plan(graph, size, framework.CAPABILITIES), said


def sizes_of(plan: Plan) -> list[tuple[int, int]]:
    """The sizes at which the graph of a plan is run."""
    return [SIZE] if plan.only_size else [SIZE, (10, 9)]


def expect_every_op(framework: NetDestination[Any], graph: Graph, plan: Plan) -> None:
    """The ops that it knows give what the oracle gives, at every size of the plan."""
    tensors, fixed = tensors_of(graph), plan.only_size
    known = {*ops_of(framework.SPELLINGS), *WINDOWED}
    assert known - {type(node.op) for node in graph.nodes} == (set() if fixed else {Flatten})
    model = framework.ENGINE.build(plan, tensors, {}, "float64")
    for batch in map(images, sizes_of(plan)):
        wanted = evaluate(graph, tensors, batch)
        expect_near(framework.ENGINE.run(model, batch, [*wanted][1:]), wanted, EXACT)


def expect_near(found: Mapping[str, Array], wanted: Mapping[str, Array], limit: float) -> None:
    assert not {
        path: wanted[path].shape for path, value in found.items() if difference(value, wanted[path]) > limit
    }


def expect_equal_tensors(found: Any, wanted: Any, dtype: Any = np.float64) -> None:
    """A port's tensors are those that were written, in this type."""
    assert {path: [*roles] for path, roles in found.items()} == {
        path: [*roles] for path, roles in wanted.items()
    }
    for path, roles in wanted.items():
        assert all(np.array_equal(found[path][role], array.astype(dtype)) for role, array in roles.items()), (
            path
        )


def expect_refused(framework: NetDestination[Any], op: Op, said: str) -> None:
    plan = make_plan(Graph((Node("first", op, (INPUT,)),), 3, "first"), ANY, framework.CAPABILITIES)
    assert [str(error) for error in framework.refusals(plan)] == [f"first: {said}"]
    with pytest.raises(GraphError, match=f"first: {said}"):
        framework.make_net(plan)


def plant_in_the_writer(
    monkeypatch: pytest.MonkeyPatch, framework: NetDestination[Any], wrote: str, instead: str
) -> None:
    """Makes the text of a net say something else at the first place that says `wrote`."""
    text = framework.MAKER.text

    def mistaken(*args: Any) -> str:
        assert wrote in text(*args)
        return text(*args).replace(wrote, instead, 1)

    monkeypatch.setattr(framework.MAKER, "text", mistaken)
