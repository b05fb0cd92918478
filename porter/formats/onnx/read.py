"""ONNX models: their weights and their graphs. They are parsed, never run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from porter.base.dtypes import Dtype, NamedArrays, is_floating
from porter.base.errors import FileError, escaped
from porter.filegraph.checkpoint import UNREAD, Checkpoint
from porter.filegraph.dataflow import Arrays, Dataflow, Operators, names_depending_on
from porter.filegraph.file_graph import FileGraph, Foreign
from porter.filegraph.finishing import finish
from porter.filegraph.names import node_titles, with_scope_names
from porter.filegraph.reading import begin, read_nodes
from porter.filegraph.value_names import NodeOutput
from porter.formats.limits import most_bytes
from porter.formats.onnx.arithmetic import kind_of, operands
from porter.formats.onnx.branches import MOST_ROUNDS, decide_conditions, with_chosen_branches
from porter.formats.onnx.constants import (
    FLOAT_TYPES,
    HALF_TYPES,
    RESHAPES,
    is_cast_to_floats,
    is_cast_to_integers,
)
from porter.formats.onnx.image_input import MappedInput, possible_images, read_further_input
from porter.formats.onnx.nodes import OnnxNode
from porter.formats.onnx.ops import READERS
from porter.formats.onnx.proto import OnnxGraph, captured_values, import_onnx, read_message
from porter.formats.onnx.renewing import expect_every_tensor, with_tensors
from porter.graph import MOST_INPUTS
from porter.graph.walks import upstream
from porter.padding import Size

_MOST_NOTES = 5


def read_onnx(
    path: Path,
    outputs: Sequence[str] = (),
    size: Size | None = None,
    tensors: NamedArrays | None = None,
) -> Checkpoint:
    """Return an ONNX model of one image: its graph, which ends at `outputs` if any are named, and every
    tensor of real numbers that it stores.

    Args:
        size: of the image, where the model leaves it open.
        tensors: by name, in place of those that it stores: all that its layers have.

    Raises:
        MappingError: one of `tensors` is missing, or is none of the model's.
        FileError: as porter.formats.onnx.proto.read_message, or the model computes with whole numbers.
        UsageError: the graph lacks one of `outputs`.
        NotInstalled: the package `onnx` is not installed.
    """
    try:
        model = read_message(path, outputs)
        if tensors is None:
            return _read(model, path, size)
        checkpoint = _read(with_tensors(model, tensors), path, size)
        if checkpoint.graph is not None:
            expect_every_tensor(model, checkpoint.graph, tensors)
        return checkpoint
    except UnicodeDecodeError:
        raise FileError(
            "a name in the model is not text", where=path, next="fetch or copy it again"
        ) from None


def _read(model: OnnxGraph, path: Path, size: Size | None) -> Checkpoint:
    """Return the checkpoint of a model: its tensors and its graph. A model whose inputs are no images comes
    without a graph, with a note that says why. Raise FileError if no output depends on the image.
    """
    tensors = {name: array for name, array in model.arrays.items() if array.ndim and is_floating(array)}
    inputs = _inputs(model)
    integer_inputs = _integer_inputs(model, inputs)
    read = _read_image(model, inputs, size)
    if read is None:
        return Checkpoint(path, "onnx", None, tensors, (_why_unread(inputs),), files=model.files)
    graph = read.graph
    if not graph.outputs:
        raise FileError("no output of the model depends on its image", where=path, next="export it again")
    used = {stored.name for node in graph.nodes for stored in node.tensors.values()}
    # Those of the chosen branches of Ifs come with the graph.
    tensors |= {name: read.arrays[name] for name in used - graph.evaluated.keys()}
    program = model.proto.producer_name or "an unknown program"
    notes = (
        f"opset {model.nodes[''].opset}, written by {program}",
        *read.notes,
        *(
            f"the input '{escaped(name)}' has whole numbers, which a port takes as real ones"
            for name in integer_inputs
        ),
        *graph.notes,
    )
    definition = _make_definition(model, tensors, read.metadata)
    graph = replace(graph, traced=graph.built_size is not None, definition=definition, language="onnx")
    stated = {entry.key: entry.value for entry in model.proto.metadata_props}
    all_tensors = {**tensors, **graph.evaluated}
    return Checkpoint(path, "onnx", None, all_tensors, notes, graph=graph, files=model.files, stated=stated)


def _inputs(model: OnnxGraph) -> list[Any]:
    """Return the inputs (ValueInfoProto) that outputs are computed from, images first; all inputs if there
    are none.
    """
    inputs = [value for value in model.proto.graph.input if model.nodes[value.name].op == "Input"]
    needed = _nodes_of_outputs(model)
    return sorted([value for value in inputs if value.name in needed] or inputs, key=_is_no_map)


def _integer_inputs(model: OnnxGraph, inputs: Sequence[Any]) -> list[str]:
    """Return the names of inputs of whole numbers. Raise FileError for one with which the model computes
    before it is cast to real ones.
    """
    names = [value.name for value in inputs if value.type.tensor_type.elem_type not in FLOAT_TYPES]
    for name in names:
        if not _becomes_real(model, name):
            next = "export the model with inputs of real numbers"
            message = f"the input '{name}' has whole numbers, with which the model computes"
            raise FileError(message, where=model.path, next=next)
    return names


def _why_unread(inputs: Sequence[Any]) -> str:
    """Return a note that says why a graph is not read, with the names of its first inputs."""
    names = ", ".join(f"'{value.name}'" for value in inputs[:3]) or "none"
    wanted = (
        "inputs of one batch are expected: an image, or a tensor that can be one, and others of known sizes"
    )
    return f"{UNREAD}: {wanted}; found {names}"


@dataclass(frozen=True)
class _ReadGraph:
    """A graph as it is read with one of its inputs as the image.

    Attributes:
        arrays: the model's tensors.
        metadata: what its definition states besides: constants that a port says more exactly, and the image's
            layout.
        notes: on how the input becomes a map, and which of the model's outputs are not the graph's.
    """

    graph: FileGraph
    arrays: NamedArrays
    metadata: Mapping[str, str]
    notes: Sequence[str]


def _read_image(model: OnnxGraph, inputs: Sequence[Any], size: Size | None) -> _ReadGraph | None:
    """Read the graph with the first input as the first image with which porter can read all of it, otherwise
    with the likeliest image; None if an input can be none.

    Args:
        inputs: ValueInfoProtos, of which the first one is the image.
        size: of the image, where the model leaves it open.
    """
    has_shapes = all(value.type.tensor_type.HasField("shape") for value in inputs)
    if not inputs or len(inputs) > MOST_INPUTS or not has_shapes:
        return None
    first_input, *other_inputs = inputs
    further_inputs = [
        mapped for value in other_inputs if (mapped := read_further_input(value, model.nodes)) is not None
    ]
    channels = _channels_of_first_conv(model, _nodes_between(model, [first_input.name]))
    likeliest: _ReadGraph | None = None
    for image in possible_images(first_input, model.nodes, channels, size):
        # Each further input has to be one that a port takes, with the image's batch.
        if len(further_inputs) < len(other_inputs) or any(
            further.image.batch != image.image.batch for further in further_inputs
        ):
            return None
        read = _read_graph(model, [image, *further_inputs])
        likeliest = likeliest or read
        if not any(isinstance(node.op, Foreign) for node in read.graph.nodes):
            return read
    return likeliest


def _becomes_real(model: OnnxGraph, name: str) -> bool:
    """Return whether the values of an input of whole numbers are only moved until they are cast to real ones,
    and are no output before.
    """
    integer_values = {name}
    for node in model.nodes.values():
        reads_integers = any(source in integer_values for source, _ in node.inputs)
        # These take the sizes of the values, or make them real.
        is_end = node.op in ("Shape", "Size") or is_cast_to_floats(node)
        if reads_integers and not is_end:
            if node.op not in ("Identity", "Transpose"):
                return False
            integer_values.add(node.name)
    return integer_values.isdisjoint(
        model.sources.get(end.name, ("", 0))[0] for end in model.proto.graph.output
    )


def _is_no_map(value: Any) -> bool:
    """Return whether an input is no map. Inputs are sorted by it, so that images come first."""
    return len(value.type.tensor_type.shape.dim) != 4


def _nodes_between(model: OnnxGraph, inputs: Collection[str]) -> set[str]:
    """Return the names of the nodes that lead from inputs to an output."""
    return _nodes_of_outputs(model) & names_depending_on(model.nodes, inputs)


def _nodes_of_outputs(model: OnnxGraph) -> set[str]:
    """Return the names of the nodes that the outputs are computed from."""
    ends = (model.sources[end.name][0] for end in model.proto.graph.output if end.name in model.sources)
    return upstream(ends, lambda name: [source for source, _ in model.nodes[name].inputs])


def _read_graph(
    model: OnnxGraph, mapped_inputs: Sequence[MappedInput], rounds: int = MOST_ROUNDS
) -> _ReadGraph:
    """Return the graph of a model with these inputs, read with open sizes if they have them. It is read again
    if a condition becomes known. Raise FileError if it takes only the size of one of its inputs.

    Args:
        rounds: how often it may still be read again.
    """
    inputs = {mapped.image.source[0]: mapped.image for mapped in mapped_inputs}
    # Live nodes depend on an input; all others are constants.
    live = _nodes_between(model, inputs)
    outputs = _outputs(model)
    flow = Dataflow(
        model.nodes,
        live,
        Arrays(model.arrays),
        Operators(kind_of, is_cast_to_floats, RESHAPES, operands),
        budget=most_bytes(sum(file.stat().st_size for file in model.files)),
        passed=model.passed,
    )
    image, *further = inputs
    walk = begin(
        flow,
        inputs[image],
        model.arrays,
        tap=_names_of_values(model).get,
        further={name: inputs[name] for name in further},
    )
    read_nodes(walk, READERS.get)
    if rounds and (decided := decide_conditions(flow)):
        return _read_graph(with_chosen_branches(model, decided), mapped_inputs, rounds - 1)
    ends = {end: name for name, end in outputs.items()}
    names = tuple(name for end, name in ends.items() if flow.is_live(end))
    graph = replace(
        finish(walk, ends, outputs),
        output_names=names,
        halves=_half_types(model, live, inputs),
    )
    if len(graph.further_inputs) < len(further):
        message = "the model takes only the size of one of its inputs"
        raise FileError(message, where=model.path, next="export it without that input")
    # Numbers that a port has more exactly than the file, then how the inputs are laid out.
    metadata = {name: repr(number) for name, number in walk.exact.items()}
    for mapped in mapped_inputs:
        metadata |= mapped.metadata
    notes = *mapped_inputs[0].notes, *_notes_on_outputs(flow, outputs)[:_MOST_NOTES]
    graph = with_scope_names(graph, _titles_of_nodes(model.nodes.values()))
    return _ReadGraph(graph, model.arrays, metadata, notes)


def _outputs(model: OnnxGraph) -> dict[str, NodeOutput]:
    """Return the source of each output by its name, without outputs that nothing gives."""
    names = [value.name for value in model.proto.graph.output]
    return {name: model.sources[name] for name in names if name in model.sources}


def _names_of_values(model: OnnxGraph) -> dict[NodeOutput, str]:
    """Return the tap of each value, the name under which a run of the file shows it. Runs show no whole
    numbers. A value that several names stand for has the first of them.
    """
    nodes = model.nodes
    return {
        source: name
        # Backwards, so that the first name is written last and stays.
        for name, source in reversed([*model.sources.items()])
        if source[0] not in nodes or not is_cast_to_integers(nodes[source[0]])
    }


def _notes_on_outputs(flow: Dataflow[OnnxNode], outputs: Mapping[str, NodeOutput]) -> list[str]:
    """Return notes on the outputs that are constants, or another output's value."""
    ends = {end: name for name, end in outputs.items()}
    return [
        f"without its output '{escaped(name)}', which is "
        + (f"'{escaped(ends[end])}'" if flow.is_live(end) else "a constant")
        for name, end in outputs.items()
        if not flow.is_live(end) or ends[end] != name
    ]


