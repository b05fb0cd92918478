"""Frozen graphs and SavedModels: their weights and their graphs. They are parsed, never loaded or run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from porter.base.dtypes import NamedArrays, is_floating
from porter.base.errors import FileError
from porter.filegraph.checkpoint import UNREAD, Checkpoint
from porter.filegraph.dataflow import names_depending_on
from porter.filegraph.names import expect_values
from porter.filegraph.value_names import NodeOutput, value_name
from porter.formats.limits import most_bytes
from porter.formats.protobuf import MOST_PARTS, parse_message
from porter.formats.tensorflow import import_tensorflow
from porter.formats.tf_checkpoint.read import read_tf_checkpoint
from porter.formats.tf_graph.constants import GraphConstants
from porter.formats.tf_graph.effects import expect_repeatable, nodes_run_for
from porter.formats.tf_graph.ends import find_loose_ends, image_inputs, outputs_of, within_network
from porter.formats.tf_graph.function_calls import inline_functions
from porter.formats.tf_graph.graph import PlainGraph, read_graph
from porter.formats.tf_graph.nodes import GraphNode, Refuse, in_order_of_inputs, parse_nodes, parse_reference
from porter.formats.tf_graph.saved_variables import VARIABLE_OPS, read_variables
from porter.graph.walks import upstream
from porter.padding import Size

_SERVING = "serving_default"
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
    path = stored.path
    refuse = _refuse_with(stored.path)
    outer_nodes = _order_all(parse_nodes(graph.node, refuse), refuse)
    inlined = inline_functions(outer_nodes, graph.library.function, refuse)
    nodes = inlined.nodes
    image, notes = _choose_image(
        nodes, _needed_inputs(outputs, nodes, inlined.replacements, image_inputs(outer_nodes))
    )
    budget = most_bytes(path.stat().st_size)
    if image is None:
        return replace(
            stored, tensors={**_read_constants(nodes, budget, refuse), **stored.tensors}, notes=notes
        )
    plain = _order_all(nodes, refuse)
    ends = _choose_ends(outputs, (), plain, outer_nodes, inlined.replacements, image)
    if not ends:
        raise refuse("no output of the graph depends on the image")
    end_nodes = [name for name, _ in ends]
    # Only those that the outputs need.
    unfrozen = [
        node.name for node in in_order_of_inputs(plain, end_nodes, refuse).values() if node.op in VARIABLE_OPS
    ]
    if unfrozen:
        message = f"the graph has variables without values, such as '{unfrozen[0]}': it is not frozen"
        raise FileError(message, where=path, next="name the checkpoint beside it")
    variables = {name: array for name, array in stored.tensors.items() if name in nodes}
    graph_read, tensors = read_graph(
        PlainGraph(nodes, variables, image, ends, budget, size, list(graph.library.function)), refuse
    )
    return replace(
        stored,
        tensors=tensors,
        notes=(*notes, _describe_span(image, ends), *graph_read.notes),
        graph=graph_read,
    )


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
    refuse = _refuse_with(path)
    checkpoint = file.parent / "variables" / "variables"
    import_tensorflow()
    message = import_module("tensorflow.core.protobuf.saved_model_pb2").SavedModel()
    meta = _serving_graph(parse_message(file, message, most_parts=_MOST_PARTS), path)
    signature = _choose_signature(meta)
    outer_nodes = parse_nodes(meta.graph_def.node, refuse)
    # What the signature gives, or every node where there is none.
    served = [source for source, _ in signature.outputs] or list(outer_nodes)
    outer_nodes = in_order_of_inputs(
        outer_nodes, [*served, *sorted(nodes_run_for(outer_nodes, served))], refuse
    )
    library = meta.graph_def.library.function
    inlined = inline_functions(outer_nodes, library, refuse)
    nodes, replacements = inlined.nodes, inlined.replacements
    image, notes = _choose_image(
        nodes, _needed_inputs(outputs, nodes, replacements, _signature_inputs(signature, nodes))
    )
    if image is None:
        weights = read_tf_checkpoint(checkpoint)
        notes, files = (*notes, *weights.notes), (file, *weights.files)
        return replace(weights, path=path, format="saved-model", notes=notes, files=files)
    plain = _order_all(nodes, refuse)
    ends = _choose_ends(outputs, signature.outputs, plain, outer_nodes, replacements, image)
    if not ends:
        raise refuse("no output of the SavedModel depends on the image")
    end_nodes = [name for name, _ in ends]
    needed = in_order_of_inputs(plain, end_nodes, refuse)
    expect_repeatable(plain, needed, nodes_run_for(nodes, end_nodes, inlined.calls), path)
    variables = read_variables(meta, needed, checkpoint)
    files = (file, *variables.files)
    budget = most_bytes(sum(part.stat().st_size for part in files))
    graph_read, tensors = read_graph(
        PlainGraph(
            variables.rename_nodes(needed), variables.values, image, ends, budget, size, list(library)
        ),
        refuse,
    )
    note = f"signature '{signature.name}'" if signature.name else "no signature"
    notes = (note, *notes, _describe_span(image, ends), *graph_read.notes)
    return Checkpoint(path, "saved-model", "tf", tensors, notes, graph=graph_read, files=files)


def _natural_order(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts `output_10` after `output_2`, because a signature does not keep the order of
    its inputs and outputs.
    """
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def _refuse_with(path: Path) -> Refuse:
    return lambda message: FileError(message, where=path, next="save the graph again")


