"""The axes of maps and of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec

import numpy as np

from porter.base.dtypes import Numbers

P = ParamSpec("P")


def with_channels_first(x: Numbers) -> Numbers:
    """A map N×H×W×C as N×C×H×W; other values as they are."""
    return x.transpose(0, 3, 1, 2) if x.ndim == 4 else x


def with_channels_last(x: Numbers) -> Numbers:
    """The inverse of `with_channels_first`."""
    return x.transpose(0, 2, 3, 1) if x.ndim == 4 else x


def channels_last(
    kernel: Callable[Concatenate[Numbers, P], Numbers],
) -> Callable[Concatenate[Numbers, P], Numbers]:
    """A kernel of one map for maps N×H×W×C."""

    def run(x: Numbers, /, *args: P.args, **kwargs: P.kwargs) -> Numbers:
        return with_channels_last(kernel(with_channels_first(x), *args, **kwargs))

    return run


def ordered(kernel: Numbers, axes: str, wanted: str = "OIHW") -> Numbers:
    """A kernel whose axes have the letters `axes` with its axes as `wanted`: HWIO as OIHW."""
    return kernel.transpose([axes.index(letter) for letter in wanted])


def flatten(x: Numbers, order: str = "CHW") -> Numbers:
    """A map N×C×H×W as N×F, its numbers in an order of its axes."""
    return ordered(x, "NCHW", f"N{order}").reshape(len(x), -1)


def resize_nearest(x: Numbers, factors: Sequence[float]) -> Numbers:
    """Every axis that many times as long: the cell whose place is the whole part of a cell's own divided by
    the factor.
    """
    for axis, factor in enumerate(factors):
        places = np.floor(np.arange(int(x.shape[axis] * factor)) / factor).astype(int)
        x = np.take(x, np.minimum(places, x.shape[axis] - 1), axis)
    return x


def pad(x: Numbers, widths: Sequence[tuple[int, int]], mode: Any = "constant", value: float = 0.0) -> Numbers:
    """Cells before and after each axis; a width below zero cuts cells off, before others are added."""
    cut = x[tuple(slice(max(-a, 0), size - max(-b, 0)) for (a, b), size in zip(widths, x.shape, strict=True))]
    around = [(max(a, 0), max(b, 0)) for a, b in widths]
    if mode == "constant":
        return np.pad(cut, around, constant_values=value)
    padded: Numbers = np.pad(cut, around, mode)
    return padded
