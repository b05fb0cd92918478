"""Frozen graphs and SavedModels: their weights and their graphs. They are parsed, never loaded or run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from porter.base.dtypes import NamedArrays, is_floating
from porter.base.errors import FileError
from porter.base.name_tables import natural_order
from porter.filegraph.checkpoint import UNREAD, Checkpoint
from porter.filegraph.value_names import NodeOutput, value_name
from porter.formats.limits import most_bytes
from porter.formats.protobuf import MOST_PARTS, parse_message
from porter.formats.tensorflow import import_tensorflow
from porter.formats.tf_checkpoint.read import read_tf_checkpoint
from porter.formats.tf_graph.constants import GraphConstants
from porter.formats.tf_graph.effects import expect_repeatable, nodes_run_for
from porter.formats.tf_graph.ends import choose_ends, image_inputs
from porter.formats.tf_graph.function_calls import Inlined, inline_functions
from porter.formats.tf_graph.graph import PlainGraph, read_graph
from porter.formats.tf_graph.nodes import GraphNode, Refuse, in_order_of_inputs, parse_nodes, parse_reference
from porter.formats.tf_graph.saved_variables import VARIABLE_OPS, read_variables
from porter.graph.walks import upstream
from porter.padding import Size

_SERVING = "serving_default"
_SAVE_AGAIN = "save the graph again"
_MOST_PARTS = 8 * MOST_PARTS
"""A node has more of them than in ONNX: three for each attribute. Keras writes each function of a model
several times.
"""


def read_frozen_graph(path: Path, outputs: Sequence[str] = (), size: Size | None = None) -> Checkpoint:
    """Read a GraphDef whose weights are constants. It begins at its only placeholder of rank 4 and ends at
    `outputs`, otherwise at the nodes that nothing reads.

    Raises:
        FileError: it is no GraphDef, too large or damaged, or has variables without values.
        UsageError: the graph lacks one of `outputs`.
        NotInstalled: TensorFlow is not installed.
    """
    graph = parse_message(path, import_tensorflow().compat.v1.GraphDef(), most_parts=_MOST_PARTS)
    return read_definition(Checkpoint(path, "frozen-graph", "tf", {}), graph, outputs, size)


def read_definition(stored: Checkpoint, graph: Any, outputs: Sequence[str], size: Size | None) -> Checkpoint:
    """Return the checkpoint of a GraphDef: its tensors and its graph. Without an image it has the constants
    and a note that says why there is no graph.

    Args:
        stored: the file, with the values of nodes whose constants are not in the graph.
        graph: the GraphDef.
        outputs: names of values at which the graph ends; its own ends if there are none.
        size: rows and columns of the image, where the graph leaves them open.
    """
    refuse: Refuse = partial(FileError, where=stored.path, next=_SAVE_AGAIN)
    outer = parse_nodes(graph.node, refuse)
    functions = list(graph.library.function)
    inlined = inline_functions(in_order_of_inputs(outer, list(outer), refuse), functions, refuse)
    network = _find_network(inlined, outputs, image_inputs(inlined.outer), (), "graph", refuse)
    budget = most_bytes(stored.path.stat().st_size)
    if isinstance(network, str):
        constants = _read_constants(inlined.nodes, budget, refuse)
        return replace(stored, tensors={**constants, **stored.tensors}, notes=(network,))
    unfrozen = next((node.name for node in network.needed.values() if node.op in VARIABLE_OPS), None)
    if unfrozen is not None:
        message = f"the graph has variables without values, such as '{unfrozen}': it is not frozen"
        raise FileError(message, where=stored.path, next="name the checkpoint beside it")
    variables = {name: array for name, array in stored.tensors.items() if name in inlined.nodes}
    plain = PlainGraph(inlined.nodes, variables, network.image, network.ends, budget, size, functions)
    return _with_graph(stored, plain, refuse)


def read_saved_model(path: Path, outputs: Sequence[str] = (), size: Size | None = None) -> Checkpoint:
    """Read a SavedModel, named by its folder or its saved_model.pb: the graph of its signature
    `serving_default`, which ends at `outputs` if any are named.

    TF 2's functions are inlined, and variables take their values from the folder `variables`.

    Raises:
        FileError: it is no SavedModel, has no graph to serve, or its variables are incomplete or damaged.
        UsageError: the graph lacks one of `outputs`.
        NotInstalled: TensorFlow is not installed.
    """
    file = path / "saved_model.pb" if path.is_dir() else path
    refuse: Refuse = partial(FileError, where=path, next=_SAVE_AGAIN)
    checkpoint = file.parent / "variables" / "variables"
    import_tensorflow()
    message = import_module("tensorflow.core.protobuf.saved_model_pb2").SavedModel()
    meta = _serving_graph(parse_message(file, message, most_parts=_MOST_PARTS), path)
    signature = _choose_signature(meta)
    outer = parse_nodes(meta.graph_def.node, refuse)
    # What the signature gives, or every node where there is none.
    served = [source for source, _ in signature.outputs] or list(outer)
    run = sorted(nodes_run_for(outer, served))
    functions = list(meta.graph_def.library.function)
    inlined = inline_functions(in_order_of_inputs(outer, [*served, *run], refuse), functions, refuse)
    candidates = _signature_inputs(signature, inlined.nodes)
    network = _find_network(inlined, outputs, candidates, signature.outputs, "SavedModel", refuse)
    if isinstance(network, str):
        weights = read_tf_checkpoint(checkpoint)
        notes, files = (network, *weights.notes), (file, *weights.files)
        return replace(weights, path=path, format="saved-model", notes=notes, files=files)
    nodes = network.graph.nodes
    run_for_ends = nodes_run_for(nodes, [name for name, _ in network.ends], network.graph.calls)
    expect_repeatable(nodes, network.needed, run_for_ends, path)
    variables = read_variables(meta, network.needed, checkpoint)
    files = (file, *variables.files)
    budget = most_bytes(sum(part.stat().st_size for part in files))
    renamed = variables.rename_nodes(network.needed)
    plain = PlainGraph(renamed, variables.values, network.image, network.ends, budget, size, functions)
    note = f"signature '{signature.name}'" if signature.name else "no signature"
    return _with_graph(Checkpoint(path, "saved-model", "tf", {}, (note,), files=files), plain, refuse)


class _Network(NamedTuple):
    """What of a graph is a network: from its image to its ends.

    Attributes:
        graph: all of it, each node after its inputs.
        needed: the nodes that the ends are computed from.
    """

    graph: Inlined
    image: str
    ends: Sequence[NodeOutput]
    needed: Mapping[str, GraphNode]


def _find_network(
    graph: Inlined,
    outputs: Sequence[str],
    candidates: Sequence[str],
    served: Sequence[NodeOutput],
    whole: str,
    refuse: Refuse,
) -> _Network | str:
    """Return the network of a graph, or a note that says why nothing in it takes images. Raise FileError for
    an image on which no output depends, and UsageError for an output that the graph lacks.

    Args:
        outputs: as in `read_definition`.
        candidates: names of the nodes of which one may take the image.
        served: what the signature gives; nothing where there is none.
        whole: a word for what is read.
    """
    image, note = _choose_image(graph, outputs, candidates)
    if image is None:
        return note
    graph = graph.in_order(refuse)
    ends = choose_ends(graph, image, outputs, served)
    if not ends:
        raise refuse(f"no output of the {whole} depends on the image")
    return _Network(graph, image, ends, in_order_of_inputs(graph.nodes, [name for name, _ in ends], refuse))


def _with_graph(checkpoint: Checkpoint, plain: PlainGraph, refuse: Refuse) -> Checkpoint:
    """Return a checkpoint with what `plain` is in porter's terms, its tensors, and notes on them."""
    graph, tensors = read_graph(plain, refuse)
    ends = ", ".join(repr(value_name(end)) for end in plain.ends)
    span = f"the graph begins at '{plain.image}' and ends at {ends}"
    notes = (*checkpoint.notes, span, *graph.notes)
    return replace(checkpoint, tensors=tensors, notes=notes, graph=graph)


