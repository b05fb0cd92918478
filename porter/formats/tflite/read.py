"""Reads TensorFlow Lite's models: their tensors and their graphs. They are parsed, never run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from porter.base.dtypes import is_floating
from porter.base.errors import FileError
from porter.filegraph.checkpoint import UNREAD, Checkpoint
from porter.filegraph.dataflow import Arrays, Dataflow, Operators, names_depending_on
from porter.filegraph.file_graph import FileGraph, fill_free_size, read_for_sizes
from porter.filegraph.finishing import finish
from porter.filegraph.names import expect_values
from porter.filegraph.reading import GraphInput, begin, read_nodes
from porter.filegraph.tensorflow import further_image
from porter.filegraph.tensors.atrous import read_order
from porter.filegraph.value_names import NodeOutput
from porter.formats.damage import refusing_damage
from porter.formats.limits import most_bytes
from porter.formats.tflite import windows
from porter.formats.tflite.constants import RESHAPES, is_cast, kind_of
from porter.formats.tflite.model import EXPECTED, IMAGE, Operator, TfliteModel, read_model
from porter.formats.tflite.operators import READERS
from porter.formats.tflite.tensors import Unread
from porter.graph.walks import in_order
from porter.padding import Size

_ROUNDED_NOTE = (
    "8-bit weights are read as the real numbers that they stand for; TensorFlow Lite rounds what "
    "meets them to 8 bits, too"
)


def read_tflite(path: Path, outputs: Sequence[str] = (), size: Size | None = None) -> Checkpoint:
    """Read a model, whose weights may be of 32, 16 or 8 bits.

    Args:
        outputs: names of tensors, at which the graph ends.
        size: rows and columns, where the graph leaves them open.

    Raises:
        FileError: it is damaged, or computes in whole numbers.
        UsageError: the graph lacks one of `outputs`.
    """
    data = path.read_bytes()
    try:
        with refusing_damage(path):
            return _make_checkpoint(path, data, read_model(data), outputs, size)
    except Unread as error:
        raise FileError(str(error), where=path, next=error.next) from None


def _make_checkpoint(
    path: Path, data: bytes, model: TfliteModel, outputs: Sequence[str], size: Size | None
) -> Checkpoint:
    """Return the checkpoint of a model: its tensors, and its graph where porter reads one. Where it does not,
    a note says why.
    """
    tensors = {name: array for name, array in model.stored.items() if is_floating(array)}
    notes = (_ROUNDED_NOTE,) if model.rounded else ()
    problem = model.problem or (None if all(_further_inputs(model).values()) else EXPECTED)
    if problem is not None:
        return Checkpoint(path, "tflite", None, tensors, (*notes, f"{UNREAD}: {problem}"))
    _, rows, columns, _ = model.sizes
    stated_size = (rows, columns)
    image_size = fill_free_size(stated_size, size)
    graph = read_for_sizes(image_size, partial(_read_graph, model, most_bytes(len(data)), outputs))
    graph = replace(graph, traced=image_size != stated_size, definition=data, language="tflite")
    return Checkpoint(path, "tflite", None, {**tensors, **graph.evaluated}, notes, graph=graph)


def _read_graph(model: TfliteModel, budget: int, outputs: Sequence[str], size: Size) -> FileGraph:
    """Return the graph of a model for images of a size.

    Args:
        budget: the most bytes of tensors that may be computed.
        outputs: names of tensors at which the graph ends; the model's own ends if there are none.
    """
    # Nodes that nothing computes stand for the inputs and the stored tensors.
    sources = {name: Operator(name, "given", (), (), None) for name in (IMAGE, *model.further, *model.stored)}
    nodes = {**sources, **{operator.name: operator for operator in model.operators}}
    # A tap is the file's name of a value, under which an engine gives it.
    taps = _names_of_values(model)
    inner = {(operator.name, 0): operator.inner for operator in model.operators if operator.inner}
    expect_values(outputs, taps.values())
    ends = [source for source, name in taps.items() if name in outputs] or model.ends
    order = in_order([name for name, _ in ends], lambda name: read_order(nodes[name], kind_of))
    nodes = {**sources, **{name: nodes[name] for name in order}}
    # Live nodes depend on an input; all others are constants.
    live = names_depending_on(nodes, [IMAGE, *model.further])
    flow = Dataflow(nodes, live, Arrays(model.stored), Operators(kind_of, is_cast, RESHAPES), budget=budget)
    image = GraphInput((IMAGE, 0), _find_channels(model, flow), size, model.sizes[0])
    further = {name: image for name, image in _further_inputs(model).items() if image is not None}
    walk = begin(flow, image, model.stored, tap=(taps | inner).get, further=further)
    read_nodes(walk, READERS.get)
    names = tuple(taps[end] for end in ends if end in taps)
    return replace(finish(walk, ends), output_names=names)


def _names_of_values(model: TfliteModel) -> dict[NodeOutput, str]:
    """Return the file's name of each value that an operator gives, by operator and place among its values:
    `{("conv1", 0): "model/conv1/Relu"}`.
    """
    return {
        (operator.name, index): name
        for operator in model.operators
        for index, name in enumerate(operator.gives)
    }


def _find_channels(model: TfliteModel, flow: Dataflow[Operator]) -> int:
    """Return the image's channels; where the file leaves them open, those that the first convolution takes.
    Return 3 where there is no such kernel.
    """
    if model.sizes[3]:
        return model.sizes[3]
    for node in model.operators:
        if node.op in windows.KERNELS and len(node.inputs) > 1:
            kernel = flow.tensor(node.inputs[1])
            if kernel is not None and kernel.shape:
                return kernel.shape[-1]
    return 3


def _further_inputs(model: TfliteModel) -> dict[str, GraphInput | None]:
    """Return the graph's inputs beside the image, by name; None for one that porter does not take."""
    batch, rows, columns, _ = model.sizes
    return {
        name: further_image((name, 0), sizes, batch, (rows, columns)) for name, sizes in model.further.items()
    }
