"""Checkpoints of version 1: tables of messages with the numbers in them
(core/util/saved_tensor_slice.proto).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array
from porter.formats.limits import MOST_NODES
from porter.formats.protobuf import iterate_fields
from porter.formats.tf_checkpoint.messages import read_extents, read_fields, read_shape
from porter.formats.tf_checkpoint.model_tensors import Shape
from porter.formats.tf_checkpoint.table import read_table
from porter.formats.tf_checkpoint.tensors import DTYPES, CheckpointTensor, Slice, expect_places, view_numbers

# Fields of SavedTensorSlices, of a SavedSlice, and of a SavedSliceMeta.
_META, _DATA = 1, 2
_SLICE_NAME, _SLICE_EXTENTS, _SLICE_DATA = 1, 2, 3
_META_NAME, _META_SHAPE, _META_TYPE = 1, 2, 3
_RAW = {1: 5, 2: 6}
_PACKED = {3: 7, 4: 7, 5: 7, 6: 7, 17: 7, 9: 10, 10: 11, 19: 13}
"""Fields of a TensorProto (tensor.proto) by the types whose numbers they hold: as they are, and as
varints.
"""
_PIECE_BYTES = 1 << 20
_MOST_VARINT_BYTES = 10


@dataclass
class _StatedTensor:
    """A tensor as the files' first entries state it, and the slices that they hold."""

    type: int
    shape: Shape
    slices: list[Slice] = field(default_factory=list)


def read_tables(files: Iterable[memoryview]) -> dict[str, CheckpointTensor | None]:
    """Return the tensors of all files of a checkpoint, whose numbers are read later; None for those that are
    not plain numbers.

    Raises:
        ValueError: a file is damaged, or does not hold what it states.
    """
    tensors: dict[str, _StatedTensor] = {}
    for data in files:
        for key, value in read_table(data):
            message = read_fields(value)
            # The first entry states the tensors; each further one is a slice.
            if not key:
                _add_stated_tensors(message.content(_META), tensors)
                continue
            part = read_fields(message.content(_DATA))
            name = part.text(_SLICE_NAME)
            tensor = tensors.get(name)
            if tensor is None:
                raise ValueError(f"it holds '{name}', which it does not state")
            places = expect_places(read_extents(part.content(_SLICE_EXTENTS)), tensor.shape)
            read = partial(_read_numbers, part.content(_SLICE_DATA), tensor.type)
            tensor.slices.append(Slice(places, read))
    return {name: _as_tensor(stated) for name, stated in tensors.items()}


def _as_tensor(stated: _StatedTensor) -> CheckpointTensor | None:
    """Return a tensor with its slices; None if it is not of plain numbers."""
    if stated.type not in _RAW | _PACKED:
        return None
    return CheckpointTensor(DTYPES[stated.type], stated.shape, tuple(stated.slices))


def _add_stated_tensors(meta: memoryview, tensors: dict[str, _StatedTensor]) -> None:
    """Add the tensors that a SavedTensorSliceMeta states; each file of a checkpoint in shards states those of
    its slices. Raise ValueError if two statements differ.
    """
    for number, value in iterate_fields(meta):
        if number != 1 or isinstance(value, int):
            continue
        tensor = read_fields(value)
        stated = _StatedTensor(tensor.number(_META_TYPE), read_shape(tensor.content(_META_SHAPE)))
        name = tensor.text(_META_NAME)
        before = tensors.setdefault(name, stated)
        if (before.type, before.shape) != (stated.type, stated.shape) or len(tensors) > MOST_NODES:
            raise ValueError(f"it states '{name}' twice, or more than {MOST_NODES} tensors")


def _read_numbers(data: memoryview, type: int) -> Array:
    """Return the numbers in a TensorProto, in one axis: raw bytes for some types, packed integers for halves,
    booleans and whole numbers.
    """
    field_number = _RAW.get(type) or _PACKED[type]
    parts = read_fields(data).contents.get(field_number, [])
    if len(parts) > 1:
        raise ValueError("its numbers are in several parts")
    packed = parts[0] if parts else memoryview(b"")
    if type in _RAW:
        return view_numbers(packed, DTYPES[type])
    # A half's bits are the integer.
    bits_type = np.dtype(f"<u{DTYPES[type].itemsize}")
    pieces = _read_varints(np.frombuffer(packed, np.uint8), bits_type)
    bits = np.concatenate([np.zeros(0, bits_type), *pieces])
    return bits != 0 if DTYPES[type].kind == "b" else bits.view(DTYPES[type])


def _read_varints(data: NDArray[np.uint8], dtype: np.dtype[np.generic]) -> Iterator[Array]:
    """Yield the lowest bits of packed varints as numbers of `dtype`, in pieces, because the places where they
    end take 50 times the bytes.
    """
    while len(data):
        ends = np.flatnonzero(data[:_PIECE_BYTES] < 128) + 1  # the last byte of each has no highest bit
        starts = np.concatenate(([0], ends[:-1]))
        widths = ends - starts
        if not len(ends) or widths.max() > _MOST_VARINT_BYTES:
            raise ValueError("its numbers are cut short or damaged")
        numbers = np.zeros(len(ends), np.uint64)
        # The n-th byte of all numbers that have so many, seven bits each.
        for byte in range(widths.max()):
            longer = np.flatnonzero(widths > byte)
            low_bits = (data[starts[longer] + byte] & np.uint8(127)).astype(np.uint64)
            numbers[longer] |= low_bits << np.uint64(7 * byte)
        yield numbers.astype(dtype)
        data = data[ends[-1] :]
