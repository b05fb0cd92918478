"""The graph as boxes."""

from __future__ import annotations

from pathlib import Path

from porter.graph import INPUT, Add, Conv, Dense, GlobalAvgPool, Graph, Node, Relu
from porter.graph.record import to_record
from porter.padding import Convention, Window
from porter.reporting.blocks import MOST_BLOCKS, MOST_NODES, Box, blocks_of
from porter.reporting.records import read_contents
from tests.support.reporting.ports import write_port

CONV = Conv(4, Window((3, 3), (1, 1)), Convention("same"))


def made(folder: Path, *nodes: Node) -> list[Box]:
    graph = to_record(Graph(channels=3, nodes=nodes, output=nodes[-1].path))
    return blocks_of(read_contents(write_port(folder, graph=graph, pads=[])).record)


def test_a_block_has_the_nodes_of_its_name_its_shape_and_the_pads_that_differ(tmp_path: Path) -> None:
    stem, stage, head = blocks_of(read_contents(write_port(tmp_path / "port")).record)
    assert (stem.name, stem.ops, stem.output, stem.padded_sites, stem.reads) == (
        "stem",
        "conv, max_pool",
        "4×56×56",
        2,
        (),
    )
    first, pool = stem.steps
    assert (first.op, first.window, first.output) == ("conv", "3x3 /2", "4×112×112")
    assert first.pad is not None and first.pad.kind == "pad layer" and pool.pad is not None
    assert (stage.padded_sites, stage.steps[0].pad, head.output, head.reads) == (0, None, "1000", ())


def test_a_block_says_what_it_reads_unless_it_is_the_one_before(tmp_path: Path) -> None:
    blocks = made(
        tmp_path / "port",
        Node("one/conv", CONV, (INPUT,)),
        Node("two/conv", CONV, ("one/conv",)),
        Node("three/add", Add(), ("one/conv", "two/conv")),
        Node("head/pool", GlobalAvgPool(), ("three/add",)),
        Node("head/logits", Dense(1000), ("head/pool",)),
    )
    assert [block.reads for block in blocks] == [(), (), ("one", "two"), ()]


def test_names_of_one_part_are_cut_where_values_join(tmp_path: Path) -> None:
    nodes = [Node("c0", CONV, (INPUT,))]
    for number in range(1, MOST_BLOCKS):
        nodes += [
            Node(f"c{number}", CONV, (nodes[-1].path,)),
            Node(f"a{number}", Add(), (f"c{number}", nodes[-1].path)),
        ]
    blocks = made(tmp_path / "port", *nodes)
    assert blocks[0].name == "c0 … a1" and len(blocks) == MOST_BLOCKS - 1
    assert [step.path for block in blocks for step in block.steps] == [node.path for node in nodes]


def test_a_page_holds_no_more_nodes_than_it_says(tmp_path: Path) -> None:
    paths = [f"b{number // 100}/n{number}" for number in range(MOST_NODES + 1)]
    nodes = [Node(path, Relu(), (before,)) for before, path in zip((INPUT, *paths), paths, strict=False)]
    assert made(tmp_path / "large", *nodes) == []
    assert len(made(tmp_path / "fits", *nodes[:-1])) == 30
