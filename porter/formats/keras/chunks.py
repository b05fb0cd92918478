"""Bounds the chunks of an HDF5 dataset before HDF5 unpacks them, because a stranger's may unpack to any size."""

from __future__ import annotations

import math
import zlib
from typing import Any

import h5py

_DEFLATE, _SHUFFLE, _FLETCHER32, _LZF = 1, 2, 3, 32000
_SMALL = 1 << 20
"""Bytes of a chunk that is always read: h5py chooses no larger one for a dataset that may grow."""


def oversized(dataset: h5py.Dataset) -> str | None:
    """How a dataset's chunks take more memory than its values need, in words that follow its name; None where they do not.

    HDF5 reads a chunk as a whole, and makes a filter's buffer as large as its output.
    """
    if dataset.chunks is None:
        return None
    chunk = math.prod(dataset.chunks) * dataset.dtype.itemsize
    if chunk > max(dataset.nbytes, _SMALL):
        return f"has chunks of {chunk} bytes, and {dataset.nbytes} bytes of values"
    settings = dataset.id.get_create_plist()
    filters = [settings.get_filter(place)[0] for place in range(settings.get_nfilters())]
    unpacking = [place for place, code in enumerate(filters) if code not in (_SHUFFLE, _FLETCHER32)]
    if not unpacking:
        return None
    place, after = unpacking[0], filters[unpacking[0] + 1 :]
    if filters[place] not in (_DEFLATE, _LZF) or any(code != _FLETCHER32 for code in after):
        return "is packed by other filters than one of gzip or lzf"
    if filters[place] == _DEFLATE and _inflates(dataset, place, chunk):  # lzf makes at most 90 bytes of one
        return f"unpacks to more than its chunks of {chunk} bytes"
    return None


def _inflates(dataset: h5py.Dataset, place: int, most: int) -> bool:
    """Whether a chunk unpacks to more than `most` bytes by the filter at `place`, which a chunk may leave out."""
    chunks: list[Any] = []
    dataset.id.chunk_iter(chunks.append)
    for info in chunks:
        skipped, packed = dataset.id.read_direct_chunk(info.chunk_offset)
        if not skipped >> place & 1 and len(zlib.decompressobj().decompress(packed, most + 1)) > most:
            return True
    return False
