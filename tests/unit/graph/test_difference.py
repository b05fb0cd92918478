"""What two graphs of the same tensors compute otherwise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from porter.graph import Add, Affine, AvgPool, BatchNorm, Conv, Graph, Node, Relu, Relu6
from porter.graph.difference import differences
from porter.padding import Convention, Window

THREE = Window((3, 3), (2, 2))
NODES = (
    Node("conv", Conv(4, THREE, Convention.stated((1, 1, 1, 1))), ("input",)),
    Node("norm", BatchNorm(1e-5, 0.1), ("conv",)),
    Node("act", Relu6(), ("norm",)),
    Node(
        "pool",
        AvgPool(Window((3, 3), (1, 1)), Convention.stated((1, 1, 1, 1), average="real_cells")),
        ("act",),
    ),
    Node("add", Add(), ("act", "pool")),
)
GRAPH = Graph(NODES, 3, "add")


def changed(place: int, **attributes: object) -> Graph:
    node = NODES[place]
    return replace(
        GRAPH, nodes=(*NODES[:place], replace(node, op=replace(node.op, **attributes)), *NODES[place + 1 :])
    )


def other_op() -> Graph:
    return replace(GRAPH, nodes=(*NODES[:2], replace(NODES[2], op=Relu()), *NODES[3:]))


def other_order() -> Graph:
    return replace(GRAPH, nodes=(*NODES[:4], replace(NODES[4], inputs=("norm", "pool"))))


def scaled() -> Graph:
    first = replace(NODES[0], inputs=("scale",))
    return replace(GRAPH, nodes=(Node("scale", Affine((2.0,), (0.0,)), ("input",)), first, *NODES[1:]))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (changed(0, convention=Convention("same")), "pads of conv: 1 in one, same in two"),
        (changed(0, window=Window((3, 3), (1, 1))), "windows of conv: "),
        (changed(0, groups=1, bias=True), "bias of conv: False in one, True in two"),
        (changed(1, epsilon=1e-3), "epsilon of norm: 1e-05 in one, 0.001 in two"),
        (changed(3, convention=Convention.stated((1, 1, 1, 1), average="full_window")), "pads of pool: "),
        (other_op(), "op of act: relu6 in one, relu in two"),
        (other_order(), "inputs of add: act and pool in one, norm and pool in two"),
        (scaled(), "affine at scale only in two"),
    ],
)
def test_every_kind_is_seen(other: Graph, said: str) -> None:
    (found,) = differences(GRAPH, other)
    assert found.in_words("one", "two").startswith(said)


@pytest.mark.parametrize(
    ("other", "ignoring"),
    [
        (GRAPH, ()),
        (changed(0, convention=Convention("cntk")), ()),
        (changed(1, momentum=0.5), ("momentum",)),
        (changed(1, epsilon=float(np.float32(1e-5))), ()),
    ],
)
def test_the_same_function_differs_in_nothing(other: Graph, ignoring: tuple[str, ...]) -> None:
    assert differences(GRAPH, other, ignoring) == ()
