"""The head of a drafted graph: a recipe's graph ends in a dense layer."""

from __future__ import annotations

from dataclasses import replace

from porter.graph import Conv, Dense, Flatten, GlobalAvgPool, GlobalMaxPool, Graph, Node
from porter.padding import Window


def with_dense_head(graph: Graph) -> tuple[Graph, bool]:
    """A graph that ends in a convolution of a map of one cell, which is then flattened, with the dense layer
    that it is; and whether it did. The convolution's node keeps its path.
    """
    flatten = graph.by_path[graph.output]
    conv = graph.by_path.get(flatten.source)
    if flatten.op != Flatten() or conv is None or not isinstance(conv.op, Conv):
        return graph, False
    before = graph.by_path.get(conv.source)
    readers = [node.path for node in graph.nodes if set(node.inputs) & {conv.path, conv.source}]
    plain = conv.op.window == Window((1, 1)) and conv.op.groups == 1 and readers == [conv.path, flatten.path]
    if not plain or before is None:
        return graph, False
    dense = replace(conv, op=Dense(conv.op.filters, conv.op.bias))
    pool = replace(before.op, keep=False) if isinstance(before.op, GlobalAvgPool | GlobalMaxPool) else None
    changed = {
        flatten.path: None,
        conv.path: dense if pool else replace(dense, inputs=(flatten.path,)),
        before.path: replace(before, op=pool) if pool else before,
    }
    nodes: list[Node] = []
    for node in graph.nodes:
        node_of_graph = changed.get(node.path, node)
        if node_of_graph is not None:
            nodes += (
                [replace(flatten, inputs=(before.path,)), node_of_graph]
                if node is conv and not pool
                else [node_of_graph]
            )
    return replace(graph, nodes=tuple(nodes), output=conv.path), True
