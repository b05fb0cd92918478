"""Convolutions and pools."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from porter.base.dtypes import Numbers
from porter.filegraph.kernels.layouts import pad

Sides = tuple[int, int]
"""Rows and columns."""


@dataclass(frozen=True)
class Grid:
    """How windows stand on a map.

    Attributes:
        pads: cells at the top, the bottom, the left and the right.
        rounding: the number of windows. `ceil` adds one where cells are left over, unless it would begin in
            the pads behind; `full` adds it wherever it begins.
    """

    stride: Sides = (1, 1)
    dilation: Sides = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    rounding: Literal["floor", "ceil", "full"] = "floor"

    def cells(
        self, x: Numbers, kernel: Sides, pad_value: float = 0.0, beyond: float = 0.0
    ) -> Iterator[Numbers]:
        """Yield, for each cell of a kernel, by row, what all windows have there: N×C×rows×columns.

        Args:
            pad_value: of the cells of pads.
            beyond: of the cells that a window reaches behind them.

        Raises:
            ValueError: no window fits.
        """
        spans = []
        beyond_pads = []
        for axis, size in enumerate(x.shape[2:]):
            before, after = self.pads[2 * axis : 2 * axis + 2]
            extent = (kernel[axis] - 1) * self.dilation[axis] + 1
            stride = self.stride[axis]
            room = size + before + after - extent
            count = (room // stride if self.rounding == "floor" else -(-room // stride)) + 1
            # the added window would begin in the pads behind
            if self.rounding == "ceil" and (count - 1) * stride >= size + before:
                count -= 1
            if count < 1:
                raise ValueError("a window is larger than the map and its pads")
            spans.append((count - 1) * stride + 1)
            beyond_pads.append((0, max(0, (count - 1) * stride - room)))
        top, bottom, first, last = self.pads
        padded = pad(x, [(0, 0), (0, 0), (top, bottom), (first, last)], value=pad_value)
        padded = pad(padded, [(0, 0), (0, 0), *beyond_pads], value=beyond)
        for row, column in np.ndindex(*kernel):
            down, across = row * self.dilation[0], column * self.dilation[1]
            yield padded[
                :, :, down : down + spans[0] : self.stride[0], across : across + spans[1] : self.stride[1]
            ]

    def with_more(self, rows: int, columns: int) -> Grid:
        """Return the grid of a transposed convolution that gives more rows and columns, which no kernel
        reaches.
        """
        top, bottom, left, right = self.pads
        return replace(self, pads=(top, bottom - rows, left, right - columns))


def same_pads(size: int, extent: int, stride: int, lower: bool = False) -> Sides:
    """Return the cells before and after an axis for as many windows as strides begin in it; the odd one is
    behind, or before if `lower`.

    Args:
        size: cells of the axis.
        extent: cells from a window's first to its last.
    """
    total = max(0, (-(-size // stride) - 1) * stride + extent - size)
    less, more = total // 2, total - total // 2
    return (more, less) if lower else (less, more)


def conv(
    x: Numbers, kernel: Numbers, bias: Numbers | None = None, grid: Grid = Grid(), groups: int = 1
) -> Numbers:
    """Convolve with a kernel O×I×H×W, in which I are the channels of a group."""
    filters, width, *sides = kernel.shape
    weights = kernel.reshape(groups, filters // groups, width, -1)
    images = len(x)
    total = None
    for index, cells in enumerate(grid.cells(x, (sides[0], sides[1]))):
        part = weights[..., index] @ cells.reshape(images, groups, width, -1)
        total = part if total is None else total + part
        shape = (images, filters, *cells.shape[2:])
    assert total is not None, "a kernel has a cell"
    return _add_bias(total.reshape(shape), bias)


def conv_transpose(
    x: Numbers,
    kernel: Numbers,
    bias: Numbers | None = None,
    grid: Grid = Grid(),
    groups: int = 1,
) -> Numbers:
    """Compute a transposed convolution with a kernel I×O×H×W, in which O are the filters of a group: every
    cell adds its value times the kernel, a stride apart. The grid's pads are cut off; behind, they may be
    below 0 for cells that no kernel reaches.
    """
    (images, channels, *counts), (_, width, *sides) = x.shape, kernel.shape
    top, bottom, first, last = grid.pads
    spans = [
        (n - 1) * grid.stride[axis] + (sides[axis] - 1) * grid.dilation[axis] + 1 - min(behind, 0)
        for axis, (n, behind) in enumerate(zip(counts, (bottom, last), strict=True))
    ]
    total = np.zeros((images, groups * width, *spans), x.dtype)
    parts = x.reshape(images, groups, channels // groups, -1)
    weights = kernel.reshape(groups, channels // groups, width, *sides)
    for row, column in np.ndindex(*sides):
        down, across = row * grid.dilation[0], column * grid.dilation[1]
        places = (
            slice(down, down + (counts[0] - 1) * grid.stride[0] + 1, grid.stride[0]),
            slice(across, across + (counts[1] - 1) * grid.stride[1] + 1, grid.stride[1]),
        )
        part = weights[..., row, column].swapaxes(1, 2) @ parts
        total[:, :, *places] += part.reshape(images, groups * width, *counts)
    return _add_bias(total[:, :, top : spans[0] - max(bottom, 0), first : spans[1] - max(last, 0)], bias)


def _add_bias(x: Numbers, bias: Numbers | None) -> Numbers:
    return x if bias is None else x + bias.reshape(-1, 1, 1)


def max_pool(x: Numbers, kernel: Sides, grid: Grid = Grid(), fill: float = -math.inf) -> Numbers:
    """Take the largest number of each window. `fill` stands in the pads; cells that a window reaches behind
    these take no part.
    """
    largest = None
    for cells in grid.cells(x, kernel, fill, -math.inf):
        largest = cells if largest is None else np.maximum(largest, cells)
    assert largest is not None, "a kernel has a cell"
    return largest


def average_pool(
    x: Numbers,
    kernel: Sides,
    grid: Grid = Grid(),
    divisor: Literal["real_cells", "clipped_window", "full_window"] = "real_cells",
) -> Numbers:
    """Divide the sum of each window by the number of its cells: of those in the map, of those in the map and
    its pads, or of all.
    """
    total = sum(grid.cells(x, kernel), np.zeros(1, x.dtype))
    if divisor == "full_window":
        return total / math.prod(kernel)
    ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
    return total / sum(grid.cells(ones, kernel, float(divisor == "clipped_window")), np.zeros(1, x.dtype))
