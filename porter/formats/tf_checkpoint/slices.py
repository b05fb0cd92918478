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
from porter.formats.protobuf import fields
from porter.formats.tf_checkpoint.messages import extents_of, shape_of, sorted_fields
from porter.formats.tf_checkpoint.model_tensors import Shape
from porter.formats.tf_checkpoint.table import read_table
from porter.formats.tf_checkpoint.tensors import DTYPES, CheckpointTensor, Slice, numbers_in, places_of

_RAW = {1: 5, 2: 6}
_PACKED = {3: 7, 4: 7, 5: 7, 6: 7, 17: 7, 9: 10, 10: 11, 19: 13}
"""Fields of a TensorProto (tensor.proto) by the types whose numbers they hold: as they are, and as
varints.
"""
_PIECE = 1 << 20
_WIDEST = 10


@dataclass
class _Stated:
    """A tensor as the files' first entries state it, and the slices that they hold."""

    type: int
    shape: Shape
    slices: list[Slice] = field(default_factory=list)


def tensors_of_tables(files: Iterable[memoryview]) -> dict[str, CheckpointTensor | None]:
    """The tensors of all files of a checkpoint; None for those that are not plain numbers.

    Raises:
        ValueError: a file is damaged, or does not hold what it states.
    """
    tensors: dict[str, _Stated] = {}
    for data in files:
        for key, value in read_table(data):
            message = sorted_fields(value)
            if not key:
                _add_stated(message.content(1), tensors)
                continue
            part = sorted_fields(message.content(2))
            tensor = tensors.get(part.text(1))
            if tensor is None:
                raise ValueError(f"it holds '{part.text(1)}', which it does not state")
            places = places_of(extents_of(part.content(2)), tensor.shape)
            tensor.slices.append(Slice(places, partial(_numbers, part.content(3), tensor.type)))
    return {
        name: CheckpointTensor(DTYPES[each.type], each.shape, tuple(each.slices))
        if each.type in _RAW | _PACKED
        else None
        for name, each in tensors.items()
    }


def _add_stated(meta: memoryview, tensors: dict[str, _Stated]) -> None:
    """The tensors that a SavedTensorSliceMeta states; each file of a checkpoint in shards states those of its
    slices.
    """
    for number, value in fields(meta):
        if number != 1 or isinstance(value, int):
            continue
        tensor = sorted_fields(value)
        own = _Stated(tensor.number(3), shape_of(tensor.content(2)))
        other = tensors.setdefault(tensor.text(1), own)
        if (other.type, other.shape) != (own.type, own.shape) or len(tensors) > MOST_NODES:
            raise ValueError(f"it states '{tensor.text(1)}' twice, or more than {MOST_NODES} tensors")


def _numbers(data: memoryview, type: int) -> Array:
    """The numbers in a TensorProto."""
    parts = sorted_fields(data).contents.get(_RAW.get(type) or _PACKED[type], [])
    if len(parts) > 1:
        raise ValueError("its numbers are in several parts")
    packed = parts[0] if parts else memoryview(b"")
    if type in _RAW:
        return numbers_in(packed, DTYPES[type])
    # A half's bits are the integer.
    kind = np.dtype(f"<u{DTYPES[type].itemsize}")
    bits = np.concatenate([np.zeros(0, kind), *_varints(np.frombuffer(packed, np.uint8), kind)])
    return bits != 0 if DTYPES[type].kind == "b" else bits.view(DTYPES[type])


def _varints(data: NDArray[np.uint8], kind: np.dtype[np.generic]) -> Iterator[Array]:
    """The lowest bits of packed varints, in pieces: their places take 50 times the bytes."""
    while len(data):
        ends = np.flatnonzero(data[:_PIECE] < 128) + 1
        starts = np.concatenate(([0], ends[:-1]))
        widths = ends - starts
        if not len(ends) or widths.max() > _WIDEST:
            raise ValueError("its numbers are cut short or damaged")
        numbers = np.zeros(len(ends), np.uint64)
        for byte in range(widths.max()):
            longer = np.flatnonzero(widths > byte)
            numbers[longer] |= (data[starts[longer] + byte] & np.uint8(127)).astype(np.uint64) << np.uint64(
                7 * byte
            )
        yield numbers.astype(kind)
        data = data[ends[-1] :]
