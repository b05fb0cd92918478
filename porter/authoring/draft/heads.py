"""The head of a drafted graph: a recipe's graph ends in a dense layer."""

from __future__ import annotations

from dataclasses import replace

from porter.graph import Conv, Dense, Flatten, GlobalAvgPool, GlobalMaxPool, Graph, Node
from porter.padding import Window


def conv_head_as_dense(graph: Graph) -> tuple[Graph, bool]:
    """Return a graph whose head is a 1x1 convolution of a map of one cell, flattened behind it, with a dense
    layer in its place, and True: recipes end in a dense layer. Return any other graph as it is, and False.
    The dense layer has the convolution's path.
    """
    flatten = graph.by_path[graph.output]
    conv = graph.by_path.get(flatten.source)
    if flatten.op != Flatten() or conv is None or not isinstance(conv.op, Conv):
        return graph, False
    node_before = graph.by_path.get(conv.source)
    readers = [node.path for node in graph.nodes if set(node.inputs) & {conv.path, conv.source}]
    is_dense = conv.op.window == Window((1, 1)) and conv.op.groups == 1
    if not is_dense or readers != [conv.path, flatten.path] or node_before is None:
        return graph, False
    dense = replace(conv, op=Dense(conv.op.filters, conv.op.bias))
    # If a pool that keeps its axes makes the map of one cell, it drops them instead, and gives the features.
    pool: GlobalAvgPool | GlobalMaxPool | None = None
    if isinstance(node_before.op, GlobalAvgPool | GlobalMaxPool):
        pool = replace(node_before.op, keep=False)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node is conv and pool:
            nodes.append(dense)
        elif node is conv:
            # The flatten comes before the head now.
            nodes += [replace(flatten, inputs=(node_before.path,)), replace(dense, inputs=(flatten.path,))]
        elif node is node_before and pool:
            nodes.append(replace(node_before, op=pool))
        elif node is not flatten:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), output=conv.path), True
