"""What an op says of itself, and what the rules of several ops share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from porter.base.errors import GraphError
from porter.padding import Site

LARGER = "give a larger input size"
Row = TypeVar("Row")
Shape = tuple[int | None, ...]
"""(channels, rows, columns), rows and columns None where unknown, or (features,); of an array it is an
`Axes`.
"""
TensorShapes = Mapping[str, tuple[int, ...]]
OPS: dict[str, type[Op]] = {}
"""Every op by its name, or its forms by theirs. A test compares the tables of destinations (`row_of`) with
this one.
"""


class Axes(tuple[int | None, ...]):
    """The shape of an array: a value that is neither a map nor features, such as one of two axes, or of none:
    a number of each image. Its axes have the same order in every framework, and the last one is its channels.
    None stands for an open size.
    """


@dataclass(frozen=True)
class Op:
    """What one node computes. A subclass with a name is an op: a frozen dataclass, whose fields are the op's
    attributes, each of a type of porter.graph.ops.kinds; an op without attributes needs no decorator. Any
    other subclass is what several ops share, such as the rule of one op that has several forms
    (porter.graph.ops.axes).

    Attributes:
        name: in recipes and in port.json.
        several: it takes `least` inputs or more, not one.
        is_linear: each number that it gives is a weighted sum of those that it takes, plus a constant.
    """

    name: ClassVar[str]
    several: ClassVar[bool] = False
    least: ClassVar[int] = 2
    is_linear: ClassVar[bool] = False

    def __init_subclass__(cls, *, name: str | None = None) -> None:
        if name is not None:
            cls.name = name
            OPS[name] = cls

    def shape(self, *inputs: Shape) -> Shape:
        """Return the shape of the value, from those of the inputs.

        Raises:
            GraphError: the inputs do not fit.
        """
        return inputs[0]

    def tensors(self, channels: int) -> TensorShapes:
        """Return the shapes of the canonical tensors by role, for an input of so many channels (or
        features).
        """
        return {}

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        """Return whether every value is provably >= 0, from whether those of the inputs are."""
        return False

    @property
    def bounds(self) -> tuple[float, float]:
        """The inputs below and above which the op has another formula; infinite where it has none."""
        return -math.inf, math.inf

    @property
    def site(self) -> Site | None:
        """The padding site that the op is, if it is one."""
        return None

    @property
    def words(self) -> str:
        """The op as messages write it: `a max pool`."""
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name.replace('_', ' ')}"


class OfChannels(Op):
    """An op with numbers for each channel of a map or of features, which takes no arrays."""

    def shape(self, *inputs: Shape) -> Shape:
        return expect_channels(*inputs)


class KeepsSign(Op):
    """An op that gives values >= 0 for values >= 0."""

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)


class NeverNegative(Op):
    """An op that gives values >= 0 for any values."""

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return True


def row_of(table: Mapping[type[Op], Row], op: type[Op]) -> Row | None:
    """Return the row of an op in a table: its own, otherwise that of the op that it is a form of; None
    without one.
    """
    return next((table[op_class] for op_class in op.__mro__ if op_class in table), None)


def array_shape(sizes: Iterable[int | None]) -> Shape:
    """Return the shape of a value of these axes that is no map: features for one axis, otherwise an array;
    without axes that is a number of each image.
    """
    axes = tuple(sizes)
    return axes if len(axes) == 1 else Axes(axes)


def is_map(shape: Shape) -> bool:
    """Return whether a shape is that of a map."""
    return len(shape) == 3 and not isinstance(shape, Axes)


def channels_axis(shape: Shape) -> int:
    """Return the axis of the channels: the last one of an array, otherwise the first."""
    return len(shape) - 1 if isinstance(shape, Axes) else 0


def channels_in(shape: Shape) -> int:
    """Return the channels of a map or of an array, or the features; a number of each image is one."""
    return (shape[channels_axis(shape)] or 0) if shape else 1


def with_channels(shape: Shape, channels: int) -> Shape:
    """Return the shape with so many channels."""
    axis = channels_axis(shape)
    return type(shape)((*shape[:axis], channels, *shape[axis + 1 :]))


def shape_text(shape: Shape) -> str:
    """Write a shape: `64x?x?`."""
    return "x".join("?" if n is None else str(n) for n in shape)


_TO_RANK: Mapping[int, str] = {
    1: "put a global_avg_pool or a flatten before it",
    3: "put an as_map before it",
}


def expect_rank(shape: Shape, rank: int) -> None:
    """Refuse a value of another rank, and arrays. Raises GraphError for these."""
    if len(expect_channels(shape)) != rank:
        raise GraphError(
            f"expected an input of rank {rank}, got {shape_text(shape)}", next=_TO_RANK.get(rank)
        )


def expect_map(shape: Shape) -> Shape:
    """Return the shape of a map, and refuse another one. Raises GraphError for this."""
    expect_rank(shape, 3)
    return shape


def expect_channels(*shapes: Shape) -> Shape:
    """Return the first shape, and refuse arrays and open numbers of channels: all are of maps or features,
    whose channels no size of the input decides.
    """
    array = next((shape for shape in shapes if isinstance(shape, Axes)), None)
    if array is not None:
        raise GraphError(
            f"expected a map or features, got an array of {shape_text(array)}",
            next="put a rearrange before it",
        )
    for shape in shapes:
        expect_known_channels(shape)
    return shapes[0]


def expect_known_channels(shape: Shape) -> Shape:
    """Return the shape, and refuse an open number of channels, for ops with tensors and ops of single
    channels. Raises GraphError for it.
    """
    if shape[channels_axis(shape)] is None:
        problem = f"the channels of {shape_text(shape)} depend on the input's size"
        if len(shape) == 1:
            problem = "the number of features depends on the input's size"
        raise GraphError(problem, next="state that axis in the rearrange before it, such as `(h=14)`")
    return shape


def expect_array(shape: Shape) -> Shape:
    """Return the shape of an array, and refuse another one."""
    if not isinstance(shape, Axes):
        raise GraphError(f"expected an array, got {shape_text(shape)}", next="put a rearrange before it")
    return shape


def bias_shape(stated: bool, channels: int) -> TensorShapes:
    """Return the shape of a bias by its role, or nothing if the op does not say that it has one."""
    return {"bias": (channels,)} if stated else {}