def _half_types(model: OnnxGraph, live: Collection[str], inputs: Collection[str]) -> tuple[Dtype, ...]:
    """Return the types of half precision that these inputs have, or that values are cast to.

    Args:
        live: the names of the nodes that depend on the inputs.
    """
    input_protos = (value for value in model.proto.graph.input if value.name in inputs)
    kinds = {value.type.tensor_type.elem_type for value in input_protos}
    kinds |= {model.nodes[name].integer("to") for name in live if model.nodes[name].op == "Cast"}
    return tuple(half for kind, half in HALF_TYPES.items() if kind in kinds)


def _channels_of_first_conv(model: OnnxGraph, live: Collection[str]) -> int | None:
    """Return the channels that the first convolution takes, for an image that does not state them; None if
    there is none.

    Args:
        live: the names of the nodes that depend on the image.
    """
    for node in model.nodes.values():
        kernel = model.arrays.get(node.inputs[1][0]) if node.op == "Conv" and len(node.inputs) > 1 else None
        if kernel is not None and kernel.ndim == 4 and node.name in live:
            return int(kernel.shape[1]) * node.integer("group", 1)
    return None


def _titles_of_nodes(nodes: Collection[OnnxNode]) -> dict[str, str]:
    """Return the nodes' own names; of torch's exporter only the module's: `/layer1/layer1.0/conv1/Conv` is
    `layer1/0/conv1`.
    """
    paths = {}
    for node in nodes:
        words = node.title.strip("/").split("/")
        paths[node.name] = tuple(
            word.removeprefix(f"{before}.") for before, word in zip(["", *words], words, strict=False)
        )
    return node_titles(paths, {node.name: node.op for node in nodes})


