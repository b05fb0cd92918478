"""The distance between two arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array
from porter.verification.results import Distance, farthest

_Doubles = NDArray[np.float64]
FLOAT64_LIMIT = 1e-10
"""Separates a wrong function from rounding: equal functions stay below 1e-13 here, the smallest wrong pad is
above 1e-4.
"""
LEAST_WRONG = 1e-7
"""A distance above it in float64 is no rounding of any network."""
AMPLIFIED = 32.0
"""A port's distance is rounding if it is this many times what one rounding of the inputs makes of the source:
every layer rounds. Measured on an EfficientNet-B3 of random weights, fed noise: 4.
"""
_PART = 1 << 15
"""Numbers that are compared at once: their parts of both sides, in float64, stay in a processor's cache."""


@dataclass(frozen=True)
class Norms:
    """What `rel_l2` and `max_abs` of a Distance are made of. The sum of two is that of both arrays together.

    Attributes:
        difference: the norm of the difference; infinite if only one side is finite, or both are not and
            differ.
        source: the norm of the source's values.
        max_abs: the largest absolute difference.
    """

    difference: float
    source: float
    max_abs: float

    def __add__(self, other: Norms) -> Norms:
        """Return the norms of two parts together: roots of sums of squares, and the larger of the largest."""
        return Norms(
            math.hypot(self.difference, other.difference),
            math.hypot(self.source, other.source),
            max(self.max_abs, other.max_abs),
        )

    def by(self, scale: float) -> Norms:
        """Return these norms, with `source` at least `scale`: beside tiny values, `rel_l2` would be large for
        nothing.
        """
        return replace(self, source=max(self.source, scale))

    @property
    def rel_l2(self) -> float:
        if self.source == 0.0:
            return 0.0 if self.difference == 0.0 else math.inf
        return self.difference / self.source


def moved(values: Array, seed: int = 0) -> Array:
    """Return the values, each moved by chance to the next larger or the next smaller number of its type: as
    one rounding may do.
    """
    up = np.random.default_rng(seed).random(values.shape) < 0.5
    return np.nextafter(values, np.where(up, np.inf, -np.inf).astype(values.dtype))


def distance(source: Array, port: Array, scale: float = 0.0) -> Distance:
    """Return the distance between two arrays of one shape, computed in float64. Non-finite values count as
    infinitely far apart unless both sides hold the same ones.

    Args:
        scale: a norm; the source's values count as no smaller.
    """
    # Two axes are scores of classes by image.
    arrays, scores = _difference(source, port), source.ndim == 2
    if arrays is None:
        return Distance(np.inf, np.inf, np.inf, None, None, False if scores else None)
    wanted, got, difference = arrays
    measured = _norms(wanted, difference).by(scale)
    return Distance(
        max_abs=measured.max_abs,
        l1=float(np.abs(difference).mean()),
        rel_l2=measured.rel_l2,
        snr_db=_decibels(1.0, measured.rel_l2),
        psnr_db=_decibels(float(np.abs(wanted).max()), norm(difference) / math.sqrt(difference.size)),
        argmax_equal=bool(np.array_equal(wanted.argmax(axis=1), got.argmax(axis=1))) if scores else None,
    )


def top_margin(source: Array, port: Array, scale: float = 0.0) -> float:
    """Return how much the port's choice of the top class costs in the source's logits: the largest logit
    minus the one at the port's largest, in the image where that is most, over the norm of all logits, or over
    `scale` if that is larger. It is 0 where the largest are at the same places. Both are N x C and finite.

    Where `rel_l2` is r, it is below 1.5 r.
    """
    wanted, got = np.asarray(source, np.float64), np.asarray(port, np.float64)
    margins = wanted.max(axis=1) - wanted[np.arange(len(wanted)), got.argmax(axis=1)]
    return float(margins.max()) / (max(norm(wanted), scale) or 1.0)


def norms(source: Array, port: Array) -> Norms:
    """Return the norms of two arrays of one shape and of their difference, which is the part of `distance`
    that can be summed. They are infinite where only one side is finite.
    """
    total = Norms(0.0, 0.0, 0.0)
    for part in _parts(port.shape):
        arrays = _difference(source[part], port[part])
        if arrays is None:
            return Norms(math.inf, 0.0, math.inf)
        total += _norms(arrays[0], arrays[2])
    return total


