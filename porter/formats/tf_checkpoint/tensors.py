"""The tensors of a checkpoint: views of its files, or what several slices of one are together."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from porter.base.dtypes import Array
from porter.formats.tf_checkpoint.messages import Extents
from porter.formats.tf_checkpoint.model_tensors import Shape

DTYPES: Mapping[int, np.dtype[np.generic]] = {
    number: np.dtype(kind)
    for number, kind in {
        1: "<f4",
        2: "<f8",
        3: "<i4",
        4: "u1",
        5: "<i2",
        6: "i1",
        9: "<i8",
        10: "?",
        14: ml_dtypes.bfloat16,
        17: "<u2",
        19: "<f2",
        22: "<u4",
        23: "<u8",
    }.items()
}
"""Types of plain numbers, by their numbers in types.proto."""


@dataclass(frozen=True)
class Slice:
    """A part of a tensor.

    Attributes:
        places: of each axis.
        read: its numbers, in one axis; a ValueError where the file holds others.
    """

    places: tuple[slice, ...]
    read: Callable[[], Array]

    @property
    def shape(self) -> Shape:
        return tuple(extent.stop - extent.start for extent in self.places)


@dataclass(frozen=True)
class CheckpointTensor:
    """A tensor of numbers, not read yet."""

    dtype: np.dtype[np.generic]
    shape: Shape
    slices: tuple[Slice, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self) -> Array:
        """Read the numbers of the tensor; memory is taken only where several slices hold them.

        Raises:
            ValueError: its slices are damaged, overlap, or are not all of it.
        """
        parts = [part.read().reshape(part.shape) for part in self.slices]
        if sum(part.size for part in parts) != math.prod(self.shape):
            raise ValueError(
                f"its slices hold {sum(part.size for part in parts)} numbers of {math.prod(self.shape)}"
            )
        if len(parts) == 1:
            return parts[0]
        array = np.empty(self.shape, self.dtype)
        is_filled = np.zeros(self.shape, bool)
        for part, numbers in zip(self.slices, parts, strict=True):
            array[part.places] = numbers
            is_filled[part.places] = True
        # There are as many numbers as the tensor has, so a hole means that others overlap.
        if not is_filled.all():
            raise ValueError("its slices overlap")
        return array


def expect_places(extents: Extents, shape: Shape) -> tuple[slice, ...]:
    """Return where a slice is in a tensor: the extents ((0, None), (2, 3)) give [0:rows, 2:5]. A size of None
    is all of its axis.

    Raises:
        ValueError: it is outside.
    """
    if len(extents) != len(shape):
        raise ValueError(f"a slice has {len(extents)} axes, its tensor {len(shape)}")
    places = tuple(
        slice(start, start + size if size is not None else axis_size)
        for (start, size), axis_size in zip(extents, shape, strict=True)
    )
    is_within = all(
        0 <= place.start <= place.stop <= axis_size for place, axis_size in zip(places, shape, strict=True)
    )
    if not is_within:
        raise ValueError(f"a slice is outside of its tensor of shape {shape}")
    return places


def view_numbers(data: memoryview, dtype: np.dtype[np.generic]) -> Array:
    """Return the numbers in `data`, as a view of it where they are aligned in memory."""
    return np.require(np.frombuffer(data, dtype), requirements="A")


def map_file(path: Path) -> memoryview:
    """Return the content of a file, which is mapped and takes no memory until it is used.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return memoryview(
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
        )
