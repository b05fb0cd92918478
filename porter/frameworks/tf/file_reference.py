"""The file's own graph as the model that a port is compared with."""

from __future__ import annotations

from typing import Any

from porter.base.dtypes import Dtype
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.tf.frozen.run import GraphRunner
from porter.frameworks.tf.layout import expect_cover
from porter.padding import Size


def build_file(checkpoint: Checkpoint, dtype: Dtype, size: Size) -> Any:
    """Return the graph that a file carries, for `run_reference`: as a Keras model, or as a GraphRunner of
    TensorFlow's operators. It takes inputs of `size` (rows, columns; None where free) and has the tensors of
    `checkpoint`.

    Raises:
        CannotRun: the file carries no graph, or one that this TensorFlow or Keras does not run; a
            layer or an op that is not on a closed list is named.
        UsageError: it is not run in this type.
        MappingError: graph and tensors do not fit each other.
    """
    graph = checkpoint.carried
    if graph.language == "keras":
        from porter.frameworks.tf.keras_files.build import build_keras_file

        return build_keras_file(checkpoint, dtype, size)
    # The tensors that the graph's nodes hold, which the file has to have.
    wanted = {stored.name for node in graph.nodes for stored in node.tensors.values()}
    expect_cover(wanted - checkpoint.tensors.keys(), (), where=checkpoint.path)
    # None: in the types that the graph states.
    kind = None if dtype in graph.halves else dtype
    runner = GraphRunner(graph.definition, checkpoint.tensors, graph.shown, kind, takes=graph)
    runner.arrays = graph.arrays
    return runner
