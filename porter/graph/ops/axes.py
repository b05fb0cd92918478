"""Ops along axes: crop, pad, concat and reduce. Each has one rule, and forms in which recipes and port.json
write it.

Axes are counted without the batch, in porter's order: 0 is the channels of a map or of features, 1 its rows
and 2 its columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from porter.base.errors import GraphError
from porter.graph.ops.joins import known_size, may_be_equal
from porter.graph.ops.kinds import Amounts, Axis, Count, Fill, Function, Mode, Number, Whole
from porter.graph.ops.op import (
    LARGER,
    KeepsSign,
    Op,
    Shape,
    array_shape,
    expect_array,
    expect_channels,
    expect_map,
    shape_text,
    with_channels,
)

AXES: tuple[Axis, ...] = ("channels", "rows", "columns")
"""The axes of a map in porter's order."""


class AlongAxes(Op):
    """An op that does something along axes: of maps and features, or in a form of its own of arrays."""

    of_arrays: ClassVar[bool] = False


class AtEnds(AlongAxes):
    """An op at the ends of axes."""

    @property
    def ends(self) -> Mapping[int, tuple[int, int]]:
        """How many cells the op adds or cuts off at the start and at the end of axes, by axis: `{1: (2, 2)}`
        at the top and the bottom of a map.
        """
        raise NotImplementedError

    def grown(self, shape: Shape) -> Shape:
        """Return a shape with as many cells more as the op has at the ends of axes; open sizes stay open."""
        ends = self.ends
        return type(shape)(
            None if size is None else size + sum(ends.get(axis, ())) for axis, size in enumerate(shape)
        )


@dataclass(frozen=True)
class AroundMap(AtEnds):
    """Numbers of cells at the top, the bottom, the left and the right of a map."""

    pads: Amounts

    @property
    def ends(self) -> Mapping[int, tuple[int, int]]:
        return {1: self.pads[:2], 2: self.pads[2:]}

    def shape(self, *inputs: Shape) -> Shape:
        if min(self.pads) < 0:
            raise GraphError(f"expected amounts of 0 or more, got {self.pads}")
        return super().shape(expect_map(inputs[0]))


@dataclass(frozen=True)
class AroundAxis(AtEnds):
    """Numbers of cells at the start and at the end of an axis of an array."""

    axis: Whole
    before: Whole
    after: Whole
    of_arrays = True

    @property
    def ends(self) -> Mapping[int, tuple[int, int]]:
        return {self.axis: (self.before, self.after)}

    def shape(self, *inputs: Shape) -> Shape:
        if not 0 <= self.axis < len(expect_array(inputs[0])) or min(self.before, self.after) < 0:
            amounts = f"{self.before} and {self.after}"
            raise GraphError(
                f"{self.words} of {amounts} cells does not fit axis {self.axis} of {shape_text(inputs[0])}"
            )
        return super().shape(*inputs)


class Crop(AlongAxes, KeepsSign):
    """A value without some cells of some axes."""

    is_linear = True

    @property
    def cuts(self) -> Mapping[int, slice]:
        """The cells of each axis that stay."""
        raise NotImplementedError


