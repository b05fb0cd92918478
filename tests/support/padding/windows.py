"""What every padding convention means, written down cell by cell and without porter's arithmetic: the judge
of all padding tests.

Along one axis, a window is the list of the cells that it reads. Cell 0 is the first of the input; what is
below it or past the input's last is a pad, or, past the pads, nothing at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from porter.padding import Convention, Window
from tests.support.arrays import Array

LONGEST = 4096


@dataclass(frozen=True)
class Layout:
    """The windows along one axis, and the first cell and the end of the padded input."""

    windows: tuple[tuple[int, ...], ...]
    low: int
    high: int


@cache
def lay(
    rule: str,
    kernel: int,
    stride: int,
    dilation: int,
    size: int,
    pads: tuple[int, int] = (0, 0),
    rounding: str = "floor",
) -> Layout:
    """Lays the windows of a convention over an input of `size` cells."""
    reach = (kernel - 1) * dilation

    def window(first: int) -> tuple[int, ...]:
        return tuple(range(first, first + reach + 1, dilation))

    if rule in ("same", "same_lower", "cntk"):
        # As many windows as strides begin in the input: TensorFlow's and CNTK's count.
        count = len(range(0, size, stride))
        if rule == "cntk":
            first = -(reach // 2)
            centred = tuple(window(first + index * stride) for index in range(count))
            return Layout(centred, min(first, 0), max(size, centred[-1][-1] + 1))
        # The fewest pads with which they all fit, shared out by halves, the odd one at the end (SAME) or
        # first (SAME_LOWER).
        total = 0
        while (count - 1) * stride + reach >= size + total:
            total += 1
        half = total // 2
        before, after = (half, total - half) if rule == "same" else (total - half, half)
        return Layout(tuple(window(index * stride - before) for index in range(count)), -before, size + after)

    low, high = -pads[0], size + pads[1]
    windows: list[tuple[int, ...]] = []
    for first in range(low, LONGEST, stride):
        fits = first + reach < high
        # With rounding up, a window exists if the one a stride before it left cells at the end unread.
        needed = rounding != "floor" and first - stride + reach < high - 1
        if not (fits or needed):
            break
        windows.append(window(first))
    if rounding == "ceil" and windows and windows[-1][0] >= size:
        windows.pop()
    return Layout(tuple(windows), low, high)


def evaluate(
    kind: str, taps: Array, real: Array, counted: Array, fill: Array | float, weights: Array
) -> Array:
    """The value of each window. All arrays end in the axis of a window's cells.

    Args:
        taps: the cells' values, anything where they are not `real`.
        real: which cells are input.
        counted: which cells an average counts.
        fill: what cells that are not real hold in a max pool.
        weights: of a convolution.
    """
    if kind == "max_pool":
        return np.where(real, taps, fill).max(-1)
    zero_padded = np.where(real, taps, 0.0)
    return (zero_padded * weights).sum(-1) if kind == "conv" else zero_padded.sum(-1) / counted.sum(-1)


def counted_cells(
    average: str, cells: Array, size: Array | int, low: Array | int, high: Array | int
) -> Array:
    """Which of `cells` an average counts: those of the input, of the padded input, or all."""
    if average == "full_window":
        return np.ones(cells.shape, bool)
    return (cells >= 0) & (cells < size) if average == "real_cells" else (cells >= low) & (cells < high)


def evaluate_map(
    kind: str,
    rows: Layout,
    columns: Layout,
    maps: Array,
    fill: float = 0.0,
    average: str = "real_cells",
    kernel: Array | None = None,
) -> Array:
    """A windowed layer over `maps` (channels × rows × columns).

    A convolution's `kernel` is filters × channels × rows × columns, or filters × 1 × rows × columns, a filter
    for each channel.
    """
    down, along = (np.array(layout.windows) for layout in (rows, columns))
    height, width = maps.shape[1:]
    shape = (len(down), len(along), -1)

    def over_both(of_rows: Array, of_columns: Array) -> Array:
        return (of_rows[:, None, :, None] & of_columns[None, :, None, :]).reshape(shape)

    picked = maps[:, down.clip(0, height - 1)[:, None, :, None], along.clip(0, width - 1)[None, :, None, :]]
    taps = picked.reshape(len(maps), *shape)
    real = over_both((down >= 0) & (down < height), (along >= 0) & (along < width))
    counted = over_both(
        counted_cells(average, down, height, rows.low, rows.high),
        counted_cells(average, along, width, columns.low, columns.high),
    )
    if kernel is None:
        return evaluate(kind, taps, real, counted, fill, np.ones(1))
    weights = kernel.reshape(*kernel.shape[:2], 1, 1, -1)
    if kernel.shape[1] == 1:
        return evaluate(kind, taps, real, counted, fill, weights[:, 0])
    return evaluate(kind, taps[None], real, counted, fill, weights).sum(1)


def divisors(convention: Convention, window: Window, axis: int, size: int) -> Array:
    """How many cells the average of each window along an axis divides by."""
    pads = (convention.pads[2 * axis], convention.pads[2 * axis + 1])
    laid = lay(
        convention.rule,
        window.kernel[axis],
        window.stride[axis],
        window.dilation[axis],
        size,
        pads,
        convention.rounding,
    )
    return counted_cells(convention.average, np.array(laid.windows), size, laid.low, laid.high).sum(axis=1)
