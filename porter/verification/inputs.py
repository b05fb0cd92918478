"""Images for comparing models: random, the same on every machine, and as smooth and as rough as photos."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from porter.data.preprocess import Preprocess
from porter.graph import INPUT, Affine, Graph
from porter.padding import KnownSize

OCTAVES = 6
_BRIGHTEST, _COLOURS = 255.0, 3
"""What photos have: a pixel's largest number, and its numbers."""

Images = NDArray[np.float64]


@dataclass(frozen=True)
class InputRange:
    """The numbers that a network is fed in a comparison.

    Attributes:
        words: for the record: `pixels from 0 to 255`.
        of: gives them for images of 0 to 1, N x C x H x W.
    """

    words: str
    of: Callable[[Images], Images]


SIGNED = InputRange("-1 to 1", lambda unit: 2 * unit - 1)
PIXELS = InputRange("0 to 255", lambda unit: _BRIGHTEST * unit)
UNIT = InputRange("0 to 1", lambda unit: unit)
NORMAL = InputRange(
    "a mean of 0 and a deviation of 1", lambda unit: (unit - unit.mean()) / (unit.std() or 1.0)
)
FALLBACKS = (SIGNED, PIXELS, UNIT, NORMAL)
"""What a network may take that says nothing of it, likeliest first."""


@dataclass(frozen=True)
class Roughness:
    """How rough an image is.

    Attributes:
        share: the part of its rows and columns that has hard edges and noise.
        contrast: how many times as far as in the network's range its numbers are from their mean. Bounds that
            few images of the range reach, such as a ReLU6's 6 in a narrow layer, are reached by most images
            of three times its contrast.
    """

    share: float
    contrast: float


ROUGHNESS = tuple(
    Roughness(share, contrast) for share, contrast in ((1.0, 3.0), (1.0, 1.0), (0.25, 1.0), (0.0, 1.0))
)
"""What to compare on, the one that tells most first; the next where the source is chaotic on it, or not
finite.
"""
SMOOTH = ROUGHNESS[-1]


def stated_range(graph: Graph, protocol: Preprocess | None) -> InputRange | None:
    """Return the range that a network says it takes; None if it says nothing.

    It is its protocol's if it takes photos, otherwise the one of `FALLBACKS` that the scaling at its
    beginning (a Rescaling, a Normalization) takes closest to a span of two, as from -1 to 1. Data of another
    kind, such as of 16 bits, is what that scaling brings to a mean of 0 and a deviation of 1.
    """
    if protocol is not None and graph.channels == _COLOURS:
        return _range_of(protocol)
    scale, offset = _scaling(graph)
    if scale is None:
        return None
    gain = float(np.abs(scale).mean())
    spans = {PIXELS: _BRIGHTEST, UNIT: 1.0, SIGNED: 2.0}
    # what the scaling makes of a range's span, in parts of a span of two
    scaled = {known: span * gain / 2 for known, span in spans.items()}
    nearest = min(spans, key=lambda known: abs(np.log(scaled[known])))
    # farther from a span of two, the scaling is for data of another kind
    if 1 / 8 <= scaled[nearest] <= 8:
        return nearest
    return InputRange("what its own scaling takes", lambda unit: (NORMAL.of(unit) - offset) / scale)


def _scaling(graph: Graph) -> tuple[Images | None, Images]:
    """Return what the scalings at a graph's beginning do together, as a product and an offset: an input x
    becomes product * x + offset. Each is one number, or C x 1 x 1. The product is None where the graph begins
    with no scaling, or with one by zero.
    """
    scale = np.ones((1, 1, 1))
    offset = np.zeros((1, 1, 1))
    path = INPUT
    while True:
        readers = [node for node in graph.nodes if path in node.inputs]
        if len(readers) != 1 or not isinstance(op := readers[0].op, Affine):
            states_nothing = path == INPUT or not np.all(scale)
            return (None if states_nothing else scale), offset
        gain, added = (np.asarray(numbers, np.float64).reshape(-1, 1, 1) for numbers in (op.scale, op.offset))
        scale, offset = scale * gain, offset * gain + added
        path = readers[0].path


def ranges(
    graph: Graph, protocol: Preprocess | None, excites: Callable[[Sequence[InputRange]], Sequence[float]]
) -> Iterator[InputRange]:
    """Yield the ranges to compare on: the stated one, then `FALLBACKS`, first those that excite the network
    most. A caller takes the next one where the values of the last tell nothing, so none is tried in vain.

    Args:
        excites: how much of the network each of some ranges excites, from 0 to 1. It is asked only if no
            range is stated, or that one does not tell.
    """
    stated = stated_range(graph, protocol)
    if stated is not None:
        yield stated
    fallbacks = [fallback for fallback in FALLBACKS if fallback is not stated]
    excited_shares = dict(zip(fallbacks, excites(fallbacks), strict=True))
    # Differences of less than a hundredth are chance; then the likelier one stays before the other.
    yield from sorted(fallbacks, key=lambda fallback: -round(excited_shares[fallback], 2))


