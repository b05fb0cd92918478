"""Graphs of many equal layers are grouped in the time of their nodes."""

from itertools import pairwise

import pytest

from porter.graph import INPUT, Graph, Node, Relu
from porter.graph.blocks import outline as module
from porter.graph.blocks.outline import Leaf, outline, with_unique_names

LENGTH = 2000


def test_each_node_of_a_chain_is_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(module, "kind_of", lambda node: seen.append(node.path) or "relu")
    names = [INPUT, *(f"relu{number}" for number in range(LENGTH))]
    graph = Graph(tuple(Node(name, Relu(), (before,)) for before, name in pairwise(names)), 3, names[-1])
    assert len(list(outline(graph, {}).nodes())) == LENGTH and len(seen) < 4 * LENGTH


def test_equal_names_are_numbered_without_trying_all_that_are_taken() -> None:
    tried = []

    class Name(str):
        def __format__(self, spec: str) -> str:
            tried.append(self)
            return str(self)

    node = Node("relu", Relu(), (INPUT,))
    names = [
        leaf.name
        for leaf in with_unique_names(
            [Leaf(Name("act"), node), Leaf("act_2", node)] + [Leaf(Name("act"), node)] * LENGTH
        )
    ]
    assert (
        names == ["act", "act_2", *(f"act_{number}" for number in range(3, LENGTH + 3))]
        and len(tried) == LENGTH + 1
    )