def farthest_draw(source: Array, port: Array) -> Norms:
    """Return the distance in the draw, along the first axis, where it is largest: beside large numbers, small
    ones would not show.

    Args:
        source: as many numbers as the port has, in its order.
    """
    same = source.reshape(port.shape)
    draws = (slice(index, index + 1) for index in range(len(port)))
    return farthest(norms(same[draw], port[draw]) for draw in draws)


def farthest_channel(source: Array, port: Array, least: float) -> Norms:
    """Return the distance in the draw, along the first axis, and the channel, along the second, where it is
    largest: beside large channels, small ones would not show.

    Args:
        source: as many numbers as the port has, in its order.
        least: a channel's norm in the source counts as no smaller than this part of the root mean square of
            all channels' norms.
    """
    same = source.reshape(port.shape)
    return farthest(
        _worst_channel(source_draw, port_draw, least)
        for source_draw, port_draw in zip(same, port, strict=True)
    )


def _worst_channel(source: Array, port: Array, least: float) -> Norms:
    """Return the norms of the channel, along the first axis, that is farthest away. A channel's norm counts
    as no smaller than `least` times the root mean square of all. Where all are 0, or their squares overflow,
    return the norms of the whole; infinite ones where only one side is finite.
    """
    arrays = _difference(source, port)
    if arrays is None:
        return Norms(math.inf, 0.0, math.inf)
    # as channels x numbers
    wanted, _, difference = (array.reshape(len(array) if array.ndim else 1, -1) for array in arrays)
    with np.errstate(over="ignore"):
        sizes, distances = (
            np.sqrt(np.einsum("cn,cn->c", channels, channels)) for channels in (wanted, difference)
        )
        mean = np.sqrt(np.square(sizes).mean())
    if mean == 0 or math.isinf(mean):
        return _norms(wanted, difference)
    sizes = np.maximum(sizes, least * mean)
    worst = int((distances / sizes).argmax())
    return Norms(float(distances[worst]), float(sizes[worst]), float(np.abs(difference[worst]).max()))


def _parts(shape: tuple[int, ...]) -> Iterator[tuple[int | slice, ...]]:
    """Yield the indices of parts of some `_PART` numbers of an array: rows of one image, which lie together
    in memory whether channels are first or last. The whole of a small array is one part.
    """
    if math.prod(shape) <= _PART or len(shape) < 2:
        yield (slice(None),)
        return
    # N x C x H x W, with all channels in each part, or N x rows x ...
    all_channels = (slice(None),) if len(shape) == 4 else ()
    count, rows = shape[0], shape[1 + len(all_channels)]
    numbers_in_row = math.prod(shape) // (count * rows)
    step = max(1, _PART // numbers_in_row)
    for image in range(count):
        for first_row in range(0, rows, step):
            yield (image, *all_channels, slice(first_row, first_row + step))


def _difference(source: Array, port: Array) -> tuple[_Doubles, _Doubles, _Doubles] | None:
    """Return both sides and their difference in float64, with zeros where both hold the same non-finite
    value; None for other non-finite values.
    """
    wanted, got = np.asarray(source, np.float64), np.asarray(port, np.float64)
    with np.errstate(invalid="ignore"):
        difference = wanted - got
    if not np.isfinite(difference.sum()):
        finite = np.isfinite(wanted) & np.isfinite(got)
        if not np.array_equal(wanted[~finite], got[~finite], equal_nan=True):
            return None
        wanted, got, difference = (np.where(finite, values, 0.0) for values in (wanted, got, difference))
    return wanted, got, difference


def _norms(wanted: _Doubles, difference: _Doubles) -> Norms:
    return Norms(norm(difference), norm(wanted), float(max(difference.max(), -difference.min())))


def norm(values: _Doubles) -> float:
    """Return the root of the sum of squares, which may be finite where the squares are not. BLAS is not used:
    its threads wait for each other at every call while other processes have the processors.
    """
    with np.errstate(over="ignore"):
        total = np.square(values).sum()
    # The squares overflow: scaled by the largest number they do not.
    if math.isinf(total) and math.isfinite(largest := float(np.abs(values).max())):
        return largest * math.sqrt(np.square(values / largest).sum())
    return math.sqrt(total)


def _decibels(signal: float, noise: float) -> float | None:
    """Return a ratio of norms in decibels, 20 log10; None where it has none, as for equal values."""
    if noise == 0.0 or signal == 0.0 or not np.isfinite(noise):
        return None
    return float(20 * np.log10(signal / noise))
