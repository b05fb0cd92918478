"""What the input of an ONNX model is as the map that a port takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from porter.filegraph.file_graph import fill_free_size
from porter.filegraph.reading import GraphInput
from porter.filegraph.value_names import NodeOutput
from porter.formats.onnx.nodes import OnnxNode
from porter.graph.ops import MOST_AXES
from porter.padding import ANY, Size
from porter.padding.sizes import MAX_SIDE

CHANNELS_LAST = "channels last"
"""A key of a definition's metadata: the image is N×H×W×C."""
IMAGE_AXES, SINGLE_IMAGE = "axes of each image", "axes of the input"
"""Keys of a definition's metadata, to sizes with spaces between them, -1 for an open one: the input is no map
but has these axes behind the batch; or it has no batch, and is one image.
"""
_CHANNELS_FIRST = (0, 3, 1, 2)
"""The axes of N×H×W×C in the order N×C×H×W."""
_WINDOWED = frozenset({"Conv", "ConvTranspose", "MaxPool", "AveragePool"})
_TAKES_MAPS = _WINDOWED | {
    "GlobalMaxPool",
    "GlobalAveragePool",
    "BatchNormalization",
    "LRN",
    "DepthToSpace",
    "PRelu",
}
"""Operators whose second axis is the channels'."""
_USUAL_CHANNELS = (1, 3, 4)
"""How many channels images have, where neither the graph nor an open size tells which axis they are."""


@dataclass(frozen=True)
class MappedInput:
    """An input as the map of a port.

    Attributes:
        metadata: of the definition, which says how its own input is made of such maps.
        notes: for people, where it has no batch.
    """

    image: GraphInput
    metadata: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def possible_images(
    value: Any, nodes: Mapping[str, OnnxNode], channels_taken: int | None, size: Size | None
) -> Iterator[MappedInput]:
    """Yield what the input may be, likeliest first: a map, or another tensor of a batch, whose image has one
    channel. If all sizes are stated, it may also be one image with all its numbers in a row, because an op
    may be along the first axis.

    Args:
        value: ValueInfoProto.
        channels_taken: the channels that the first convolution takes, for an image that does not state them.
        size: of the image, where the model leaves it open.
    """
    sizes = _stated_sizes(value)
    source = (value.name, 0)
    sizes_known = [size for size in sizes if size is not None]
    if len(sizes) == 4:
        yield _map_input(source, sizes, _channels_last(nodes, value.name, sizes), channels_taken, size)
    # A tensor of a batch and at least one further axis, not a list of images' numbers.
    elif (
        sizes not in ([], sizes_known[:1]) and (rows_and_columns := _rows_and_columns(sizes[1:])) is not None
    ):
        yield _input_with_rows(source, sizes, rows_and_columns, size)
    windowed = any(node.op in _WINDOWED for node in nodes.values())  # what they take has a batch
    is_one_image = len(sizes_known) == len(sizes) <= MOST_AXES and not windowed
    rows = _fewest_rows(math.prod(sizes_known)) if is_one_image else None
    if rows is not None:
        yield _input_without_batch(source, sizes_known, rows)


def read_further_input(value: Any, nodes: Mapping[str, OnnxNode]) -> MappedInput | None:
    """Return a further input as a map whose channels are stated, or as a tensor of a batch whose other sizes
    are stated; None for others. A map's metadata names the input, because each input has its own.
    """
    sizes = _stated_sizes(value)
    source = (value.name, 0)
    if len(sizes) == 4:
        channels_last = _channels_last(nodes, value.name, sizes)
        if sizes[3 if channels_last else 1] is None:
            return None
        mapped = _map_input(source, sizes, channels_last, None, None)
        return replace(mapped, metadata={f"{key} of {value.name}": "" for key in mapped.metadata})
    shape = tuple(size for size in sizes[1:] if size is not None)
    if not 0 < len(shape) <= MOST_AXES or len(shape) != len(sizes) - 1:
        return None
    return MappedInput(GraphInput(source, 1, ANY, sizes[0], "CHW", shape=shape))


def _stated_sizes(value: Any) -> list[int | None]:
    """Return the sizes of an input's axes (of a ValueInfoProto), None for each that is open."""
    return [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None
        for dim in value.type.tensor_type.shape.dim
    ]


