"""Laying a recipe's graph and a file's side by side."""

from porter.filegraph.file_graph import FileGraph, FileNode
from porter.graph import (
    INPUT,
    Add,
    Conv,
    Dense,
    Flatten,
    GlobalAvgPool,
    GlobalMaxPool,
    Graph,
    MaxPool,
    Node,
    Relu,
)
from porter.padding import Convention, Window
from porter.source.fitting.alignment import align
from porter.source.fitting.grafting import End, graft
from porter.source.fitting.without_cells import without_cells
from tests.support.source.file_graphs import as_file

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


def test_a_reshape_of_one_cell_needs_no_layer_and_stays() -> None:
    """A file's cells become features, without the reshape; the recipe of GhostNet has a convolution before
    it.
    """
    graph = Graph(
        (
            Node("pool", GlobalAvgPool(keep=True), (INPUT,)),
            Node("conv", Conv(5, Window((1, 1)), Convention()), ("pool",)),
            Node("act", Relu(), ("conv",)),
            Node("flat", Flatten(), ("act",)),
            Node("logits", Dense(7), ("flat",)),
        ),
        3,
        "logits",
    )
    aligned = align(graph, as_file(graph, (8, 8)), (8, 8))
    pairs = aligned.pairs("logits", "layer_4")
    assert pairs["flat"] == pairs["act"] == "layer_2"
    end = End("layer_4", True, None, ())
    assert graft(graph, aligned.file, pairs, {}, "logits", end).graph == graph


def test_only_the_last_of_two_pools_over_whole_maps_is_a_global_one() -> None:
    """Inception v3, built for small images, has a pool of 3x3 over a map of 3x3 and convolutions behind
    it.
    """
    pool = MaxPool(Window((3, 3), (2, 2)), Convention())
    nodes = (
        FileNode("inner", pool, (INPUT,)),
        FileNode("conv", Conv(3, Window((3, 3)), Convention("same")), ("inner",)),
        FileNode("outer", MaxPool(Window((1, 1)), Convention()), ("conv",)),
        FileNode("flat", Flatten(), ("outer",)),
    )
    without = without_cells(FileGraph(nodes, ("flat",), 3, (3, 3)))
    assert without.by_name["inner"].op == pool and without.by_name["outer"].op == GlobalMaxPool()