def _order_all(nodes: Mapping[str, GraphNode], refuse: Refuse) -> dict[str, GraphNode]:
    """Return all nodes, each after its inputs."""
    return in_order_of_inputs(nodes, list(nodes), refuse)


def _choose_image(
    nodes: Mapping[str, GraphNode], candidates: Sequence[str]
) -> tuple[str | None, tuple[str, ...]]:
    """Return the name of the node that takes images, the first one of several that meet in one network, and
    no notes; otherwise None and a note with the reason.
    """
    # They meet in one network where some node depends on all of them.
    if candidates and set.intersection(*(names_depending_on(nodes, [name]) for name in candidates)):
        return candidates[0], ()
    first_names = ", ".join(f"'{name}'" for name in candidates[:3])
    found = f"{len(candidates)} inputs, {first_names}," if candidates else "no placeholder"
    return None, (f"{UNREAD}: it has {found} that may take an image of rank 4",)


def _needed_inputs(
    outputs: Sequence[str],
    nodes: Mapping[str, GraphNode],
    replacements: Mapping[NodeOutput, NodeOutput],
    candidates: Sequence[str],
) -> Sequence[str]:
    """Return those of the `candidates` for the image that the named outputs are computed from; all of them
    where no outputs are named, or these need none.
    """
    ends = [replacements.get(end, end)[0] for end in map(parse_reference, outputs)]
    needed = upstream(
        (name for name in ends if name in nodes), lambda name: [source for source, _ in nodes[name].inputs]
    )
    return [name for name in candidates if name in needed] or candidates


def _choose_ends(
    outputs: Sequence[str],
    signature_outputs: Sequence[NodeOutput],
    nodes: Mapping[str, GraphNode],
    outer_nodes: Mapping[str, GraphNode],
    replacements: Mapping[NodeOutput, NodeOutput],
    image: str,
) -> list[NodeOutput]:
    """Return the values at which a graph ends: the named ones, otherwise those of a signature, otherwise
    those that nothing reads; of these only the ones that depend on the image.

    Args:
        outer_nodes: the graph's nodes before its calls were inlined.
        replacements: the values that replaced the calls' outputs.
    """
    if outputs:
        return _find_values(outputs, nodes, replacements, image)
    if signature_outputs:
        ends = [replacements.get(source, source) for source in signature_outputs]
        return within_network(nodes, image, ends)
    return _find_ends(nodes, outer_nodes, replacements, image)


def _find_ends(
    nodes: Mapping[str, GraphNode],
    outer_nodes: Mapping[str, GraphNode],
    replacements: Mapping[NodeOutput, NodeOutput],
    image: str,
) -> list[NodeOutput]:
    """Return the ends of a graph that does not state them: the values of the nodes that nothing reads.
    `outer_nodes` are the graph's before its calls were inlined: each call of a function is one of them.
    """
    by_call: dict[str, list[NodeOutput]] = {}
    for source, end in replacements.items():
        by_call.setdefault(source[0], []).append(end)
    ends = [
        # A call stands for all that replaced its outputs.
        by_call.get(name) or outputs_of(outer_nodes[name])
        for name in find_loose_ends(outer_nodes, image)
    ]
    return within_network(nodes, image, chain.from_iterable(ends))


def _find_values(
    names: Sequence[str],
    nodes: Mapping[str, GraphNode],
    replacements: Mapping[NodeOutput, NodeOutput],
    image: str,
) -> list[NodeOutput]:
    """Return the values of these names, such as `conv` and `split:1`, as far as they depend on the image.
    Raise UsageError for a name that the graph lacks.
    """
    # The first output of each node, and what replaced the outputs of calls.
    values = {**{(name, 0): (name, 0) for name in nodes}, **replacements}
    references = [parse_reference(name) for name in names]
    expect_values([name for name, _ in references], (name for name, _ in values))
    return within_network(nodes, image, (values.get(source, source) for source in references))


def _describe_span(image: str, ends: Sequence[NodeOutput]) -> str:
    """Return a note on where the graph begins and where it ends."""
    return f"the graph begins at '{image}' and ends at {', '.join(repr(value_name(end)) for end in ends)}"


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
    """Return the values that a signature names, in the natural order of its keys."""
    return [parse_reference(infos[key].name) for key in sorted(infos, key=_natural_order)]


def _signature_inputs(signature: _Signature, nodes: Mapping[str, GraphNode]) -> Sequence[str]:
    """Return the inputs of a signature that may be images, otherwise all of them, otherwise those of the
    graph.
    """
    images = image_inputs(nodes)
    names = [name for name, _ in signature.inputs if name in nodes]
    return [name for name in names if name in images] or names or images
