"""The port's `model.keras`, written and read without Keras and TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from porter.base.dtypes import Dtype
from porter.frameworks import LayerNames, OwnTensors, Tensors
from porter.frameworks.tf.layout import expect_cover, layer_names, tensor_names, to_canonical
from porter.frameworks.tf.ports.archive import MODEL_FILE, write_archive
from porter.frameworks.tf.ports.config import model_config
from porter.frameworks.tf.ports.model import state_model
from porter.frameworks.tf.ports.weights import write_weights
from porter.graph import tensor_shapes
from porter.graph.plan import Plan


def write(
    folder: Path,
    plan: Plan,
    tensors: Tensors,
    layers: LayerNames,
    dtype: Dtype,
    about: Mapping[str, str],
) -> dict[str, str]:
    """Write `model.keras` into `folder` and return the file's sha256 by its name; plain
    `keras.models.load_model` opens it, without custom objects. `about` is unused: the file has no place for
    facts.

    The same plan and tensors give the same bytes, under one version of HDF5.

    Raises:
        MappingError: `tensors` and the graph do not cover each other, or a shape differs.
        GraphError: a node with weights does not lead to the output, or Keras could not load a chain of so
            many layers.
    """
    statement = state_model(plan, tensors, layers, dtype)
    statement.expect_loadable()
    return write_archive(folder, model_config(statement), partial(write_weights, statement=statement))


def read_port(folder: Path, plan: Plan, layers: LayerNames) -> OwnTensors:
    """Read the tensors of a port that `write` or a stock library (porter.zoos) wrote, in porter's axis order.

    Raises:
        FileError: `model.keras` is missing or cannot be read.
        MappingError: the file and the graph do not cover each other.
    """
    from porter.formats.keras.read_keras import read_keras

    path = folder / MODEL_FILE
    checkpoint = read_keras(path)
    unused = checkpoint.stored_tensors
    graph = plan.lowered
    names = layer_names(graph, layers)
    tensors: OwnTensors = {}
    missing: list[str] = []
    with_tensors = tensor_shapes(graph)
    for node_path in graph.calls:
        if node_path not in with_tensors:
            continue
        node = graph.by_path[node_path]
        tensors[node_path] = {}
        for role, spellings in tensor_names(graph, node, names[node_path]).items():
            name = next((spelling for spelling in spellings if spelling in unused), None)
            if name is None:
                missing.append(spellings[0])
            else:
                tensors[node_path][role] = to_canonical(graph, node, role, unused.pop(name))
    expect_cover(missing, unused, where=path)
    # A further call of a layer has its first call's tensors.
    return {node_path: tensors[graph.by_path[node_path].holder] for node_path in with_tensors}
