"""A plan says every padding site in a framework, and at which sizes that is right."""

from __future__ import annotations

import pytest

from porter.base.errors import GraphError, PaddingError
from porter.frameworks.tf.ports.sites import CAPABILITIES as KERAS
from porter.frameworks.torch.layout import CAPABILITIES as TORCH
from porter.graph import (
    INPUT,
    Add,
    Affine,
    ConcatChannels,
    Conv,
    GlobalAvgPool,
    Graph,
    MaxPool,
    Multiply,
    Node,
    Op,
    Relu,
    Upsample,
)
from porter.graph.plan import make_plan
from porter.graph.record import from_record, to_record
from porter.padding import ANY, LOWEST, Convention, Window

TWO = Window((3, 3), (2, 2))
SAME, ONE = Convention("same"), Convention("explicit", (1, 1, 1, 1))


def two_convolutions(first: Convention, second: Convention) -> Graph:
    return Graph((Node("a", Conv(4, TWO, first), (INPUT,)), Node("b", Conv(4, TWO, second), ("a",))), 3, "b")


def test_pads_that_are_right_everywhere_leave_the_size_open() -> None:
    for size in (ANY, (224, 224), (33, 20)):
        assert make_plan(two_convolutions(ONE, ONE), size, TORCH).only_size is None
        assert make_plan(two_convolutions(SAME, ONE), size, KERAS).only_size is None


def test_pads_that_are_right_at_one_size_bind_the_plan_to_it() -> None:
    plan = make_plan(two_convolutions(ONE, SAME), (64, 33), TORCH)
    assert plan.only_size == (64, 33)
    assert set(plan.realisations) == {"a", "b"}
    # The second sees 32x17: SAME adds (0,1) to an even map and (1,1) to an odd one.
    assert plan.realisations["b"].front is not None
    assert plan.realisations["b"].front.pads == (0, 1, 1, 1)


@pytest.mark.parametrize("size", [ANY, (None, 64), (64, None)])
def test_an_unknown_side_means_every_size(size: tuple[int | None, int | None]) -> None:
    plan = make_plan(two_convolutions(ONE, SAME), size, TORCH)
    assert plan.only_size is None
    assert all(realisation.every_size for realisation in plan.realisations.values())
    assert plan.realisations["b"].kind == "dynamic pad layer"


def test_a_pool_behind_a_relu_may_be_filled_with_zeros() -> None:
    zeros = Convention("explicit", (1, 1, 1, 1))
    nodes = (
        Node("relu", Relu(), (INPUT,)),
        Node("behind", MaxPool(TWO, zeros), ("relu",)),
        Node("before", MaxPool(TWO, zeros), (INPUT,)),
        Node("shifted", Affine((1.0,), (-0.5,)), ("relu",)),
        Node("below", MaxPool(TWO, zeros), ("shifted",)),
        Node("sum", Add(), ("behind", "before", "below")),
    )
    realisations = make_plan(Graph(nodes, 3, "sum"), ANY, TORCH).realisations
    assert realisations["behind"].native == Convention("explicit", (1, 1, 1, 1), LOWEST)
    assert realisations["behind"].kind == "native"
    assert realisations["before"].kind == realisations["below"].kind == "pad layer"


def test_a_refusal_names_the_node() -> None:
    graph = two_convolutions(ONE, Convention("same_lower"))
    graph = Graph(
        (
            *graph.nodes,
            Node("c", MaxPool(Window((2, 2), (2, 2)), Convention("same_lower", fill=LOWEST)), ("b",)),
        ),
        3,
        "c",
    )
    with pytest.raises(PaddingError, match="SAME_LOWER depends on the input size") as caught:
        make_plan(graph, ANY, KERAS)
    assert caught.value.where == "c"
    assert caught.value.next == "give --input-size a fixed size"
    assert make_plan(graph, (60, 60), KERAS).only_size is not None


def test_an_input_too_small_is_refused_where_it_stops_fitting() -> None:
    with pytest.raises(GraphError, match="no 3x3 window fits into") as caught:
        make_plan(two_convolutions(Convention(), Convention()), (4, 4), TORCH)
    assert (caught.value.where, caught.value.next) == ("b", "give a larger input size")


@pytest.mark.parametrize("join", [Add(), ConcatChannels()])
def test_a_map_that_is_joined_with_one_of_a_size_of_its_own_fixes_the_input(join: Op) -> None:
    """It was refused at an unknown size, so that its port could be written, but not read."""
    nodes = (
        Node("mean", GlobalAvgPool(keep=True), (INPUT,)),
        Node("wide", Upsample(8, 8), ("mean",)),
        Node("scaled", Multiply(), (INPUT, "mean")),
        Node("joined", join, ("scaled", "wide")),
    )
    graph = Graph(nodes, 3, "joined")
    assert from_record(to_record(graph)) == graph
    assert make_plan(graph, (8, 8), KERAS).only_size == (8, 8)
    with pytest.raises(GraphError, match="fixes the input's size") as caught:
        make_plan(graph, ANY, KERAS)
    next = "give --input-size the size that the model was trained at"
    assert (caught.value.where, caught.value.next) == ("joined", next)
    with pytest.raises(GraphError, match=r"cannot (add|join) shapes 3x8x9, 3x8x8"):
        make_plan(graph, (8, 9), KERAS)
