"""The reference that a user gives as a file with its graph, run by the file's engine."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache
from typing import Any

from porter.base.dtypes import Array, Dtype
from porter.base.errors import MappingError, UsageError
from porter.base.package import page
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph
from porter.filegraph.to_graph import Translated, to_graph
from porter.formats.reading import read_with_digests
from porter.frameworks import engine_name, get_engine
from porter.frameworks.reference_models import Shown
from porter.graph import OF_LOGITS, Graph
from porter.padding import ANY
from porter.padding.sizes import InputSizes
from porter.port import ReferenceFile
from porter.source.opened import Opened
from porter.verification.references.pairing import pair, weight_distances
from porter.verification.references.rounded_tensors import round_checkpoint
from porter.verification.references.user_reference import ReferenceName, UserReference

_CARRYING = {
    "torch": "a .pt2 of torch.export or an ONNX model",
    "tf": "a .keras file, a SavedModel or an ONNX model",
}
"""What a framework writes of a whole model, with its graph."""


def reference_of_file(asked: ReferenceName, opened: Opened, stored: Dtype) -> UserReference:
    """Read the file that `--reference` names, and return it as a reference."""
    checkpoint = read_with_digests(asked.file, with_md5=False)
    record = asked.file_record(checkpoint.sha256)
    return reference_of_checkpoint(asked, record, checkpoint, opened, stored)


def reference_of_checkpoint(
    asked: ReferenceName, record: ReferenceFile, checkpoint: Checkpoint, opened: Opened, stored: Dtype
) -> UserReference:
    """Return the reference of a user's file with a graph, which is run by the file's engine, with its layers
    paired with the source's nodes.

    Args:
        record: what port.json says of the file.
        stored: the port's type, to which the file's weights are rounded.

    Raises:
        UsageError: the file has no graph, other inputs, or an output that the engine does not show.
    """
    file = checkpoint.graph
    where = str(asked.file)
    if file is None:
        carrying = _CARRYING.get(checkpoint.dialect or "", "an ONNX model")
        raise UsageError(
            f"this {checkpoint.format} file carries no graph that can be run",
            where=where,
            next="give code that makes the model, as FILE.py:CALLABLE, or the whole model, as "
            f"{carrying}: {page('files.md')} says which files carry their graph",
        )
    built = file.built_size or opened.sizes.built
    reference = _in_porters_form(replace(file, size=built), opened.graph, where)
    taps = {path: file.by_name[name].tap for path, name in reference.names.items()}
    pairs = pair(opened, reference, file)
    # by the source's path, the name under which the engine gives the value of the file's layer
    inside = {
        path: tap for path, layer in pairs.layers.items() if (tap := file.by_name[layer].tap) is not None
    }
    outputs = {f"output {number}": str(taps[path]) for number, path in enumerate(reference.graph.outputs)}
    of_layers = {tensor.name for node in file.nodes for tensor in node.tensors.values()}
    rounded = round_checkpoint(checkpoint, stored, of_layers)
    engine = get_engine(engine_name(checkpoint))

    @cache
    def model(dtype: Dtype) -> Any:
        return engine.build_file(rounded, dtype, ANY if file.resizable else file.size)

    def shown(batch: Array, dtype: Dtype, paths: Collection[str] | None) -> Shown:
        """Run the file's graph on a batch, and return its outputs, and the values inside it by the source's
        paths.
        """
        layers = {path: tap for path, tap in inside.items() if paths is None or path in paths}
        values = dict(engine.run_reference(model(dtype), batch.astype(dtype), layers | outputs))
        return Shown(
            tuple(values.pop(f"output {number}") for number in range(len(reference.graph.outputs))), values
        )

    sizes = InputSizes(built, None if file.resizable else file.built_size)
    distances = weight_distances(opened, file, checkpoint.tensors, pairs.layers)
    return UserReference(
        asked.name,
        record,
        opened.graph,
        sizes,
        shown,
        rounded=pairs.rounded,
        named=pairs.named,
        apart=distances,
        run_by=engine.RUNNER,
    )


def _in_porters_form(file: FileGraph, source: Graph, where: str) -> Translated:
    """Return a reference file's graph in porter's form. Its final softmax is kept where the source has one
    too.

    Raises:
        UsageError: it has other inputs, or an output that the engine does not show.
        MappingError: porter does not read it, or not at its size.
    """
    _expect_inputs(file, source, where)
    try:
        reference = to_graph(file, keep_activation=isinstance(source.by_path[source.output].op, OF_LOGITS))
    except MappingError as error:
        raise error.at(f"{where}: {error.where}" if error.where else where) from None
    for path in reference.graph.outputs:
        if file.by_name[reference.names[path]].tap is None:
            raise UsageError(
                "the file's framework gives no value for this output, so there is nothing to compare with",
                where=f"{where}: {path}",
                next="give another reference",
            )
    return reference


def _expect_inputs(file: FileGraph, graph: Graph, where: str) -> None:
    """Expect that a reference file takes the inputs that the source's graph takes."""
    if file.channels != graph.channels:
        raise UsageError(
            f"expected an input of {graph.channels} channels, as the source has, got {file.channels}",
            where=where,
            next="give a reference with the source's input",
        )
    if len(file.inputs) != len(graph.inputs):
        raise UsageError(
            f"expected {len(graph.inputs)} inputs, as the source takes, got {len(file.inputs)}",
            where=where,
            next="give a reference with the source's inputs",
        )
