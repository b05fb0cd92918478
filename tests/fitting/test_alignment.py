"""Laying a recipe's graph and a file's side by side."""

from porter.filegraph.file_graph import FileGraph, FileNode
from porter.fitting.alignment import align
from porter.graph import INPUT, Add, Conv, Graph, Node
from porter.padding import Convention, Window

CONV = Conv(3, Window((1, 1)), Convention())
UNITS = 60


def nodes() -> list[tuple[str, Conv | Add, tuple[str, ...]]]:
    found: list[tuple[str, Conv | Add, tuple[str, ...]]] = []
    before = INPUT
    for index in range(UNITS):
        found += [(f"conv{index}", CONV, (before,)), (f"add{index}", Add(), (before, f"conv{index}"))]
        before = f"add{index}"
    return found


def test_a_network_of_branches_is_walked_once() -> None:
    """A walk of every way through it would take 2**60 steps."""
    graph = Graph(tuple(Node(*node) for node in nodes()), 3, f"add{UNITS - 1}")
    file = FileGraph(tuple(FileNode(*node) for node in nodes()), (graph.output,), 3, (8, 8))
    pairs = align(graph, file, (8, 8)).pairs(graph.output, graph.output)
    assert pairs == {INPUT: INPUT, **{node.path: node.path for node in graph.nodes}}
