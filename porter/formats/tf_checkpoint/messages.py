"""The messages of a checkpoint, read field by field: tensor_bundle.proto, saved_tensor_slice.proto,
tensor_slice.proto, tensor_shape.proto and trackable_object_graph.proto. All of them raise ValueError for what
is damaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from porter.formats.protobuf import MOST_PARTS, fields
from porter.formats.tf_checkpoint.model_tensors import ObjectTensor, Shape

_MOST_FIELDS = 1 << 16
_MOST_AXES = 32

Extents = tuple[tuple[int, int | None], ...]
"""Where a slice begins along each axis, and its size; None for the whole axis."""


@dataclass(frozen=True)
class Entry:
    """A BundleEntryProto: a tensor's type (types.proto), and where its bytes are, or the slices that it is
    stored in.

    Attributes:
        checksum: masked, of its bytes.
    """

    type: int
    shape: Shape
    shard: int
    start: int
    size: int
    checksum: int
    slices: tuple[Extents, ...]


@dataclass(frozen=True)
class SavedObject:
    """An object of a TF 2 checkpoint: the places of the objects that it holds, by their names in it, and its
    variables.
    """

    children: Mapping[str, int]
    variables: tuple[ObjectTensor, ...]


@dataclass(frozen=True)
class MessageFields:
    """The fields of a message by their numbers."""

    numbers: Mapping[int, list[int]]
    contents: Mapping[int, list[memoryview]]

    def number(self, field: int) -> int:
        return self.numbers.get(field, [0])[-1]

    def content(self, field: int) -> memoryview:
        return self.contents.get(field, [memoryview(b"")])[-1]

    def text(self, field: int) -> str:
        return bytes(self.content(field)).decode()


def sorted_fields(data: memoryview) -> MessageFields:
    """The fields of a small message."""
    numbers, contents = dict[int, list[int]](), dict[int, list[memoryview]]()
    for count, (number, value) in enumerate(fields(data)):
        if count >= _MOST_FIELDS:
            raise ValueError(f"a message has more than {_MOST_FIELDS} fields")
        if isinstance(value, int):
            numbers.setdefault(number, []).append(value)
        else:
            contents.setdefault(number, []).append(value)
    return MessageFields(numbers, contents)


def signed(number: int) -> int:
    """An int64, of which a varint has the bits."""
    return number - (1 << 64) if number >> 63 else number


def shape_of(data: memoryview) -> Shape:
    """A TensorShapeProto."""
    message = sorted_fields(data)
    sizes = tuple(signed(axis.number(1)) for axis in _axes(message, 2))
    if message.number(3) or min(sizes, default=0) < 0:
        raise ValueError(f"a tensor has the shape {sizes}")
    return sizes


def extents_of(data: memoryview) -> Extents:
    """A TensorSliceProto."""
    extents = _axes(sorted_fields(data), 1)
    return tuple(
        (signed(extent.number(1)), signed(extent.number(2)) if 2 in extent.numbers else None)
        for extent in extents
    )


def _axes(message: MessageFields, field: int) -> list[MessageFields]:
    parts = message.contents.get(field, [])
    if len(parts) > _MOST_AXES:
        raise ValueError(f"a tensor has {len(parts)} axes, more than {_MOST_AXES}")
    return list(map(sorted_fields, parts))


def entry_of(data: memoryview) -> Entry:
    """A BundleEntryProto."""
    message = sorted_fields(data)
    shard, start, size, checksum = map(message.number, (3, 4, 5, 6))
    slices = tuple(map(extents_of, message.contents.get(7, [])))
    return Entry(message.number(1), shape_of(message.content(2)), shard, start, size, checksum, slices)


def objects_of(data: memoryview) -> list[SavedObject]:
    """A TrackableObjectGraph."""
    objects, parts = list[SavedObject](), 0
    for number, node in fields(data):
        if number != 1 or isinstance(node, int):
            continue
        message = sorted_fields(node)
        children, variables = (list(map(sorted_fields, message.contents.get(field, []))) for field in (1, 2))
        parts += 1 + len(children) + len(variables)
        if parts > MOST_PARTS:
            raise ValueError(f"its objects have more than {MOST_PARTS} parts")
        owners = tuple(ObjectTensor(variable.text(3), variable.text(2)) for variable in variables)
        objects.append(SavedObject({child.text(2): child.number(1) for child in children}, owners))
    return objects