def _input_with_rows(
    source: NodeOutput, sizes: Sequence[int | None], rows_and_columns: Size, size: Size | None
) -> MappedInput:
    """Return a tensor whose images have these rows and columns as an input.

    Args:
        sizes: of its axes, batch first.
        size: rows and columns, where the model leaves them open.
    """
    shape = fill_free_size(rows_and_columns, size)
    # One axis behind the batch is the columns, two are rows and columns; of more, the first one is the rows,
    # and the others are joined to columns.
    axes = shape[3 - len(sizes) :] if len(sizes) < 4 else (shape[0], *sizes[2:])
    return MappedInput(
        GraphInput(source, 1, shape, sizes[0], "CHW", None not in shape, shape=axes),
        {IMAGE_AXES: _sizes_text(sizes[1:])},
    )


def _input_without_batch(source: NodeOutput, sizes: Sequence[int], rows: int) -> MappedInput:
    """Return an input without a batch, all whose numbers stand in a map of one channel and so many rows. The
    port takes it with a batch, which a note says.
    """
    shape = rows, math.prod(sizes) // rows
    sizes_in_note = _shape_text(sizes) or "of one number"
    note = f"its input {sizes_in_note} has no batch: the port takes N such inputs"
    return MappedInput(
        GraphInput(source, 1, shape, 0, "CHW", True, shape=tuple(sizes)),
        {SINGLE_IMAGE: _sizes_text(sizes)},
        (note,),
    )


def _fewest_rows(count: int) -> int | None:
    """Return the fewest rows of a map of `count` cells whose columns a port takes; None if no map has so
    many.
    """
    return next(
        (rows for rows in range(1, MAX_SIDE + 1) if count % rows == 0 and count // rows <= MAX_SIDE), None
    )


def _map_input(
    source: NodeOutput,
    sizes: Sequence[int | None],
    channels_last: bool,
    channels_taken: int | None,
    size: Size | None,
) -> MappedInput:
    """Return a map of four axes as an input of the graph.

    Args:
        sizes: of its axes, None where they are open.
        channels_last: whether its channels are the last axis.
        channels_taken: those that the first convolution takes, for an image that does not state them.
        size: rows and columns, where the model leaves them open.
    """
    batch, channels, rows, columns = (
        sizes[axis] for axis in (_CHANNELS_FIRST if channels_last else (0, 1, 2, 3))
    )
    axes = (0, 2, 3, 1) if channels_last else None
    shape = fill_free_size((rows, columns), size)
    image = GraphInput(source, channels or channels_taken or 3, shape, batch, "CHW", None not in shape, axes)
    return MappedInput(image, {CHANNELS_LAST: ""} if channels_last else {})


def _rows_and_columns(sizes: Sequence[int | None]) -> Size | None:
    """Return the rows and columns of an image with these axes; None if they exceed a port's, in number or
    size, or if several open axes would be joined.

    Args:
        sizes: of the axes behind the batch.
    """
    rows: int | None = 1
    columns: int | None = 1
    stated = [size for size in sizes[1:] if size is not None]
    # A single number is a map of one cell, and one axis is a row.
    if len(sizes) == 1:
        columns = sizes[0]
    elif len(sizes) > 1:
        rows, columns = sizes[0], math.prod(stated) if stated else None
    can_join = len(sizes) < 3 or len(stated) == len(sizes) - 1 < MOST_AXES
    return (rows, columns) if can_join and max(rows or 1, columns or 1) <= MAX_SIDE else None


def _sizes_text(sizes: Sequence[int | None]) -> str:
    return " ".join(str(size or -1) for size in sizes)


def _shape_text(sizes: Sequence[int | str | None]) -> str:
    return "x".join(str(size or "?") for size in sizes)


def _channels_last(nodes: Mapping[str, OnnxNode], image: str, sizes: list[int | None]) -> bool:
    """Return whether the image is N×H×W×C. The first transpose or windowed op after it tells, otherwise its
    open sizes and its few channels.
    """
    same_value = {image}
    for node in nodes.values():
        if any(source in same_value for source, _ in node.inputs):
            if node.op == "Transpose":
                return node.integers("perm") == _CHANNELS_FIRST
            if node.op in _TAKES_MAPS:
                return False
            same_value.add(node.name)
    return sizes[3] in _USUAL_CHANNELS and all(
        size is None or size > max(_USUAL_CHANNELS) for size in sizes[1:3]
    )
