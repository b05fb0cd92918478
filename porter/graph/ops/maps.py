"""Ops that move, cut or repeat values and compute no new ones."""

from __future__ import annotations

from dataclasses import dataclass

from porter.base.errors import GraphError
from porter.graph.ops.kinds import Blocks, Count, Flag, Order, Share
from porter.graph.ops.op import KeepsSign, Shape, expect_map, expect_rank, shape_text


class Identity(KeepsSign, name="identity"):
    """The value itself."""

    is_linear = True


@dataclass(frozen=True)
class Dropout(KeepsSign, name="dropout"):
    """The value itself. In training a share `rate` of its numbers, or with `maps` of its channels, becomes 0,
    and the others grow by 1 / (1 - rate).
    """

    is_linear = True

    rate: Share
    maps: Flag = False

    def shape(self, *inputs: Shape) -> Shape:
        return expect_map(inputs[0]) if self.maps else inputs[0]


@dataclass(frozen=True)
class Flatten(KeepsSign, name="flatten"):
    """A map of `rows` x `columns` as features, in the order of its source: channel by channel (CHW) or cell
    by cell (HWC).
    """

    is_linear = True

    rows: Count = 1
    columns: Count = 1
    order: Order = "CHW"

    def shape(self, *inputs: Shape) -> Shape:
        channels, *size = expect_map(inputs[0])
        if any(n not in (None, wanted) for n, wanted in zip(size, (self.rows, self.columns), strict=True)):
            expected = f"expected a map of {self.rows}x{self.columns}, got {shape_text(inputs[0])}"
            raise GraphError(f"{expected}: what is flattened fixes the input's size")
        return ((channels or 0) * self.rows * self.columns,)


class AsMap(KeepsSign, name="as_map"):
    """Features as a map of one cell: C to C×1×1."""

    is_linear = True

    def shape(self, *inputs: Shape) -> Shape:
        expect_rank(inputs[0], 1)
        return (inputs[0][0], 1, 1)


@dataclass(frozen=True)
class ChannelShuffle(KeepsSign, name="channel_shuffle"):
    """Channels in `groups` groups, taken one of each group at a time: (groups, n) to (n, groups)."""

    is_linear = True

    groups: Count

    def shape(self, *inputs: Shape) -> Shape:
        if (inputs[0][0] or 0) % self.groups:
            raise GraphError(f"{self.groups} groups do not divide {shape_text(inputs[0])}")
        return expect_map(inputs[0])


@dataclass(frozen=True)
class DepthToSpace(KeepsSign, name="depth_to_space"):
    """Channels as cells of block x block: in TensorFlow's order the cell counts first (DCR), in torch's the
    channel (CRD).
    """

    is_linear = True

    block: Count
    order: Blocks = "DCR"

    def shape(self, *inputs: Shape) -> Shape:
        channels, rows, columns = expect_map(inputs[0])
        if (channels or 0) % self.block**2:
            raise GraphError(f"blocks of {self.block}x{self.block} do not divide {shape_text(inputs[0])}")
        cells = (None if size is None else size * self.block for size in (rows, columns))
        return ((channels or 0) // self.block**2, *cells)


@dataclass(frozen=True)
class SpaceToDepth(KeepsSign, name="space_to_depth"):
    """Cells of block x block as channels, as `depth_to_space` with these attributes takes them back."""

    is_linear = True

    block: Count
    order: Blocks = "DCR"

    def shape(self, *inputs: Shape) -> Shape:
        channels, *cells = expect_map(inputs[0])
        if any(n is not None and n % self.block for n in cells):
            raise GraphError(f"blocks of {self.block}x{self.block} do not divide {shape_text(inputs[0])}")
        return ((channels or 0) * self.block**2, *(None if n is None else n // self.block for n in cells))


@dataclass(frozen=True)
class Upsample(KeepsSign, name="upsample"):
    """Every cell repeated `rows` times down and `columns` times across (nearest neighbour)."""

    is_linear = True

    rows: Count
    columns: Count

    def shape(self, *inputs: Shape) -> Shape:
        channels, rows, columns = expect_map(inputs[0])
        return (
            channels,
            None if rows is None else rows * self.rows,
            None if columns is None else columns * self.columns,
        )
