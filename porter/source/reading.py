"""Reads the file or the pair of files of a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from porter.filegraph.checkpoint import Checkpoint
from porter.formats.reading import read_with_digests
from porter.padding import Size
from porter.source.hub_download import with_repository
from porter.source.older_transformers import with_torch_names
from porter.source.place import File, FilePair


def read(
    place: File | FilePair, outputs: Sequence[str] = (), size: Size | None = None, md5: bool | None = True
) -> Checkpoint:
    """Read a file or a pair of files, and return its tensors and graph with the JSON beside it, under torch's
    names if older transformers wrote it. See porter.formats.reading.read_with_digests.

    Args:
        outputs: the names at which the graph ends; the file's own if empty.
        size: rows and columns, where the file states none.
        md5: whether the MD5 is computed besides the sha256, as there.
    """
    file, weights = (place, None) if isinstance(place, File) else (place.graph, place.weights)
    checkpoint = read_with_digests(file.path, md5, outputs, size, weights)
    return with_repository(with_torch_names(replace(checkpoint, beside=file.beside)))
