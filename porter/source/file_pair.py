"""What port.json says of a source whose graph and whose tensors are of two files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from porter.filegraph.checkpoint import Checkpoint
from porter.formats.recognition import recognise
from porter.port import GraphFile, SourceFile
from porter.source.fitting.fit import OWN_GRAPH
from porter.source.opened import Opened
from porter.source.place import FilePair


def record_pair(opened: Opened, pair: FilePair) -> SourceFile:
    """Return the record for port.json of a source in two files. It names the file of the tensors, and beside
    it the file of the graph, each with its format and digest; the note of a file's own graph names the
    graph's file.
    """
    assert opened.fitted is not None
    checkpoint, graph = opened.fitted.checkpoint, pair.graph.path
    graph_file = GraphFile(
        file=graph.name, format=recognise(graph).name, sha256=checkpoint.digests[graph]["sha256"]
    )
    notes = tuple(
        f"the graph is that of {graph.name}" if note == OWN_GRAPH else note for note in opened.file.notes
    )
    changed = {
        "file": pair.weights.name,
        "format": recognise(pair.weights).name,
        "sha256": digest_of(checkpoint, pair.weights),
        "graph": graph_file,
    }
    return opened.file.model_copy(update={**changed, "notes": notes})


def digest_of(checkpoint: Checkpoint, weights: Path) -> str:
    """Return the sha256 of the file of tensors, as port.json records it. A checkpoint of TensorFlow's is
    several files whose names begin alike (`model.index`, `model.data-00000-of-00001`): for these, the digest
    that they have together.
    """
    name = weights.name.removesuffix(".index")
    own_digests = {
        path: digests
        for path, digests in checkpoint.digests.items()
        if path == weights or path.name.startswith(f"{name}.")
    }
    return replace(checkpoint, digests=own_digests).sha256
