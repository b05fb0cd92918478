"""The messages of a checkpoint, read field by field: tensor_bundle.proto, saved_tensor_slice.proto,
tensor_slice.proto, tensor_shape.proto and trackable_object_graph.proto. All of them raise ValueError for what
is damaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from porter.formats.limits import MOST_TENSOR_AXES
from porter.formats.protobuf import MOST_PARTS, iterate_fields
from porter.formats.tf_checkpoint.model_tensors import ObjectTensor, Shape

_MOST_FIELDS = 1 << 16

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
    """The fields of a message by their numbers. One that is left out is 0, or empty; of one that is repeated
    the last counts.
    """

    numbers: Mapping[int, list[int]]
    contents: Mapping[int, list[memoryview]]

    def number(self, field: int) -> int:
        """Return the last integer of a field; 0 where it is left out."""
        return self.numbers.get(field, [0])[-1]

    def content(self, field: int) -> memoryview:
        """Return the last bytes of a field; empty where it is left out."""
        return self.contents.get(field, [memoryview(b"")])[-1]

    def text(self, field: int) -> str:
        return bytes(self.content(field)).decode()


def read_fields(data: memoryview) -> MessageFields:
    """Read the fields of a small message, integers apart from bytes. Raise ValueError if there are too many
    of them.
    """
    numbers, contents = dict[int, list[int]](), dict[int, list[memoryview]]()
    for count, (number, value) in enumerate(iterate_fields(data)):
        if count >= _MOST_FIELDS:
            raise ValueError(f"a message has more than {_MOST_FIELDS} fields")
        if isinstance(value, int):
            numbers.setdefault(number, []).append(value)
        else:
            contents.setdefault(number, []).append(value)
    return MessageFields(numbers, contents)


def as_int64(number: int) -> int:
    """Return the int64 whose bits a varint has."""
    return number - (1 << 64) if number >> 63 else number


def read_shape(data: memoryview) -> Shape:
    """Read a TensorShapeProto: the size of each axis, all of which have to be known."""
    message = read_fields(data)
    sizes = tuple(as_int64(axis.number(1)) for axis in _read_axes(message, 2))
    is_of_unknown_rank = message.number(3)
    if is_of_unknown_rank or min(sizes, default=0) < 0:
        raise ValueError(f"a tensor has the shape {sizes}")
    return sizes


def read_extents(data: memoryview) -> Extents:
    """Read a TensorSliceProto: for each axis, where the slice begins and how long it is, which is None for
    all of it.
    """
    start, length = 1, 2  # fields of an Extent
    extents: list[tuple[int, int | None]] = []
    for extent in _read_axes(read_fields(data), 1):
        size = as_int64(extent.number(length)) if length in extent.numbers else None
        extents.append((as_int64(extent.number(start)), size))
    return tuple(extents)


def _read_axes(message: MessageFields, field: int) -> list[MessageFields]:
    """Read a repeated field, which has one message for each axis."""
    parts = message.contents.get(field, [])
    if len(parts) > MOST_TENSOR_AXES:
        raise ValueError(f"a tensor has {len(parts)} axes, more than {MOST_TENSOR_AXES}")
    return list(map(read_fields, parts))


def read_entry(data: memoryview) -> Entry:
    """Read a BundleEntryProto."""
    message = read_fields(data)
    dtype_field, shape_field, slices_field = 1, 2, 7
    shard, start, size, checksum = map(message.number, (3, 4, 5, 6))
    slices = tuple(map(read_extents, message.contents.get(slices_field, [])))
    shape = read_shape(message.content(shape_field))
    return Entry(message.number(dtype_field), shape, shard, start, size, checksum, slices)


def read_objects(data: memoryview) -> list[SavedObject]:
    """Read a TrackableObjectGraph: its objects in their order, which the references between them count."""
    objects, parts = list[SavedObject](), 0
    for number, node in iterate_fields(data):
        if number != 1 or isinstance(node, int):
            continue
        message = read_fields(node)
        children, variables = (list(map(read_fields, message.contents.get(field, []))) for field in (1, 2))
        parts += 1 + len(children) + len(variables)
        if parts > MOST_PARTS:
            raise ValueError(f"its objects have more than {MOST_PARTS} parts")
        key, full_name = 3, 2  # fields of a SerializedTensor
        owners = tuple(ObjectTensor(variable.text(key), variable.text(full_name)) for variable in variables)
        node_id, local_name = 1, 2  # fields of an ObjectReference
        names = {child.text(local_name): child.number(node_id) for child in children}
        objects.append(SavedObject(names, owners))
    return objects
