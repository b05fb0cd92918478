"""Reads TensorFlow.js's models: their weights, and their topology by the readers of Keras's configs and of
TensorFlow's graphs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from porter.base.dtypes import NamedArrays, is_floating
from porter.base.name_tables import JsonObject
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.damage import ERRORS_OF_JSON, refusing_damage
from porter.formats.limits import read_bounded, read_json
from porter.formats.tfjs.javascript_modules import MODULE, to_json
from porter.formats.tfjs.manifest import find_shards, read_weights
from porter.padding import Size

_FETCH_AGAIN = "fetch the model.json and its shards again"
_MOST_TEXT = 256 << 20
_HEAD = 4096


def read_tfjs(path: Path, outputs: Sequence[str] = (), size: Size | None = None) -> Checkpoint:
    """Read a model.json with the shards that it names, which are in its folder; each may be a module of a
    package.

    Args:
        outputs: names of layers or nodes, at which the graph ends.
        size: rows and columns, for a graph model that leaves them open.

    Raises:
        FileError: it is damaged, or a shard is missing.
        UsageError: the graph lacks one of `outputs`.
        NotInstalled: it is a graph model, and TensorFlow is not installed.
    """
    with refusing_damage(path, _FETCH_AGAIN, further=ERRORS_OF_JSON):
        text = read_bounded(path, _MOST_TEXT).decode()
        model = read_json(to_json(text) if MODULE.search(text[:_HEAD]) else text)
        manifest = model.get("weightsManifest") or []
        groups = find_shards(manifest, path.parent)
        tensors = read_weights(manifest, groups)
        topology = dict(model.get("modelTopology") or {})
        signature = model.get("signature") or (model.get("userDefinedMetadata") or {}).get("signature") or {}
        # The names of the nodes that the signature gives, or its own keys where it has no names.
        ends = [str(end.get("name") or key) for key, end in (signature.get("outputs") or {}).items()]
    files = (path, *dict.fromkeys(file for group in groups for file in group))
    if isinstance(topology.get("node"), list):
        return _read_graph_model(path, topology, tensors, list(outputs) or ends, size, files)
    return _read_layers_model(path, topology, tensors, outputs, files)


def _read_layers_model(
    path: Path,
    topology: JsonObject,
    tensors: NamedArrays,
    outputs: Sequence[str],
    files: tuple[Path, ...],
) -> Checkpoint:
    """Return the checkpoint of a layers model, whose config TensorFlow.js writes as Keras 2 did; a file
    without a topology gives its weights only.

    Args:
        topology: the model's description, which holds the config or is it.
        tensors: the weights by name.
        outputs: names of layers at which the graph ends.
        files: the model.json and its shards.
    """
    checkpoint = Checkpoint(path, "tfjs-layers", "tf", dict(tensors), files=files)
    if not topology:
        return checkpoint
    from porter.formats.keras.graph import read_graph, with_graph

    config = topology.get("model_config", topology)
    with refusing_damage(path, _FETCH_AGAIN, further=ERRORS_OF_JSON):
        text = config if isinstance(config, str) else json.dumps(config)
    version = str(topology.get("keras_version") or "")
    # Models that were made in JavaScript state "tfjs-layers" and a version of that.
    metadata = {"keras_version": version if version[:1].isdigit() else "2.0"}
    return with_graph(checkpoint, read_graph(text, tensors, str(path), metadata, outputs))


def _read_graph_model(
    path: Path,
    topology: JsonObject,
    tensors: NamedArrays,
    outputs: Sequence[str],
    size: Size | None,
    files: tuple[Path, ...],
) -> Checkpoint:
    """Return the checkpoint of a graph model, whose topology is a GraphDef in JSON. Tensors of whole numbers
    become constants of the graph; those of real ones are the checkpoint's.
    """
    from porter.formats.tensorflow import import_tensorflow
    from porter.formats.tf_graph.read import read_definition
    from porter.formats.tfjs.fused import unfuse

    tensorflow = import_tensorflow()
    graph = tensorflow.compat.v1.GraphDef()
    json_format = import_module("google.protobuf.json_format")
    with refusing_damage(path, _FETCH_AGAIN, further=(*ERRORS_OF_JSON, json_format.Error)):
        json_format.ParseDict(topology, graph, ignore_unknown_fields=True)
        unfuse(graph)
        for node in graph.node:
            if node.name in tensors and not is_floating(tensors[node.name]):
                node.attr["value"].tensor.CopyFrom(tensorflow.make_tensor_proto(tensors[node.name]))
    real_tensors = {name: array for name, array in tensors.items() if is_floating(array)}
    checkpoint = Checkpoint(path, "tfjs-graph", "tf", real_tensors, files=files)
    return read_definition(checkpoint, graph, outputs, size)
