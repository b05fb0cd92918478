"""Ops of arrays: values of any axes, such as the tokens of a transformer or the boxes of a detector."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated

from porter.base.errors import GraphError
from porter.graph.ops.joins import may_be_equal, stretched_sizes
from porter.graph.ops.kinds import Count, Flag, Kind, Number, Sizes
from porter.graph.ops.op import (
    KeepsSign,
    Op,
    Shape,
    TensorShapes,
    array_shape,
    expect_array,
    expect_known_channels,
    shape_text,
)

if TYPE_CHECKING:
    from porter.base.dtypes import Array

MOST_AXES = 10
CHANNELS_LAST = (1, 2, 0)
"""The number in porter's order of each axis of a map with its channels last (rows, columns, channels)."""
_GROUP = re.compile(r"\(([^()]*)\)|(\S+)")
_PART = re.compile(r"([a-z]\w?)(?:=(\d{1,7}))?", re.ASCII)


def axis_letters(rank: int) -> str:
    """Return a letter for each axis of an array: `abc` for three. There are `MOST_AXES` of them."""
    return "abcdefghij"[:rank]


@dataclass(frozen=True)
class Moves:
    """A `Rearrange` pattern, read.

    Attributes:
        split: for each axis of the value its parts, outermost first: names, and sizes; None for what is left.
        joined: for each axis of the result the names of its parts, outermost first.
    """

    split: tuple[tuple[tuple[str, int | None], ...], ...]
    joined: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> list[str]:
        """The parts in the value's order."""
        return [name for axis in self.split for name, _ in axis]

    @property
    def order(self) -> tuple[int, ...]:
        """For each part of the result, its index among the parts of the value."""
        names = self.names
        return tuple(names.index(name) for axis in self.joined for name in axis)

    def parts(self, sizes: Sequence[int | None]) -> dict[str, int | None]:
        """Return the size of each part of a value of these axes.

        Raises:
            ValueError: an axis does not divide so.
        """
        by_name: dict[str, int | None] = {}
        for size, axis in zip(sizes, self.split, strict=True):
            known = math.prod(part for _, part in axis if part is not None)
            # an axis that leaves no part open has to be just the product of its parts
            are_all_known = all(part is not None for _, part in axis)
            if size is not None and (size % known or (are_all_known and size != known)):
                raise ValueError(f"an axis of {size} has no parts of {known}")
            rest = None if size is None else size // known
            by_name |= {name: rest if part is None else part for name, part in axis}
        return by_name


@cache
def read_pattern(text: str) -> Moves | None:
    """Read a pattern of `Rearrange` such as `c h w -> (h w) c`; return None for another text."""
    sides = [[_parts(match) for match in _GROUP.finditer(side)] for side in text.split("->")]
    has_unread = any(axis is None for side in sides for axis in side)
    if len(sides) != 2 or has_unread or text.count("(") != text.count(")"):
        return None
    split, joined = (tuple(axis for axis in side if axis is not None) for side in sides)
    split_names, joined_names = ([name for axis in side for name, _ in axis] for side in (split, joined))
    has_names_once = len({*split_names}) == len(split_names) and sorted(split_names) == sorted(joined_names)
    leaves_one_size_open = all(sum(size is None for _, size in axis) < 2 for axis in split)
    result_states_no_size = all(size is None for axis in joined for _, size in axis)
    is_large = max(map(len, (split_names, split, joined))) > MOST_AXES
    if not (has_names_once and leaves_one_size_open and result_states_no_size and split) or is_large:
        return None
    return Moves(split, tuple(tuple(name for name, _ in axis) for axis in joined))


def _parts(match: re.Match[str]) -> tuple[tuple[str, int | None], ...] | None:
    """Return the names and the sizes of the parts of one axis, (("k", 4), ("c", None)) of `(k=4 c)`; None if
    a part cannot be read.

    Args:
        match: of _GROUP: parts in parentheses, or a single part.
    """
    parts_in_group, single_part = match.groups()
    texts = parts_in_group.split() if single_part is None else [single_part]
    parts = [_PART.fullmatch(text) for text in texts]
    if not all(parts):
        return None
    return tuple((part[1], int(part[2]) if part[2] else None) for part in parts if part)


Pattern = Annotated[
    str,
    Kind(
        "Pattern",
        "axes before and after, such as 'c h w -> (h w) c'",
        lambda value: value if isinstance(value, str) and len(value) <= 200 and read_pattern(value) else None,
        {"type": "string", "maxLength": 200},
    ),
]


