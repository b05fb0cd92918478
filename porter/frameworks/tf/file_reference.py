"""The file's own graph as the model that a port is compared with."""

from __future__ import annotations

from typing import Any

from porter.dtypes import Dtype
from porter.errors import MissingFramework
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph, Foreign
from porter.frameworks.tf.frozen.run import GraphRunner
from porter.frameworks.tf.layout import expect_cover
from porter.padding import Size


def build_file(checkpoint: Checkpoint, dtype: Dtype, size: Size) -> Any:
    """The graph that a file carries for an input of `size` (rows, columns; None where free), with the tensors of
    `checkpoint`, for `run_reference`.

    Raises:
        MissingFramework: the file carries no graph, or one that this TensorFlow or Keras does not run; a layer or an op that is
            not on a closed list is named.
        UsageError: it is not run in this type.
        MappingError: graph and tensors do not fit each other.
    """
    graph = checkpoint.graph
    if graph is None:
        raise MissingFramework("this file carries no graph", where=str(checkpoint.path))
    if graph.language == "keras":
        from porter.frameworks.tf.keras_file import build_keras_file

        return build_keras_file(checkpoint, dtype, size)
    wanted = {stored.name for node in graph.nodes for stored in node.tensors.values()}
    expect_cover(wanted - checkpoint.tensors.keys(), (), where=str(checkpoint.path))
    return GraphRunner(graph.definition, checkpoint.tensors, _runnable(graph), dtype)


def _runnable(graph: FileGraph) -> list[str]:
    """The taps of all nodes that are not foreign and do not follow a foreign node. Other nodes are never compared."""
    foreign: set[str] = set()
    taps: list[str] = []
    for node in graph.nodes:
        if isinstance(node.op, Foreign) or not foreign.isdisjoint(node.inputs):
            foreign.add(node.name)
        elif node.tap is not None:
            taps.append(node.tap)
    if not taps:
        raise MissingFramework(f"the graph begins with layers that porter has no op for: {', '.join(sorted(foreign))[:200]}")
    return taps
