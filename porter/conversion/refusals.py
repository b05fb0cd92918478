"""What a destination refuses, under the source's own names, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from porter.base.errors import GraphError, PaddingError, PorterError
from porter.base.options import OUTPUTS, TO
from porter.frameworks import get_destination
from porter.graph import Graph
from porter.graph.plan import make_plan
from porter.graph.walks import downstream
from porter.padding import Size

if TYPE_CHECKING:  # a variant's table of pads is made without numpy
    from porter.source.opened import Opened


_MOST_ABLE = ("torch", "tf", "onnx")
"""The destinations that have nearly every op."""


def under_own_names(
    errors: Sequence[PorterError], graph: Graph, opened: Opened | None, size: Size
) -> list[PorterError]:
    """Return the errors of a destination that refuses some nodes, with the file's own names of these and
    advice: which destinations have every op, and at which values before the refused nodes `--outputs` can
    end the file's graph instead.

    Args:
        errors: their `where` is the path of the node; others stay as they are.
        opened: None for a variant without its weights.
        size: rows and columns of the port's input.
    """
    if not errors:
        return []
    # the names under which the file's engine shows values, as `--outputs` takes them
    taps = opened.fitted.fit.in_file.taps if opened and opened.fitted else {}
    names = opened.facts.names if opened else {}
    refused = [node for error in errors if (node := graph.by_path.get(error.where or "")) is not None]
    # A value behind a refused node cannot be an end.
    behind = downstream(
        [node.path for node in graph.nodes],
        lambda path: graph.by_path[path].inputs,
        [node.path for node in refused],
    )
    inputs = [path for node in refused for path in node.inputs]
    possible_ends = [path for path in (*inputs, *graph.outputs) if path not in behind and path in taps]
    able = [name for name in _MOST_ABLE if _says_all(name, graph, size)]
    next = f"{' and '.join(able)} can say all of it: {TO(able[-1])}" if able else "no destination can"
    if possible_ends:
        outputs = [*dict.fromkeys(taps[path] for path in possible_ends)]
        them = "it" if len(refused) == 1 else "them"
        next += f", or end the file's graph before {them}: {OUTPUTS(outputs)}"
    own_names = {node.path: names.get(node.path, node.path) for node in refused}
    return [
        _under(error, own_names[error.where], next) if error.where in own_names else error for error in errors
    ]


def _says_all(name: str, graph: Graph, size: Size) -> bool:
    """Return whether a destination can write a graph: it has every op, and exact pads at this size."""
    destination = get_destination(name)
    try:
        return not destination.refusals(make_plan(graph, size, destination.CAPABILITIES))
    except (GraphError, PaddingError):
        return False


def _under(error: PorterError, name: str, next: str) -> PorterError:
    """Return an error at a node under the node's name in the file; `next` is its advice if it has none."""
    return type(error)(error.message, where=name, next=error.next or next)