@dataclass(frozen=True)
class ReshapeStep:
    """A step of a Rearrange that splits or joins axes to these sizes, of which -1 is open."""

    sizes: tuple[int, ...]

    def apply(self, numbers: Array) -> Array:
        return numbers.reshape(self.sizes)


@dataclass(frozen=True)
class PermuteStep:
    """A step of a Rearrange that puts axes into another order: of each axis of the result, which it was."""

    axes: tuple[int, ...]

    def apply(self, numbers: Array) -> Array:
        return numbers.transpose(self.axes)


@dataclass(frozen=True)
class Rearrange(KeepsSign, name="rearrange"):
    """The numbers of a value along other axes, as einops writes it: `c h w -> (h w) c` makes a map an array
    of its cells.

    Axes in brackets are parts of one axis, outermost first. A split axis has the sizes of its parts in place,
    and may leave out one: `(k=4 c) h w -> k h w c`. What becomes part of an array's channels has its size:
    `(t=49) c -> c t`. `()` is an axis of one cell; `() ->` leaves a number of each image. With `map` the
    result is a map (channels, rows, columns), otherwise it is an array, or features where it has one axis.
    """

    is_linear = True

    pattern: Pattern
    map: Flag = False

    def fixes_input_size(self, shape: Shape) -> bool:
        """Return whether the op can compute images of one size only. That is so where its pattern splits an
        axis of open size (None in `shape`) into parts of known lengths, as 49 into 7 x 7, and where it joins
        all axes into one, whose length is then a number of features.
        """
        states_open_size = any(
            size is None and all(part is not None for _, part in axis)
            for size, axis in zip(shape, self.moves.split, strict=True)
        )
        return states_open_size or (len(self.moves.joined) == 1 and None in shape)

    def steps(
        self, shape: Shape, of_map: bool, channels_last: bool = False
    ) -> list[ReshapeStep | PermuteStep]:
        """Return the op as reshapes and permutations one after the other, of all axes but the batch.

        Args:
            shape: of the value; None for open sizes.
            of_map: the value is a map.
            channels_last: maps are rows, columns, channels.

        """
        moves = self.moves
        parts = moves.parts(shape)
        split: Sequence[tuple[tuple[str, int | None], ...]] = moves.split
        joined: Sequence[tuple[str, ...]] = moves.joined
        if of_map and channels_last:
            split = [moves.split[axis] for axis in CHANNELS_LAST]
        if self.map and channels_last:
            joined = [moves.joined[axis] for axis in CHANNELS_LAST]
        names_before = [name for axis in split for name, _ in axis]
        names_after = [name for axis in joined for name in axis]
        permutes = names_before != names_after
        splits = any(len(axis) != 1 for axis in split)
        joins = any(len(axis) != 1 for axis in joined)
        steps = list[ReshapeStep | PermuteStep]()
        # split the axes, permute the parts, join them: what changes nothing is left out
        if permutes:
            if splits:
                steps.append(ReshapeStep(tuple(_size_or_open(parts[name]) for name in names_before)))
            steps.append(PermuteStep(tuple(names_before.index(name) for name in names_after)))
        if joins or (splits and not permutes):
            sizes = [_product_or_open([parts[name] for name in axis]) for axis in joined]
            steps.append(ReshapeStep(tuple(map(_size_or_open, sizes))))
        return steps

    @property
    def moves(self) -> Moves:
        """The pattern, read. Raises GraphError if it is none."""
        moves = read_pattern(self.pattern)
        if moves is None:
            raise GraphError(
                f"'{self.pattern}' is no pattern of axes", next="write one such as 'c h w -> (h w) c'"
            )
        return moves

    def shape(self, *inputs: Shape) -> Shape:
        moves, shape = self.moves, inputs[0]
        gives_no_map = self.map and len(moves.joined) != 3
        if len(shape) != len(moves.split) or gives_no_map:
            result = " and a map" if self.map else ""
            raise GraphError(f"'{self.pattern}' does not fit {shape_text(shape)}{result}")
        try:
            parts = moves.parts(shape)
        except ValueError as error:
            raise GraphError(f"'{self.pattern}' does not fit {shape_text(shape)}: {error}") from None
        sizes = [_product_or_open([parts[name] for name in axis]) for axis in moves.joined]
        return tuple(sizes) if self.map else array_shape(sizes)


