"""Reads the file or the pair of files of a source.

transformers 4 had its classes in TensorFlow and Flax too, and transformers 5 has those in torch only. So a
file of the others is read as the class in torch has its tensors: under torch's names, and kernels with their
outputs first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from porter.base.dtypes import Array
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.reading import read_weights
from porter.formats.recognition import recognise
from porter.padding import Size
from porter.port import GraphFile, SourceFile
from porter.source.fitting.fit import OWN_GRAPH
from porter.source.hub import FLAX_WEIGHTS, TF_WEIGHTS, with_repository
from porter.source.opened import Opened
from porter.source.place import File, FilePair
from porter.source.sidecars import config_of

_OF_TORCH = {
    **dict.fromkeys(("kernel", "gamma", "scale", "embeddings", "embedding"), "weight"),
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "mean": "running_mean",
    "var": "running_var",
}
_COLLECTIONS = ("params", "batch_stats")
_OUTPUTS_FIRST = {2: (1, 0), 4: (3, 2, 0, 1)}
"""Axes of a kernel by their number."""


def read(
    place: File | FilePair, outputs: Sequence[str] = (), size: Size | None = None, md5: bool = True
) -> Checkpoint:
    """As porter.formats.reading.read_weights, with what lies beside the file."""
    file, weights = (place, None) if isinstance(place, File) else (place.graph, place.weights)
    checkpoint = read_weights(file.path, md5, outputs, size, weights)
    return with_repository(_as_torch(replace(checkpoint, beside=file.beside)))


def of_pair(opened: Opened, pair: FilePair) -> SourceFile:
    """Both files, for port.json: that of the tensors, and beside it that of the graph."""
    assert opened.fitted is not None
    checkpoint, graph = opened.fitted.checkpoint, pair.graph.path
    formats = [recognise(path).name for path in (graph, pair.weights)]
    whose = GraphFile(file=graph.name, format=formats[0], sha256=checkpoint.digests[graph]["sha256"])
    notes = tuple(
        f"the graph is that of {graph.name}" if note == OWN_GRAPH else note for note in opened.file.notes
    )
    changed = {
        "file": pair.weights.name,
        "format": formats[1],
        "sha256": digest_of(checkpoint, pair.weights),
        "graph": whose,
    }
    return opened.file.model_copy(update={**changed, "notes": notes})


def digest_of(checkpoint: Checkpoint, weights: Path) -> str:
    """The sha256 of the file of the tensors; of a checkpoint of TensorFlow's, that of its files, which begin
    with its name.
    """
    name = weights.name.removesuffix(".index")
    own = {
        path: found
        for path, found in checkpoint.digests.items()
        if path == weights or path.name.startswith(f"{name}.")
    }
    return replace(checkpoint, digests=own).sha256


def _as_torch(checkpoint: Checkpoint) -> Checkpoint:
    """A file of the Hub's name for TensorFlow's or Flax's weights beside a config.json of transformers; every
    other as it is.
    """
    if checkpoint.path.name not in (TF_WEIGHTS, FLAX_WEIGHTS) or not config_of(checkpoint).get("model_type"):
        return checkpoint
    from porter.formats.keras.read_h5 import read_scoped  # only this file of Keras's is read so

    own = read_scoped(checkpoint.path) if checkpoint.format == "keras-h5" else checkpoint.tensors
    written = "TensorFlow" if checkpoint.format == "keras-h5" else "Flax"
    note = (
        f"transformers' {written} class wrote it: porter reads its tensors with the names and axes of the "
        "torch class"
    )
    return replace(checkpoint, dialect="torch", tensors=dict(_renamed(own)), notes=(*checkpoint.notes, note))


def _renamed(tensors: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    for name, array in tensors.items():
        *modules, last = name.replace("_._", "/").split("/")
        if modules and (modules[0].startswith("tf_") or modules[0] in _COLLECTIONS):
            del modules[0]
        numbered = (re.sub(r"^layer_(?=\d+$)", "", module) for module in modules)
        turned = (
            array.transpose(_OUTPUTS_FIRST[array.ndim])
            if last == "kernel" and array.ndim in _OUTPUTS_FIRST
            else array
        )
        yield ".".join((*numbered, _OF_TORCH.get(last, last))), turned