class CropAtEnds(AtEnds, Crop):
    """A value without cells at the ends of some axes, and of the others every `step`th."""

    step: int = 1

    @property
    def cuts(self) -> Mapping[int, slice]:
        # a slice up to the end of an axis ends at None, not at -0
        return {axis: slice(before, -after or None, self.step) for axis, (before, after) in self.ends.items()}

    def shape(self, *inputs: Shape) -> Shape:
        sizes = list(inputs[0])
        for axis, (before, after) in self.ends.items():
            size = sizes[axis]
            if size is not None:
                left = size - before - after
                # a last step that is not whole still begins at a cell: rounded up
                sizes[axis] = max(-(-left // self.step), 0)
        if 0 in sizes:
            raise GraphError(f"nothing is left of {shape_text(inputs[0])}", next=LARGER)
        return type(inputs[0])(sizes)


class CropMap(AroundMap, CropAtEnds, name="crop"):
    """A map without so many rows and columns at its top, bottom, left and right."""


@dataclass(frozen=True)
class SliceChannels(Crop, name="slice_channels"):
    """The channels of Python's range(start, stop, step): backwards with a negative step."""

    start: Whole
    stop: Whole
    step: Whole = 1

    @property
    def channels(self) -> range:
        return range(self.start, self.stop, self.step)

    @property
    def cuts(self) -> Mapping[int, slice]:
        return {0: slice(self.start, self.stop if self.stop >= 0 else None, self.step)}

    def shape(self, *inputs: Shape) -> Shape:
        count = expect_channels(inputs[0])[0] or 0
        has_channels = self.step and self.channels and min(self.channels) >= 0 and max(self.channels) < count
        if not has_channels:
            raise GraphError(f"{shape_text(inputs[0])} has no channels {self.start}:{self.stop}:{self.step}")
        return with_channels(inputs[0], len(self.channels))


@dataclass(frozen=True)
class CropAxis(AroundAxis, CropAtEnds, name="crop_axis"):
    """An array without so many cells at the start and at the end of an axis, and of the others every
    `step`th.
    """

    step: Count = 1


class Pad(AtEnds):
    """A value with cells of `fill` before and after those of some axes."""

    is_linear = True

    fill: float = 0.0

    def shape(self, *inputs: Shape) -> Shape:
        return self.grown(inputs[0])

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return all(inputs) and self.fill >= 0


@dataclass(frozen=True)
class PadMap(AroundMap, Pad, name="pad_map"):
    """Cells of `fill` around a map: top, bottom, left, right."""

    fill: Fill = 0.0


@dataclass(frozen=True)
class ExtendMap(AroundMap, KeepsSign, name="extend_map"):
    """Cells of a map's own around it (top, bottom, left, right), by `mode`.

    `edge` repeats its edge, `reflect` mirrors it at the middle of its edge's cells and `symmetric` behind
    them, and `wrap` goes on at its other side.
    """

    is_linear = True

    mode: Mode

    @property
    def words(self) -> str:
        return f"a pad by {self.mode}"

    def shape(self, *inputs: Shape) -> Shape:
        shape = super().shape(*inputs)
        for axis, amounts in self.ends.items():
            size = shape[axis]
            if size is None or self.mode == "edge":  # an edge can be repeated any number of times
                continue
            most = size - 1 if self.mode == "reflect" else size  # a reflection leaves out the edge itself
            if max(amounts) > most:
                raise GraphError(
                    f"{shape_text(shape)} has too few cells for pads of {self.pads} by {self.mode}",
                    next=LARGER,
                )
        return self.grown(shape)


@dataclass(frozen=True)
class PadChannels(Pad, name="pad_channels"):
    """Channels of zeros before and after a value's own."""

    before: Whole
    after: Whole

    @property
    def ends(self) -> Mapping[int, tuple[int, int]]:
        return {0: (self.before, self.after)}

    def shape(self, *inputs: Shape) -> Shape:
        if min(self.before, self.after) < 0:
            raise GraphError(f"expected 0 or more channels, got {self.before} and {self.after}")
        return super().shape(expect_channels(inputs[0]))


@dataclass(frozen=True)
class PadAxis(AroundAxis, Pad, name="pad_axis"):
    """An array with cells of `fill` before and after those of an axis."""

    fill: Number = 0.0


class Concat(AlongAxes, KeepsSign):
    """Values one after the other along an axis."""

    is_linear = True

    axis: int
    several = True

    def shape(self, *inputs: Shape) -> Shape:
        have_one_rank = len({len(shape) for shape in inputs}) == 1
        sizes_by_axis = [*zip(*inputs, strict=True)] if have_one_rank else []
        others_fit = all(may_be_equal(sizes) for axis, sizes in enumerate(sizes_by_axis) if axis != self.axis)
        if not 0 <= self.axis < len(sizes_by_axis) or not others_fit:
            along = f" along axis {self.axis}" if self.of_arrays else ""
            raise GraphError(f"cannot join shapes {', '.join(map(shape_text, inputs))}{along}")
        joined = sizes_by_axis[self.axis]
        total = None if None in joined else sum(size or 0 for size in joined)
        return type(inputs[0])(
            total if axis == self.axis else known_size(sizes) for axis, sizes in enumerate(sizes_by_axis)
        )


class ConcatChannels(Concat, name="concat"):
    """Inputs joined along the channels."""

    axis = 0

    def shape(self, *inputs: Shape) -> Shape:
        return super().shape(expect_channels(*inputs), *inputs[1:])


@dataclass(frozen=True)
class Join(Concat, name="join"):
    """Arrays one after the other along an axis, counted without the batch."""

    axis: Whole
    of_arrays = True

    def shape(self, *inputs: Shape) -> Shape:
        return super().shape(*map(expect_array, inputs))


class Reduce(AlongAxes, KeepsSign):
    """The mean, the largest value or the norm (the root of the sum of squares) along one axis."""

    function: Function
    axis: Any

    @property
    def over(self) -> int:
        """The number of the axis that is reduced. A map keeps one cell there, and an array loses the axis."""
        return self.axis if self.of_arrays else AXES.index(self.axis)


@dataclass(frozen=True)
class ReduceMap(Reduce, name="reduce"):
    """The mean, the largest value or the norm (the root of the sum of squares) along one axis of a map, which
    keeps one cell (or channel) there.
    """

    function: Function
    axis: Axis

    def shape(self, *inputs: Shape) -> Shape:
        return tuple(1 if axis == self.over else size for axis, size in enumerate(expect_map(inputs[0])))

    @property
    def words(self) -> str:
        return f"a {self.function} over {self.axis}"


@dataclass(frozen=True)
class ReduceAxis(Reduce, name="reduce_axis"):
    """The mean, the largest value or the norm along an axis of an array, which goes."""

    function: Function
    axis: Whole
    of_arrays = True

    def shape(self, *inputs: Shape) -> Shape:
        shape = expect_array(inputs[0])
        if not 0 <= self.axis < len(shape):
            raise GraphError(f"{shape_text(shape)} has no axis {self.axis}")
        return array_shape(size for axis, size in enumerate(shape) if axis != self.axis)