@dataclass(frozen=True)
class MatMul(Op, name="matmul"):
    """The matrix products of two arrays over their last two axes; with `transpose` the second one's are
    turned.
    """

    transpose: Flag = False
    several = True

    def shape(self, *inputs: Shape) -> Shape:
        first, second = map(expect_array, inputs) if len(inputs) == 2 else ((), ())
        if len(first) != len(second) or len(first) < 2:
            raise GraphError(f"cannot multiply {' and '.join(map(shape_text, inputs))}")
        *_, rows, summed = first
        *_, second_summed, columns = second
        if self.transpose:
            *_, columns, second_summed = second
        outer = stretched_sizes([first[:-2], second[:-2]])
        if not may_be_equal([summed, second_summed]) or outer is None:
            transposed = " transposed" if self.transpose else ""
            raise GraphError(f"cannot multiply {shape_text(first)} and {shape_text(second)}{transposed}")
        return array_shape([*outer, rows, columns])


@dataclass(frozen=True)
class Attention(Op, name="attention"):
    """Attention: for each head and each query the mean of the values, weighted by the softmax of `scale`
    times its products with all keys.

    Arrays are tokens x channels, whose channels are those of all heads, one head after the other; axes before
    these two are apart. One array has queries, keys and values side by side in its channels; otherwise the
    inputs are queries, keys, values.
    """

    heads: Count
    scale: Number
    several = True
    least = 1

    def shape(self, *inputs: Shape) -> Shape:
        shapes = [expect_known_channels(expect_array(shape)) for shape in inputs]
        query, key, value = shapes if len(shapes) == 3 else [inputs[0]] * 3
        operands_per_array = 1 if len(shapes) == 3 else 3  # one array has all three in its channels
        outer = stretched_sizes([query[:-2], key[:-2], value[:-2]])
        has_same_channels = may_be_equal([query[-1], key[-1]])
        has_same_tokens = may_be_equal([key[-2], value[-2]])
        fits = outer is not None and has_same_channels and has_same_tokens
        divisor = operands_per_array * self.heads
        has_heads = not any((shape[-1] or 0) % divisor for shape in (query, value))
        if len(shapes) not in (1, 3) or not fits or not has_heads:
            raise GraphError(f"{self.heads} heads cannot attend to {' and '.join(map(shape_text, inputs))}")
        return array_shape([*query[:-1], (value[-1] or 0) // operands_per_array])


@dataclass(frozen=True)
class OfArray(Op):
    """A value and a trained array of `sizes`, number by number; a size of 1 is stretched. The array is the
    same for each image.
    """

    is_linear = True

    sizes: Sizes

    def shape(self, *inputs: Shape) -> Shape:
        shape = inputs[0]
        stretched_shape = stretched_sizes([shape, self.sizes])
        if math.prod(self.sizes) == 1:
            raise GraphError("an array needs more than one number", next="use an affine")
        if stretched_shape is None:
            raise GraphError(f"an array of {shape_text(self.sizes)} does not fit {shape_text(shape)}")
        return type(shape)(stretched_shape)

    def tensors(self, channels: int) -> TensorShapes:
        return {"value": self.sizes}


class AddArray(OfArray, name="add_array"):
    """A value plus a trained array, such as the positions of tokens; a size of 1 is stretched."""


class MultiplyArray(OfArray, name="multiply_array"):
    """A value times a trained array; a size of 1 is stretched."""


@dataclass(frozen=True)
class Tokens(Op, name="tokens"):
    """Trained tokens before those of an array (tokens, channels), the same for each image, such as a class
    token.
    """

    is_linear = True

    count: Count

    def shape(self, *inputs: Shape) -> Shape:
        shape = expect_known_channels(expect_array(inputs[0]))
        if len(shape) != 2:
            raise GraphError(
                f"expected tokens x channels, got {shape_text(shape)}", next="put a rearrange before it"
            )
        return array_shape((None if shape[0] is None else shape[0] + self.count, shape[1]))

    def tensors(self, channels: int) -> TensorShapes:
        return {"value": (self.count, channels)}


def _size_or_open(size: int | None) -> int:
    """Return a size, or -1 for an open one, as reshapes state it."""
    return -1 if size is None else size


def _product_or_open(sizes: Sequence[int | None]) -> int | None:
    """Return the product of sizes; None if one is open."""
    return None if None in sizes else math.prod(size or 0 for size in sizes)