def _choose_image(
    graph: Inlined, outputs: Sequence[str], candidates: Sequence[str]
) -> tuple[str | None, str]:
    """Return the name of the node that takes images, and no note; otherwise None and a note with the reason.
    It is the first of those `candidates` that the named outputs are computed from, which have to meet in one
    network; of all of them where no outputs are named, or these need none.
    """
    ends = (name for name, _ in map(graph.final, map(parse_reference, outputs)) if name in graph.nodes)
    needed = upstream(ends, lambda name: [source for source, _ in graph.nodes[name].inputs])
    candidates = [name for name in candidates if name in needed] or candidates
    readers = defaultdict[str, list[str]](list)  # the nodes of the functions stand behind what reads them
    for node in graph.nodes.values():
        for name, _ in node.inputs:
            readers[name].append(node.name)
    # They meet in one network where some node depends on all of them.
    if candidates and set.intersection(*(upstream([name], readers.__getitem__) for name in candidates)):
        return candidates[0], ""
    first_names = ", ".join(f"'{name}'" for name in candidates[:3])
    found = f"{len(candidates)} inputs, {first_names}," if candidates else "no placeholder"
    return None, f"{UNREAD}: it has {found} that may take an image of rank 4"


def _read_constants(nodes: Mapping[str, GraphNode], budget: int, refuse: Refuse) -> NamedArrays:
    """Return every constant of real numbers, by the name of its node, except single numbers."""
    constants = GraphConstants(nodes, {}, budget, refuse)
    arrays = {node.name: constants.array(node.name) for node in nodes.values() if node.op == "Const"}
    return {name: array for name, array in arrays.items() if array.ndim and is_floating(array)}


