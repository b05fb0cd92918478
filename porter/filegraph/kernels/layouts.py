"""The axes of maps and of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec

import numpy as np

from porter.base.dtypes import Numbers

P = ParamSpec("P")


def with_channels_first(x: Numbers) -> Numbers:
    """Return a map N×H×W×C as N×C×H×W; other values as they are."""
    return x.transpose(0, 3, 1, 2) if x.ndim == 4 else x


def with_channels_last(x: Numbers) -> Numbers:
    """Return a map N×C×H×W as N×H×W×C; other values as they are."""
    return x.transpose(0, 2, 3, 1) if x.ndim == 4 else x


def channels_last(
    kernel: Callable[Concatenate[Numbers, P], Numbers],
) -> Callable[Concatenate[Numbers, P], Numbers]:
    """Make a kernel for maps N×H×W×C from one for maps N×C×H×W."""

    def run(x: Numbers, /, *args: P.args, **kwargs: P.kwargs) -> Numbers:
        return with_channels_last(kernel(with_channels_first(x), *args, **kwargs))

    return run


def reorder_axes(kernel: Numbers, axes: str, wanted: str = "OIHW") -> Numbers:
    """Transpose a kernel whose axes have the letters `axes` to the order `wanted`: HWIO to OIHW."""
    return kernel.transpose([axes.index(letter) for letter in wanted])


def flatten(x: Numbers, order: str = "CHW") -> Numbers:
    """Return a map N×C×H×W as N×F, with its numbers in the order of these axes."""
    return reorder_axes(x, "NCHW", f"N{order}").reshape(len(x), -1)


def space_to_depth(x: Numbers, side: int) -> Numbers:
    """Make channels of the cells of blocks, those of a block's first row first. A map C×4×6 by blocks of 2×2
    becomes 4C×2×3.
    """
    images, channels, rows, columns = x.shape
    blocks = x.reshape(images, channels, rows // side, side, columns // side, side)
    return blocks.transpose(0, 3, 5, 1, 2, 4).reshape(images, -1, rows // side, columns // side)


def depth_to_space(x: Numbers, side: int) -> Numbers:
    """Make the cells of blocks of parts of the channels, the first ones the block's first row. A map 4C×2×3
    by blocks of 2×2 becomes C×4×6.
    """
    images, channels, rows, columns = x.shape
    blocks = x.reshape(images, side, side, channels // side**2, rows, columns)
    return blocks.transpose(0, 3, 4, 1, 5, 2).reshape(images, -1, rows * side, columns * side)


def resize_nearest(x: Numbers, factors: Sequence[float]) -> Numbers:
    """Make every axis `factors` times as long. A cell takes the number of the one at its own place divided by
    the factor, rounded down.
    """
    resized = x
    for axis, factor in enumerate(factors):
        old_size = x.shape[axis]
        new_size = int(old_size * factor)
        places = np.floor(np.arange(new_size) / factor).astype(int)
        resized = np.take(resized, np.minimum(places, old_size - 1), axis)
    return resized


def pad(x: Numbers, widths: Sequence[tuple[int, int]], mode: Any = "constant", value: float = 0.0) -> Numbers:
    """Add cells before and after each axis; a width below zero cuts cells off, before others are added.

    Args:
        widths: for each axis, the cells before and after.
        mode: numpy's mode of a pad.
        value: of the added cells, if the mode is `constant`.
    """
    kept_parts = [
        slice(max(-before, 0), size - max(-after, 0))
        for (before, after), size in zip(widths, x.shape, strict=True)
    ]
    cut = x[tuple(kept_parts)]
    added = [(max(before, 0), max(after, 0)) for before, after in widths]
    if mode == "constant":
        return np.pad(cut, added, constant_values=value)
    padded: Numbers = np.pad(cut, added, mode)
    return padded
