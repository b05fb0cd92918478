"""Ops that move, cut or repeat values and compute no new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from porter.base.errors import GraphError
from porter.graph.ops.kinds import Amounts, Blocks, Count, Fill, Flag, Mode, Order, Share, Whole
from porter.graph.ops.op import LARGER, KeepsSign, Op, Shape, expect_channels, expect_map, expect_rank, shape_text
from porter.padding import Pads


@dataclass(frozen=True)
class Identity(KeepsSign, name="identity"):
    """Its input."""


@dataclass(frozen=True)
class Dropout(KeepsSign, name="dropout"):
    """Its input. In training a share `rate` of its numbers, or with `maps` of its channels, becomes 0, and the others grow by
    1 / (1 - rate).
    """

    rate: Share
    maps: Flag = False

    def shape(self, *inputs: Shape) -> Shape:
        return expect_map(inputs[0]) if self.maps else inputs[0]


@dataclass(frozen=True)
class Flatten(KeepsSign, name="flatten"):
    """A map of `rows` x `columns` as features, in the order of its source: channel by channel (CHW) or cell by cell (HWC)."""

    rows: Count = 1
    columns: Count = 1
    order: Order = "CHW"

    def shape(self, *inputs: Shape) -> Shape:
        channels, *size = expect_map(inputs[0])
        if any(n not in (None, wanted) for n, wanted in zip(size, (self.rows, self.columns), strict=True)):
            expected = f"expected a map of {self.rows}x{self.columns}, got {shape_text(inputs[0])}"
            raise GraphError(f"{expected}: what is flattened fixes the input's size")
        return ((channels or 0) * self.rows * self.columns,)


@dataclass(frozen=True)
class AsMap(KeepsSign, name="as_map"):
    """Features as a map of one cell: C to C×1×1."""

    def shape(self, *inputs: Shape) -> Shape:
        expect_rank(inputs[0], 1)
        return (inputs[0][0], 1, 1)


@dataclass(frozen=True)
class PadMap(Op, name="pad_map"):
    """Cells of `fill` around a map: top, bottom, left, right."""

    pads: Amounts
    fill: Fill = 0.0

    def shape(self, *inputs: Shape) -> Shape:
        _expect_amounts(self.pads)
        return _resized(inputs[0], self.pads)

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return all(inputs) and self.fill >= 0


@dataclass(frozen=True)
class ExtendMap(KeepsSign, name="extend_map"):
    """Cells of a map's own around it (top, bottom, left, right), by `mode`.

    `edge` repeats its edge, `reflect` mirrors it at the middle of its edge's cells and `symmetric` behind them, and `wrap` goes on
    at its other side.
    """

    pads: Amounts
    mode: Mode

    @property
    def words(self) -> str:
        return f"a pad by {self.mode}"

    def shape(self, *inputs: Shape) -> Shape:
        _expect_amounts(self.pads)
        for axis, size in enumerate(expect_map(inputs[0])[1:]):
            most = None if size is None or self.mode == "edge" else size - (self.mode == "reflect")
            if most is not None and max(self.pads[2 * axis : 2 * axis + 2]) > most:
                raise GraphError(f"{shape_text(inputs[0])} has too few cells for pads of {self.pads} by {self.mode}", next=LARGER)
        return _resized(inputs[0], self.pads)


@dataclass(frozen=True)
class Crop(KeepsSign, name="crop"):
    """A map without so many rows and columns at its top, bottom, left and right."""

    pads: Amounts

    def shape(self, *inputs: Shape) -> Shape:
        _expect_amounts(self.pads)
        top, bottom, left, right = self.pads
        return _resized(inputs[0], (-top, -bottom, -left, -right))


@dataclass(frozen=True)
class PadChannels(KeepsSign, name="pad_channels"):
    """Channels of zeros before and after a value's own."""

    before: Whole
    after: Whole

    def shape(self, *inputs: Shape) -> Shape:
        if min(self.before, self.after) < 0:
            raise GraphError(f"expected 0 or more channels, got {self.before} and {self.after}")
        return ((expect_channels(inputs[0])[0] or 0) + self.before + self.after, *inputs[0][1:])


@dataclass(frozen=True)
class SliceChannels(KeepsSign, name="slice_channels"):
    """The channels of Python's range(start, stop, step): backwards with a negative step."""

    start: Whole
    stop: Whole
    step: Whole = 1

    @property
    def channels(self) -> range:
        return range(self.start, self.stop, self.step)

    def shape(self, *inputs: Shape) -> Shape:
        most = expect_channels(inputs[0])[0] or 0
        if not self.step or not self.channels or not 0 <= min(self.channels) <= max(self.channels) < most:
            raise GraphError(f"{shape_text(inputs[0])} has no channels {self.start}:{self.stop}:{self.step}")
        return (len(self.channels), *inputs[0][1:])


@dataclass(frozen=True)
class ChannelShuffle(KeepsSign, name="channel_shuffle"):
    """Channels in `groups` groups, taken one of each group at a time: (groups, n) to (n, groups)."""

    groups: Count

    def shape(self, *inputs: Shape) -> Shape:
        if (inputs[0][0] or 0) % self.groups:
            raise GraphError(f"{self.groups} groups do not divide {shape_text(inputs[0])}")
        return expect_map(inputs[0])


@dataclass(frozen=True)
class DepthToSpace(KeepsSign, name="depth_to_space"):
    """Channels as cells of block x block: in TensorFlow's order the cell counts first (DCR), in torch's the channel (CRD)."""

    block: Count
    order: Blocks = "DCR"

    def shape(self, *inputs: Shape) -> Shape:
        channels, rows, columns = expect_map(inputs[0])
        if (channels or 0) % self.block**2:
            raise GraphError(f"blocks of {self.block}x{self.block} do not divide {shape_text(inputs[0])}")
        return ((channels or 0) // self.block**2, *(None if n is None else n * self.block for n in (rows, columns)))


@dataclass(frozen=True)
class Upsample(KeepsSign, name="upsample"):
    """Every cell repeated `rows` times down and `columns` times across (nearest neighbour)."""

    rows: Count
    columns: Count

    def shape(self, *inputs: Shape) -> Shape:
        channels, rows, columns = expect_map(inputs[0])
        return (channels, None if rows is None else rows * self.rows, None if columns is None else columns * self.columns)


def _expect_amounts(pads: Pads) -> None:
    if min(pads) < 0:
        raise GraphError(f"expected amounts of 0 or more, got {pads}")


def _resized(shape: Shape, pads: Pads) -> Shape:
    channels, *size = expect_map(shape)
    top, bottom, left, right = pads
    found = [None if n is None else n + more for n, more in zip(size, (top + bottom, left + right), strict=True)]
    if any(n is not None and n < 1 for n in found):
        raise GraphError(f"nothing is left of {shape_text(shape)}", next=LARGER)
    return (channels, *found)