def _serving_graph(model: Any, path: Path) -> Any:
    """Return the MetaGraphDef for serving; a SavedModel may hold one for training too. Raise FileError where
    it is not clear which is meant.
    """
    graphs = list(model.meta_graphs)
    chosen = [graph for graph in graphs if "serve" in graph.meta_info_def.tags] or graphs
    if len(chosen) != 1:
        tags = "; ".join(", ".join(graph.meta_info_def.tags) or "none" for graph in graphs)
        raise FileError(
            f"expected one graph tagged 'serve', found {len(graphs)} with tags: {tags}", where=path
        )
    return chosen[0]


class _Signature(NamedTuple):
    """A signature to read, with the values that it takes and gives; without a name there is none."""

    name: str
    inputs: Sequence[NodeOutput]
    outputs: Sequence[NodeOutput]


def _choose_signature(meta: Any) -> _Signature:
    """Return the signature `serving_default`, otherwise the first by name that has inputs and outputs. Where
    there is none, return one without a name and values.
    """
    usable = sorted(
        name for name, signature in meta.signature_def.items() if signature.inputs and signature.outputs
    )
    if not usable:
        return _Signature("", (), ())
    name = _SERVING if _SERVING in usable else usable[0]
    definition = meta.signature_def[name]
    return _Signature(name, _references(definition.inputs), _references(definition.outputs))


def _references(infos: Mapping[str, Any]) -> list[NodeOutput]:
    """Return the values that a signature names, in the natural order of its keys: it does not keep theirs."""
    return [parse_reference(infos[key].name) for key in sorted(infos, key=natural_order)]


def _signature_inputs(signature: _Signature, nodes: Mapping[str, GraphNode]) -> Sequence[str]:
    """Return the inputs of a signature that may be images, otherwise all of them, otherwise those of the
    graph.
    """
    images = image_inputs(nodes)
    names = [name for name, _ in signature.inputs if name in nodes]
    return [name for name in names if name in images] or names or images
