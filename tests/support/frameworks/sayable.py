"""What a destination can say of a graph with every op, for destinations that refuse some."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from porter.base.errors import PorterError
from porter.graph import AvgPool, Conv, Graph, MaxPool
from porter.graph.plan import Plan, make_plan
from porter.padding import Capabilities, Size

WINDOWED = (Conv, MaxPool, AvgPool)


def sayable(
    graph: Graph, size: Size, capabilities: Capabilities, make: Callable[[Plan], object], known: Collection[Any]
) -> tuple[Graph, set[str]]:
    """The graph without the nodes that `make` refuses, and what it says of those whose op is among the `known`."""
    said, gone = set[str](), {node.path for node in graph.nodes if type(node.op) not in (*known, *WINDOWED)}
    while True:
        for node in graph.nodes:
            if gone.intersection(node.inputs):
                gone.add(node.path)
        outputs = [path for path in graph.outputs if path not in gone]
        nodes = tuple(node for node in graph.nodes if node.path not in gone)
        graph = replace(graph, nodes=nodes, output=outputs[0], further=tuple(outputs[1:]))
        try:
            make(make_plan(graph, size, capabilities))
            return graph, said
        except PorterError as error:
            gone.add(error.where or "")
            said.add(error.message)
