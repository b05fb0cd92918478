"""Ops that a plan makes of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from porter.frameworks.caffe.destination import DESTINATION as CAFFE
from porter.graph import (
    INPUT,
    AdaptivePool,
    Celu,
    Gelu,
    Graph,
    HardSigmoid,
    HardSwish,
    Identity,
    MaxPool,
    Minimum,
    Mish,
    Node,
    Op,
    ReduceMap,
    Relu,
    Relu6,
    Softplus,
    Softsign,
    Swish,
)
from porter.graph.lowering import LOWERINGS
from porter.graph.plan import make_plan
from porter.padding import ANY, Convention, Window
from tests.support.frameworks.every_op import OF_MAPS, SIZE, every_op, images, tensors_of
from tests.support.oracle import evaluate
from tests.support.random_graphs import CAPABLE, difference

SIZES = 0.0, 1e-300, 1e-9, 0.5, 3.0, 3.1, 6.0, 20.0, 37.0, 88.0, 300.0, 709.0, 750.0, 1e38, np.inf


def one(op: Op) -> Graph:
    return Graph((Node("it", op, (INPUT,)),), 1, "it")


def made(graph: Graph, lacks: Callable[[Op], bool] = lambda op: True) -> Graph:
    return make_plan(graph, ANY, replace(CAPABLE, lacks=lacks)).lowered


def test_the_parts_of_every_op_give_what_it_gives() -> None:
    every, batch = every_op(OF_MAPS), images(SIZE)
    lacking = replace(CAPABLE, lacks=lambda op: True)
    plan = make_plan(every, SIZE, lacking)
    graph = plan.lowered
    made = {row for path in plan.parts for row in type(every.by_path[path].op).__mro__}
    assert LOWERINGS.keys() - made == {AdaptivePool}
    assert not make_plan(graph, SIZE, lacking).parts
    tensors = tensors_of(every)
    wanted, found = evaluate(every, tensors, batch), evaluate(graph, tensors, batch)
    assert not [path for path in wanted if difference(found[path], wanted[path]) > 1e-14]
    mish = next(node.path for node in every.nodes if node.op == Mish())
    assert plan.graph == every and plan.origin(f"{mish}_smooth") == plan.origin(mish) == mish


@pytest.mark.parametrize(
    "op",
    [
        *(Relu6(), HardSigmoid(), HardSigmoid(0.2, 0.4), HardSwish(), Swish(), Mish(), Softsign()),
        *(Celu(), Celu(0.3), Gelu(approximate=True)),
    ],
)
@pytest.mark.parametrize("cut", [False, True])
def test_numbers_where_a_formula_could_overflow_or_cancel(op: Op, cut: bool) -> None:
    parts = made(one(op), lambda each: not isinstance(each, Softplus) or each.cut != cut)
    batch = np.array([np.nan, *SIZES, *np.negative(SIZES)]).reshape(1, 1, 1, -1)
    with np.errstate(all="ignore"):
        wanted, found = (evaluate(graph, {}, batch)["it"] for graph in (one(op), parts))
    assert np.allclose(found, wanted, rtol=2e-15, atol=0, equal_nan=True)


def test_what_is_not_below_0_stays_so_for_the_pools_after_it() -> None:
    """Zeros around it are then no larger than its cells, which a pool without a pad layer leaves out."""
    pool = MaxPool(Window((3, 3), (2, 2)), Convention("explicit", (1, 1, 1, 1), fill=0.0))
    for first, padded in ((Relu(), False), (Identity(), True)):
        nodes = (
            Node("first", first, (INPUT,)),
            Node("celu", Celu(), ("first",)),
            Node("pool", pool, ("celu",)),
        )
        plan = make_plan(Graph(nodes, 3, "pool"), ANY, CAFFE.CAPABILITIES)
        assert (plan.realisations["pool"].front is not None) == padded


def test_what_a_destination_lacks_of_a_part_is_said_of_its_node() -> None:
    nodes = Node("thin", ReduceMap("mean", "rows"), (INPUT,)), Node("least", Minimum(), (INPUT, "thin"))
    plan = make_plan(Graph(nodes, 3, "least"), ANY, CAFFE.CAPABILITIES)
    parts = ["least_negative", "least_negative_", "least_most", "least"]
    assert [part.path for part in plan.parts["least"]] == parts
    said = [(error.where, error.message) for error in CAFFE.refusals(plan)]
    assert said[1:] == [("least", "Caffe's Eltwise takes values of one shape")]
