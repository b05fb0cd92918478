"""A file's graph with its tensors as porter has them, and its values by the oracle: for the tests of every
format's reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph, to_canonical
from porter.filegraph.to_graph import Translated, to_graph
from porter.frameworks import engine_name, get_engine
from porter.graph import tensor_shapes
from tests.support.arrays import Array
from tests.support.oracle import evaluate


def translated(
    file: FileGraph, tensors: Mapping[str, Array]
) -> tuple[Translated, dict[str, dict[str, Array]]]:
    """The graph that gives the file's outputs, and its canonical tensors."""
    found = to_graph(file, keep_activation=True)
    held: dict[str, dict[str, Array]] = {}
    for path, roles in tensor_shapes(found.graph).items():
        stored = file.by_name[found.names[path]].tensors
        held[path] = {
            role: to_canonical(tensors[stored[role].name], stored[role], shape)
            for role, shape in roles.items()
        }
    return found, held


def values_of(file: FileGraph, tensors: Mapping[str, Array], batch: Array) -> dict[str, Array]:
    """The value of every node of a file's graph in float64, by its name, for a batch N×C×H×W."""
    found, held = translated(file, tensors)
    values = evaluate(found.graph, held, batch)
    return {name: values[path] for path, name in found.names.items()}


def values_as_run(checkpoint: Checkpoint, batch: Array) -> dict[str, Array]:
    """The values that `values_of` gives, for a batch N×H×W×C. At every tap they are the values of the file's
    own graph as porter runs it.
    """
    graph, engine, images = checkpoint.graph, get_engine(engine_name(checkpoint)), channels_first(batch)
    assert graph is not None
    values = values_of(graph, checkpoint.tensors, images)
    taps = {node.name: node.tap for node in graph.nodes if node.tap}
    found = engine.run_reference(engine.build_file(checkpoint, "float64", batch.shape[1:3]), images, taps)
    assert found.keys() == taps.keys(), taps.keys() - found.keys()
    for name, value in found.items():
        assert value.shape == values[name].shape and distance(values[name], value) <= 1e-12, name
    return values


def channels_first(value: Any) -> Array:
    """A value of TensorFlow's in porter's layout."""
    array = np.asarray(value)
    return array.transpose(0, 3, 1, 2) if array.ndim == 4 else array


def distance(found: Array, wanted: Array) -> float:
    """The relative L2 distance."""
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
