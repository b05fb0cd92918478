"""Windows over a map: convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from porter.base.errors import GraphError
from porter.graph.ops.kinds import Amounts, Count, Flag, Geometry, Padding
from porter.graph.ops.op import LARGER, KeepsSign, Op, Shape, TensorShapes, bias_shape, expect_map, shape_text
from porter.padding import LOWEST, Site, SiteKind, Window, output_size


@dataclass(frozen=True)
class Conv(Op, name="conv"):
    """A convolution; it is depthwise if `groups` equals its input's channels."""

    is_linear = True

    filters: Count
    window: Geometry
    convention: Padding
    groups: Count = 1
    bias: Flag = False

    def shape(self, *inputs: Shape) -> Shape:
        expect_groups(self.filters, self.groups, inputs[0])
        return (self.filters, *_output_size(self.site, inputs[0]))

    def tensors(self, channels: int) -> TensorShapes:
        kernel = (self.filters, channels // self.groups, *self.window.kernel)
        return {"kernel": kernel, **bias_shape(self.bias, self.filters)}

    @property
    def site(self) -> Site:
        return Site("conv", self.window, self.convention)

    @property
    def words(self) -> str:
        return _conv_words("conv", self.filters, self.window, self.groups)


@dataclass(frozen=True)
class ConvTranspose(Op, name="conv_transpose"):
    """A transposed convolution: every input cell adds its value times the kernel to the output, `stride`
    cells apart.

    `cut` is taken from the (size - 1) * stride + extent rows and columns of the sum: top, bottom, left,
    right. A negative number adds cells that only the bias reaches.
    """

    is_linear = True

    filters: Count
    window: Geometry
    cut: Amounts = (0, 0, 0, 0)
    groups: Count = 1
    bias: Flag = False

    def shape(self, *inputs: Shape) -> Shape:
        expect_groups(self.filters, self.groups, inputs[0])
        _, rows, columns = expect_map(inputs[0])
        top, bottom, left, right = self.cut
        sizes: list[int | None] = []
        for axis, (size, cuts) in enumerate(
            zip((rows, columns), ((top, bottom), (left, right)), strict=True)
        ):
            extent = self.window.extent(axis)
            if size is None:
                sizes.append(None)
                continue
            uncut_size = (size - 1) * self.window.stride[axis] + extent
            cut_off = sum(max(cells, 0) for cells in cuts)
            if extent <= cut_off and uncut_size <= cut_off:
                raise GraphError(f"nothing is left of {shape_text(inputs[0])} after the cut", next=LARGER)
            sizes.append(uncut_size - sum(cuts))
        return (self.filters, *sizes)

    def tensors(self, channels: int) -> TensorShapes:
        kernel = (channels, self.filters // self.groups, *self.window.kernel)
        return {"kernel": kernel, **bias_shape(self.bias, self.filters)}

    @property
    def words(self) -> str:
        return _conv_words("transposed conv", self.filters, self.window, self.groups)


@dataclass(frozen=True)
class Pool(Op):
    """A number for each window of a map."""

    window: Geometry
    convention: Padding

    kind: ClassVar[SiteKind]

    def shape(self, *inputs: Shape) -> Shape:
        return (inputs[0][0], *_output_size(self.site, inputs[0]))

    @property
    def site(self) -> Site:
        return Site(self.kind, self.window, self.convention)

    @property
    def words(self) -> str:
        rows, columns = self.window.kernel
        return f"a {rows}x{columns} {'max' if self.kind == 'max_pool' else 'average'} pool"


class MaxPool(Pool, name="max_pool"):
    """The largest value in each window."""

    kind = "max_pool"

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        """Return whether the pool's values are >= 0. A window may lie in the pads and give their fill."""
        return all(inputs) and (self.convention.fill >= 0 or self.convention.fill == LOWEST)


class AvgPool(Pool, KeepsSign, name="avg_pool"):
    """The mean of each window."""

    is_linear = True

    kind = "avg_pool"


@dataclass(frozen=True)
class GlobalPool(KeepsSign):
    """A number for each channel of a map, over rows and columns."""

    keep: Flag = False

    def shape(self, *inputs: Shape) -> Shape:
        channels, _, _ = expect_map(inputs[0])
        return (channels, 1, 1) if self.keep else (channels,)


class GlobalAvgPool(GlobalPool, name="global_avg_pool"):
    """The mean over rows and columns: C×H×W to C, or to C×1×1 with `keep`."""

    is_linear = True


class GlobalMaxPool(GlobalPool, name="global_max_pool"):
    """The largest value over rows and columns: C×H×W to C, or to C×1×1 with `keep`."""


@dataclass(frozen=True)
class AdaptivePool(Op):
    """A number for each of so many windows of rows and of columns, which lie evenly over a map. Where they do
    not divide it they overlap, and may differ by a cell.
    """

    rows: Count
    columns: Count
    function: ClassVar[str]

    def shape(self, *inputs: Shape) -> Shape:
        return expect_map(inputs[0])[0], self.rows, self.columns

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    @property
    def words(self) -> str:
        return f"an adaptive pool to {self.rows}x{self.columns}"


class AdaptiveAvgPool(AdaptivePool, name="adaptive_avg_pool"):
    """The mean of each of `rows` x `columns` windows that lie evenly over a map: window i of m over n cells
    has those from floor(i * n / m) up to ceil((i + 1) * n / m).
    """

    is_linear = True

    function = "mean"


class AdaptiveMaxPool(AdaptivePool, name="adaptive_max_pool"):
    """The largest value in each of `rows` x `columns` windows, which lie as those of `adaptive_avg_pool`."""

    function = "max"


def expect_groups(filters: int, groups: int, shape: Shape) -> None:
    """Refuse groups that do not divide a convolution's channels and filters.

    Raises:
        GraphError: they do not, or the input is not a map.
    """
    channels = expect_map(shape)[0] or 0
    counts = {"channels": channels, "filters": filters}
    wrong = [f"{count} {what}" for what, count in counts.items() if groups < 1 or count % groups]
    if wrong:
        raise GraphError(
            f"{groups} groups do not divide {' and '.join(wrong)}",
            next="the groups of a convolution divide its channels and its filters",
        )


def _output_size(site: Site, shape: Shape) -> tuple[int | None, int | None]:
    """Return the rows and columns of the windows over an input of `shape`."""
    _, rows, columns = expect_map(shape)
    size = output_size(site.convention, site.window, (rows, columns))
    if 0 in size:
        kernel = "{}x{}".format(*site.window.kernel)
        raise GraphError(f"no {kernel} window fits into {shape_text(shape)}", next=LARGER)
    return size


def _conv_words(kind: str, filters: int, window: Window, groups: int) -> str:
    """Write a convolution for messages."""
    rows, columns = window.kernel
    return f"a {rows}x{columns} {kind} of {filters} filters" + (f" in {groups} groups" if groups > 1 else "")
