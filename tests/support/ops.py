"""The ops of graphs as tests ask for them."""

from __future__ import annotations

from typing import Any

from porter.graph import Graph


def op_at(graph: Graph, path: str) -> Any:
    """The op of a path, whose class the test knows."""
    return graph.by_path[path].op