def make_images(size: KnownSize, count: int, channels: int, fed: InputRange, seed: int = 0) -> Images:
    """Make `count` images of `size` (rows, columns) in a range, N x C x H x W in float64, the same on every
    machine.

    Noise is summed over octaves, each half as strong as the coarser one before it, so that neighbouring
    pixels are similar and the images differ from each other. White noise averages out, and a shifted window
    would hardly change the logits.

    Args:
        fed: the range of the numbers.
        seed: another one gives other images.
    """
    make = _cached_unit_images if math.prod(size) * count * channels <= _MOST_KEPT else _unit_images
    return fed.of(make(size, count, channels, seed).copy())


def _unit_images(size: KnownSize, count: int, channels: int, seed: int) -> Images:
    """Make images as `make_images` does, with numbers from 0 to 1 in each."""
    rng = np.random.default_rng(seed)
    # From the coarsest octave on, the sum is doubled in size, and the next octave added, whose cells are half
    # as long. -(-a // b) rounds up: coarse octaves cover the whole image.
    pixels = np.zeros((count, channels, *(-(-n // 2 ** (OCTAVES + 1)) for n in size)))
    for octave in range(OCTAVES):
        rows, columns = (-(-n // 2 ** (OCTAVES - octave)) for n in size)
        coarse = rng.standard_normal((count, channels, rows, columns)) * 0.5**octave
        pixels = _doubled(pixels)[:, :, :rows, :columns] + coarse
    pixels = _doubled(pixels)[:, :, : size[0], : size[1]]
    low, high = pixels.min(axis=(1, 2, 3), keepdims=True), pixels.max(axis=(1, 2, 3), keepdims=True)
    # An image of one number has no span.
    return np.asarray((pixels - low) / np.where(high > low, high - low, 1.0))


# A check asks for the same ones again and again.
_cached_unit_images = lru_cache(maxsize=4)(_unit_images)
_MOST_KEPT = 1 << 20
"""Numbers of images that are kept."""


def _doubled(images: Images) -> Images:
    """Repeat each cell of N x C x H x W, for twice as many rows and columns."""
    return np.repeat(np.repeat(images, 2, axis=2), 2, axis=3)


def make_telling_images(
    size: KnownSize, count: int, channels: int, fed: InputRange, rough: Roughness = ROUGHNESS[0]
) -> Images:
    """Make `count` images to compare models on, N x C x H x W in float64: one like a photo, as `make_images`
    gives them, then others that reach what photos hardly do, such as the bound of a ReLU6 or a channel that
    is mostly dead.

    Args:
        size: rows and columns.
        fed: the range of the numbers.
        rough: how rough every second image is. Where its share is below 1, the others are like photos.
    """
    # `soft` images are like photos; both they and the noise are from 0 to 1.
    soft = make_images(size, count, channels, UNIT)
    noise = np.random.default_rng(size).random((count, channels, *size))
    cells = np.indices(size)
    # a chessboard, with fields of two cells along each diagonal
    board = cells.sum(axis=0) // 2 % 2
    sides = np.array(size).reshape(2, 1, 1)
    # `share` of the cells: a square at the lower right
    is_rough = (cells >= (1 - rough.share**0.5) * sides).all(axis=0)
    is_middle = (cells == sides // 2).all(axis=0)
    kinds: tuple[Callable[[Images, Images], Images], ...] = (
        lambda soft, noise: soft,  # like a photo
        # hard edges with noise
        lambda soft, noise: np.where(is_rough, np.clip(6 * (soft - soft.mean()) + noise, 0, 1), soft),
        lambda soft, noise: noise,  # white noise
        lambda soft, noise: 0.9 * noise[:, :1, :1] + 0.1 * soft,  # one colour
        lambda soft, noise: abs(board - noise[:, :1, :1] * soft),  # a chessboard
        lambda soft, noise: noise**4,  # bright points
        lambda soft, noise: noise * 0.001 ** noise[:1, :1, :1],  # darkness
        lambda soft, noise: np.where(is_middle, 1.0, 0.0 * soft),  # one point
        lambda soft, noise: 1 - 0.01 * soft,  # white
    )
    kinds = kinds if rough.share == 1 else kinds[:2]
    images = fed.of(
        np.stack([kinds[index % len(kinds)](soft[index], noise[index]) for index in range(count)])
    )
    # The contrast is that of every second image; with two kinds, the others are like photos.
    mean = images[1::2].mean(axis=(2, 3), keepdims=True)
    images[1::2] = mean + rough.contrast * (images[1::2] - mean)
    return images


def _range_of(protocol: Preprocess) -> InputRange:
    """Return the range of what a protocol's preprocessing makes of pixels."""
    return InputRange("the protocol's range", lambda unit: _preprocess_unit(unit, protocol))


def _preprocess_unit(unit: Images, protocol: Preprocess) -> Images:
    mean, std = (np.asarray(value).reshape(1, _COLOURS, 1, 1) for value in (protocol.mean, protocol.std))
    return np.asarray((_BRIGHTEST * unit / protocol.divide - mean) / std)
