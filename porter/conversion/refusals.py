"""What a destination refuses, under the source's own names, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from porter.base.errors import PorterError
from porter.graph import Graph
from porter.graph.walks import downstream

if TYPE_CHECKING:  # a variant's table of pads is made without numpy
    from porter.source.opened import Opened


def under_own_names(errors: Sequence[PorterError], graph: Graph, opened: Opened | None) -> list[PorterError]:
    """The errors of a destination that refuses some nodes, under the file's own names of these. A file's
    graph can be ported up to the values before all of them, which are named as they are typed.

    Args:
        errors: their `where` is the path of the node; others stay as they are.
        opened: None for a variant without its weights.
    """
    taps, names = (
        (opened.fitted.fit.taps if opened.fitted else {}, opened.facts.names) if opened else ({}, {})
    )
    nodes = [node for error in errors if (node := graph.by_path.get(error.where or "")) is not None]
    after = downstream(
        [each.path for each in graph.nodes],
        lambda path: graph.by_path[path].inputs,
        [node.path for node in nodes],
    )
    read = [path for node in nodes for path in node.inputs]
    before = {taps[path]: None for path in (*read, *graph.outputs) if path not in after and path in taps}
    cut = (
        f", or end the file's graph before {'it' if len(nodes) == 1 else 'them'}: --outputs "
        f"{','.join(before)}"
        if before
        else ""
    )
    next = f"torch, tf and onnx have every op: --to onnx{cut}"
    own = {node.path: names.get(node.path, node.path) for node in nodes}
    return [
        error if (name := own.get(error.where or "")) is None else _under(error, name, next)
        for error in errors
    ]


def _under(error: PorterError, name: str, next: str) -> PorterError:
    return type(error)(error.message, where=name, next=error.next or next)
