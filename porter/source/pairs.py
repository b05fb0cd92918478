"""The graph of one file with the tensors of another."""

from __future__ import annotations

from pathlib import Path

from porter.fitting.fit import OWN_GRAPH
from porter.formats.recognition import recognise
from porter.port import GraphFile, SourceFile
from porter.source.opened import Opened


def of_pair(opened: Opened, graph: Path, weights: Path) -> SourceFile:
    """Both files, for port.json: that of the tensors, and beside it that of the graph."""
    assert opened.fitted is not None
    digests, formats = opened.fitted.checkpoint.digests, [recognise(path).name for path in (graph, weights)]
    whose = GraphFile(file=graph.name, format=formats[0], sha256=digests[graph]["sha256"])
    notes = tuple(f"the graph is that of {graph.name}" if note == OWN_GRAPH else note for note in opened.file.notes)
    changed = {"file": weights.name, "format": formats[1], "sha256": digests[weights]["sha256"], "graph": whose}
    return opened.file.model_copy(update={**changed, "notes": notes})
