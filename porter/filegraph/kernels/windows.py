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
        spans = []  # cells from the first window's begin to the last one's
        beyond_pads = []
        for axis, size in enumerate(x.shape[2:]):
            before, after = self.pads[2 * axis : 2 * axis + 2]
            extent = (kernel[axis] - 1) * self.dilation[axis] + 1
            stride = self.stride[axis]
            room = size + before + after - extent
            steps = room // stride if self.rounding == "floor" else -(-room // stride)
            # the added window would begin in the pads behind
            if self.rounding == "ceil" and steps * stride >= size + before:
                steps -= 1
            if steps < 0:
                raise ValueError("a window is larger than the map and its pads")
            spans.append(steps * stride + 1)
            beyond_pads.append((0, max(0, steps * stride - room)))
        top, bottom, left, right = self.pads
        padded = pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)], value=pad_value)
        padded = pad(padded, [(0, 0), (0, 0), *beyond_pads], value=beyond)
        for row, column in np.ndindex(*kernel):
            first_row, first_column = row * self.dilation[0], column * self.dilation[1]
            rows = slice(first_row, first_row + spans[0], self.stride[0])
            columns = slice(first_column, first_column + spans[1], self.stride[1])
            yield padded[:, :, rows, columns]

    def with_more(self, rows: int, columns: int) -> Grid:
        """Return the grid for a transposed convolution that gives so many rows and columns more at the bottom
        and the right, which no kernel reaches.
        """
        top, bottom, left, right = self.pads
        return replace(self, pads=(top, bottom - rows, left, right - columns))


def same_pads(size: int, extent: int, stride: int, lower: bool = False) -> Sides:
    """Return the pads of SAME before and after an axis, which make as many windows as strides begin in it.
    The odd cell is behind, or before if `lower`.

    Args:
        size: cells of the axis.
        extent: cells from a window's first to its last.
    """
    windows = -(-size // stride)  # rounded up
    total = max(0, (windows - 1) * stride + extent - size)
    half = total // 2
    return (total - half, half) if lower else (half, total - half)


def conv(
    x: Numbers, kernel: Numbers, bias: Numbers | None = None, grid: Grid = Grid(), groups: int = 1
) -> Numbers:
    """Convolve with a kernel O×I×H×W, in which I are the channels of a group."""
    filters, channels, *kernel_sides = kernel.shape
    weights = kernel.reshape(groups, filters // groups, channels, -1)
    images = len(x)
    total = None
    # the sum, over the cells of the kernel, of a matrix product of its numbers there
    for index, cells in enumerate(grid.cells(x, (kernel_sides[0], kernel_sides[1]))):
        part = weights[..., index] @ cells.reshape(images, groups, channels, -1)
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
    images, channels, *counts = x.shape
    _, filters, *kernel_sides = kernel.shape  # filters of a group
    top, bottom, left, right = grid.pads
    sizes = []  # rows and columns of the result, before the pads are cut off
    for axis, (count, behind) in enumerate(zip(counts, (bottom, right), strict=True)):
        extent = (kernel_sides[axis] - 1) * grid.dilation[axis] + 1
        unreached = -min(behind, 0)
        sizes.append((count - 1) * grid.stride[axis] + extent + unreached)
    total = np.zeros((images, groups * filters, *sizes), x.dtype)
    values = x.reshape(images, groups, channels // groups, -1)
    weights = kernel.reshape(groups, channels // groups, filters, *kernel_sides)
    for row, column in np.ndindex(*kernel_sides):
        first_row, first_column = row * grid.dilation[0], column * grid.dilation[1]
        rows = slice(first_row, first_row + (counts[0] - 1) * grid.stride[0] + 1, grid.stride[0])
        columns = slice(first_column, first_column + (counts[1] - 1) * grid.stride[1] + 1, grid.stride[1])
        part = weights[..., row, column].swapaxes(1, 2) @ values
        total[:, :, rows, columns] += part.reshape(images, groups * filters, *counts)
    end_row, end_column = sizes[0] - max(bottom, 0), sizes[1] - max(right, 0)
    return _add_bias(total[:, :, top:end_row, left:end_column], bias)


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
    """Divide the sum of each window by the number of its cells: of those in the map (`real_cells`), of those
    in the map and its pads (`clipped_window`), or of all.
    """
    total = sum(grid.cells(x, kernel), np.zeros(1, x.dtype))
    if divisor == "full_window":
        return total / math.prod(kernel)
    # the sum over ones, and over pads of one where these count
    ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
    pad_value = 1.0 if divisor == "clipped_window" else 0.0
    return total / sum(grid.cells(ones, kernel, pad_value), np.zeros(1, x.dtype))
