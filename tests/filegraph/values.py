"""A file's graph with its tensors as porter has them, and its values by the oracle: for the tests of every format's reader."""

from __future__ import annotations

from collections.abc import Mapping

from porter.dtypes import Array
from porter.filegraph.file_graph import FileGraph, canonical
from porter.filegraph.to_graph import Translated, to_graph
from porter.graph import tensor_shapes
from tests.oracle import evaluate


def translated(file: FileGraph, tensors: Mapping[str, Array]) -> tuple[Translated, dict[str, dict[str, Array]]]:
    """The graph that gives the file's outputs, and its canonical tensors."""
    found = to_graph(file, keep_activation=True)
    held: dict[str, dict[str, Array]] = {}
    for path, roles in tensor_shapes(found.graph).items():
        stored = file.by_name[found.names[path]].tensors
        held[path] = {role: canonical(tensors[stored[role].name], stored[role], shape) for role, shape in roles.items()}
    return found, held


def values_of(file: FileGraph, tensors: Mapping[str, Array], batch: Array) -> dict[str, Array]:
    """The value of every node of a file's graph in float64, by its name, for a batch N×C×H×W."""
    found, held = translated(file, tensors)
    values = evaluate(found.graph, held, batch)
    return {name: values[path] for path, name in found.names.items()}
