"""What an HDF5 file holds, as porter's own reader (porter.formats.keras.hdf5_bytes) and HDF5's library
(porter.formats.keras.hdf5_library) say it: what both say is equal.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

_WORDS_OF_CLASSES = (
    "integers",
    "floats",
    "times",
    "texts",
    "bits",
    "bytes",
    "compounds",
    "references",
    "enumerations",
    "texts of any length",
    "arrays",
)
"""HDF5's classes of types, in the order of their numbers."""
_NEVER_WRITTEN = "lacks values: some of them, or all, were never written"


@dataclass(frozen=True)
class Texts:
    """The texts of an attribute. Any number of them may be the same bytes of the file."""

    shape: tuple[int, ...]
    texts: tuple[bytes | memoryview, ...]


@dataclass(frozen=True)
class DatasetValues:
    """The values of a dataset.

    Attributes:
        dtype: as they are stored; None if they are no numbers.
        start: where they begin in `data`.
        lack: why they are not read, in words that follow the dataset's name.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic] | None
    start: int
    data: bytes | mmap.mmap = field(compare=False, repr=False)
    lack: str | None = field(compare=False)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize if self.dtype is not None else 0


def values_at(start: int | None, values: DatasetValues, kind: int) -> DatasetValues:
    """Return a dataset's values with their place in the data, or with the reason why they are not read, which
    `values` states already or is found here.

    Args:
        start: None if they were never written.
        kind: HDF5's class of their type.
        values: the dataset's, of which all is known but where they begin.

    Raises:
        ValueError: they are not in the data.
    """
    lack = values.lack
    if values.dtype is None and lack is None:
        words = _WORDS_OF_CLASSES[kind] if kind < len(_WORDS_OF_CLASSES) else f"values of class {kind}"
        lack = f"holds {words}, expected numbers"
    if lack is not None or values.nbytes == 0:
        return replace(values, lack=lack)
    if start is None:
        return replace(values, lack=_NEVER_WRITTEN)
    if start + values.nbytes > len(values.data):
        raise ValueError(f"{values.nbytes} bytes of values at byte {start} are not in the file")
    return replace(values, start=start)


@dataclass(frozen=True)
class Object:
    """A group, or a dataset, which has `values`.

    Attributes:
        links: of a group, the address of each hard link, and None for a link to elsewhere.
        attributes: None for those that are no texts.
    """

    links: Mapping[str, int | None]
    attributes: Mapping[str, Texts | None]
    values: DatasetValues | None = None
