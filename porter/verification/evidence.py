"""What the values of a reference tell: values that are the same for every input would be equal in a wrong
port too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array
from porter.graph import Clip, Graph, HardSigmoid, Relu, Relu6, Sigmoid, Softmax, Tanh
from porter.verification.numbers import norm
from porter.verification.results import ALIKE, NOT_FINITE

_Doubles = NDArray[np.float64]
LEAST = 1e-6
"""The least variation that tells. Against the limit in float64, 1e-10 of all, a change of 1e-4 in what varies
is then found.
"""
_SAMPLED = 4096
"""Numbers of one value that its variation is measured on."""
_SATURATED = 1 << 16
"""Numbers of an output that are looked at to see whether it is saturated."""
_SQUASHING = (Softmax, Sigmoid, HardSigmoid, Tanh, Relu, Relu6, Clip)
"""Activations that give one number for many, so that only what comes before them tells."""


@dataclass
class Samples:
    """Numbers of one value, of each batch: N x C x cells."""

    batches: list[Array] = field(default_factory=list)

    def add(self, value: Array) -> None:
        """Add the numbers of a value N x C x H x W or N x F, or so many of its cells that a channel has at
        least two and all channels some `_SAMPLED` numbers.
        """
        channels = value.reshape(len(value), value.shape[1] if value.ndim > 1 else 1, -1)
        count, cells = channels.shape[1:]
        sampled = min(cells, max(2, _SAMPLED // count))
        if sampled < cells:
            channels = np.take_along_axis(channels, _scattered_cells(count, cells, sampled)[None], 2)
        self.batches.append(channels.astype(np.float64))

    @property
    def variation(self) -> float:
        """The norm of what differs between cells and between images, over the norm of all: 0 for values that
        are the same everywhere, or zero, or not finite.
        """
        channels = np.concatenate(self.batches).swapaxes(0, 1)
        return variation(channels.reshape(len(channels), -1))


@lru_cache(64)
def _scattered_cells(rows: int, cells: int, count: int) -> NDArray[np.intp]:
    """Return for each row the indices of `count` of its cells: rows x count.

    Each part of a row gives one by chance, so that what repeats itself is met everywhere: between the cells
    of a transposed convolution may lie others that hold the bias only.
    """
    # the ends of `count` parts of a row that are as long as whole cells allow
    ends = np.arange(count + 1) * cells // count
    places: NDArray[np.intp] = np.random.default_rng((rows, cells)).integers(
        ends[:-1], ends[1:], (rows, count)
    )
    return places


def variation(channels: Array) -> float:
    """Return how much C x numbers vary within their channels, from 0 to 1: the norm of what differs from the
    means of the channels over the norm of all. It is 0 where all finite channels are 0.
    """
    channels = channels[np.isfinite(channels).all(axis=1)]
    largest = float(np.abs(channels).max(initial=0.0))
    if largest == 0.0:
        return 0.0
    scaled = np.asarray(channels, np.float64) / largest  # the squares of an exponential may be infinite
    return norm(scaled - scaled.mean(axis=1, keepdims=True)) / norm(scaled)


def excitement(values: Iterable[Array], images: int) -> list[float]:
    """Return how much of a network each image excites, from 0 to 1.

    It is the mean over the values of how much each channel varies between cells, times the share of its cells
    that are neither at its least nor at its largest number, as they are where it is saturated or clipped.

    Args:
        values: of these images; where there are maps of several cells, only these count.
    """
    maps, others = list[_Doubles](), list[_Doubles]()
    with np.errstate(all="ignore"):
        for value in values:
            if len(value) != images:  # of no single image
                continue
            if value.ndim == 4 and value[0, 0].size > 1:
                maps.append(_excitement_of(value))
            elif not maps:
                others.append(_excitement_of(value.reshape(images, 1, -1)))
    means: list[float] = np.stack(maps or others or [np.zeros(images)]).mean(axis=0).tolist()
    return means


def _excitement_of(value: Array) -> _Doubles:
    """Return what `excitement` gives for one value, N x ...: for each image, the mean over the channels of
    their spread times the share of their cells that are at neither end of the channel's numbers; 0 for an
    image with non-finite numbers.
    """
    samples = Samples()
    samples.add(value)
    (channels,) = samples.batches
    low, high = channels.min(axis=2, keepdims=True), channels.max(axis=2, keepdims=True)
    # Numbers within a thousandth of an end count as at the end.
    edge = 1e-3 * (high - low)
    inner = ((channels > low + edge) & (channels < high - edge)).mean(axis=2)
    scale = np.sqrt(np.square(channels).mean(axis=2))
    spread = np.divide(channels.std(axis=2), scale, out=np.zeros_like(scale), where=scale > 0)
    return np.where(np.isfinite(channels).all(axis=(1, 2)), (spread * inner).mean(axis=1), 0.0)


def tells_nothing_because(
    graph: Graph, path: str, variations: Mapping[str, float], values: Array
) -> str | None:
    """Return why an output of a reference tells nothing, in words; None if it tells.

    Before a final activation its input tells, where the reference shows it: on inputs that saturate a
    softmax, any two networks give the same zeros and ones.

    Args:
        variations: the variation of each value that the reference shows, by path.
        values: of the output, N x ...
    """
    if not np.isfinite(values).all():
        return NOT_FINITE
    node = graph.by_path[path]
    while isinstance(node.op, _SQUASHING) and node.source in variations:
        if variations[node.source] >= LEAST:
            return None
        node = graph.by_path[node.source]
    if variations[path] < LEAST:
        return ALIKE
    return "is saturated: it has two numbers only" if _is_saturated(values) else None


def _is_saturated(values: Array) -> bool:
    """Return whether an output has two numbers only, as a one-hot softmax has, and the logarithms of one that
    are cut off below.
    """
    looked_at = _scattered_cells(1, values.size, min(values.size, _SATURATED))[0]
    numbers = values.ravel()[looked_at]
    if numbers.size <= 4:  # so few may be two numbers by chance
        return False
    # Numbers that differ by rounding count as one.
    return np.unique(np.round(numbers / np.abs(numbers).max(), 9)).size <= 2


def unexcited(paths: Sequence[str], known: Mapping[str, float]) -> tuple[str, ...]:
    """Return the paths whose known variation says that they are the same for every input."""
    return tuple(path for path in paths if path in known and known[path] < LEAST)