def _make_definition(model: OnnxGraph, tensors: NamedArrays, metadata: Mapping[str, str]) -> bytes:
    """Return the part of the model that leads to its outputs, serialised with `metadata` as its metadata.
    `tensors` have types and shapes in it, and no content: onnxruntime takes no content of a tensor that no
    node reads.
    """
    onnx = import_onnx()
    proto = model.proto
    definition = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import)
    definition.graph.name = proto.graph.name or "graph"
    definition.graph.output.extend(proto.graph.output)
    outputs = {value.name for value in proto.graph.output}
    read = set[str]()
    nodes = []
    # Backwards, so that what reads a value is seen before what gives it.
    for node in reversed(proto.graph.node):
        if not (outputs | read).isdisjoint(node.output):
            read.update(node.input, captured_values(node, model.sources))
            nodes.append(node)
    inputs = (value for value in proto.graph.input if value.name in read and value.name not in model.arrays)
    definition.graph.input.extend(sorted(inputs, key=_is_no_map))
    definition.graph.node.extend(node for node in reversed(nodes) if node.output[0] not in model.arrays)
    for name, array in model.arrays.items():
        if name not in read:
            continue
        if name in tensors:
            kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype.newbyteorder("="))
            definition.graph.initializer.add(name=name, dims=array.shape, data_type=kind)
        else:
            definition.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.helper.set_model_props(definition, dict(metadata))
    return bytes(definition.SerializeToString(deterministic=True))
