"""The graph as boxes in the order of computation: each is a block of nodes, and opens to its nodes with their
pads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from porter.base.errors import GraphError
from porter.graph import Graph, Node, shapes, window_words
from porter.graph.pads import PadDecision
from porter.graph.record import from_record
from porter.padding import KnownSize
from porter.port import Record

MOST_BLOCKS, MOST_NODES = 60, 3000
"""How many boxes a reader looks through, and how many nodes a page holds."""


@dataclass(frozen=True)
class BlockNode:
    """A node in its block.

    Attributes:
        window: such as `3x3 /2`; empty where there is none.
        output: the shape of its value at the native size, such as `64×56×56`; empty where it is not known.
        pad: None where the source and the port pad in the same words.
    """

    path: str
    op: str
    window: str
    output: str
    pad: PadDecision | None


@dataclass(frozen=True)
class Box:
    """Nodes that stand together.

    Attributes:
        ops: how many there are of each, such as `2 conv, add`.
        reads: the blocks that it reads, unless it reads only the one before it.
    """

    name: str
    ops: str
    steps: tuple[BlockNode, ...]
    reads: tuple[str, ...]

    @property
    def output(self) -> str:
        return self.steps[-1].output

    @property
    def padded_sites(self) -> int:
        """How many sites need more for their pad than an attribute of the destination's own layer."""
        return sum(step.pad is not None and not step.pad.is_native for step in self.steps)


def blocks_of(record: Record) -> list[Box]:
    """Return the blocks of a port's graph, each with its nodes and what it reads; [] where it has more nodes
    than a page holds. A block that reads only the one before it lists nothing as read.
    """
    graph = from_record(record.graph)
    if len(graph.nodes) > MOST_NODES:
        return []
    output_shapes = _output_shapes(graph, record.input.native_size)
    pads = {pad.site: pad for pad in record.pads if pad.source != pad.realised}
    nodes_by_block = _nodes_by_block(graph.nodes)
    block_of = {node.path: name for name, nodes in nodes_by_block.items() for node in nodes}

    def block_node(node: Node) -> BlockNode:
        """Make a node of a block, with what the page says of it."""
        return BlockNode(
            node.path,
            node.op_name,
            window_words(node.op) or "",
            output_shapes.get(node.path, ""),
            pads.get(node.path),
        )

    blocks = []
    block_before = None
    for name, nodes in nodes_by_block.items():
        reads = dict.fromkeys(
            block_of[source] for node in nodes for source in node.inputs if block_of.get(source, name) != name
        )
        counts = Counter(node.op_name for node in nodes)
        ops = ", ".join(f"{count} {op}" if count > 1 else op for op, count in counts.items())
        listed_reads = () if set(reads) <= {block_before} else tuple(reads)
        blocks.append(Box(name, ops, tuple(map(block_node, nodes)), listed_reads))
        block_before = name
    return blocks


def _output_shapes(graph: Graph, size: KnownSize) -> dict[str, str]:
    """Return by path the shape of a node's value at a size, in words; {} where the graph does not take it."""
    try:
        return {path: "×".join(map(str, shape)) for path, shape in shapes(graph, size).items()}
    except GraphError:  # this graph is not one of the native size
        return {}


def _nodes_by_block(nodes: Sequence[Node]) -> Mapping[str, Sequence[Node]]:
    """Return the nodes by the names of their blocks: the longest beginnings of paths that make at most
    MOST_BLOCKS of them, such as `layer1/0` of `layer1/0/conv1`.

    Paths of a file often have one part only; they are cut behind each node that joins values, and a block is
    named after its first and its last node.
    """
    # the longest beginnings first
    for depth in range(max(node.path.count("/") for node in nodes), 0, -1):
        by_beginning: dict[str, list[Node]] = {}
        for node in nodes:
            beginning = "/".join(node.path.split("/")[:depth])
            by_beginning.setdefault(beginning, []).append(node)
        if len(by_beginning) <= MOST_BLOCKS:
            return by_beginning
    runs: list[list[Node]] = [[]]
    for node in nodes:
        runs[-1].append(node)
        if len(node.inputs) > 1:
            runs.append([])
    by_ends: dict[str, list[Node]] = {}
    for run in filter(None, runs):
        name = run[0].path if len(run) == 1 else f"{run[0].path} … {run[-1].path}"
        by_ends[name] = run
    return by_ends
