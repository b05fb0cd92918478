"""How many images a port is compared on, and how many of them at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from porter.base.dtypes import Array, Dtype
from porter.graph import Graph, shapes
from porter.graph.memory_bounds import count_numbers, count_values
from porter.padding import KnownSize
from porter.verification.bounds import ValuesAt, farthest_images
from porter.verification.inputs import SMOOTH, InputRange, Roughness, make_images, make_telling_images
from porter.verification.sizes import Sizes

_NUMBERS = 74_000
"""So many numbers an input size has in all its images at least, up to `_MOST_IMAGES`, because two of a few
cells show little. Two of 128x97, at which most networks are compared, have them.
"""
_MOST_IMAGES = 64
_MANY_OUTPUTS = 256
"""So many numbers the outputs for one image have if rounding is measured on that image."""
_MOST_VALUES, _AT_ONCE = 1 << 30, 1 << 26
"""So many numbers the values of a size's images have at most, above two images, and those of the images that
are run at once: a graph may make large maps of a small image.
"""
_POOL = 4 * _NUMBERS
"""So many numbers the images have among which those that reach bounds are sought, if images are small."""
_TOGETHER = 1 << 20
"""So many numbers the values of the images of that pool have that are run at once: a pass through a small
network takes as long for one image as for many, and values that leave the processor's cache take longer.
"""


@dataclass(frozen=True)
class ImageBatches:
    """The images that a port is compared on, as porter.verification.check.Check asks for them.

    Attributes:
        graph: of the port.
        channels: of its images.
        dtypes: the number types to compare in.
        fed: the range of the images.
        least: so many at each size, and more where they are small.
        rough: how rough the images are that reach what photos hardly do.
        is_whole: whether every node was compared at cut points in float64.
    """

    graph: Graph
    channels: int
    dtypes: Sequence[Dtype]
    fed: InputRange
    least: int
    rough: Roughness
    is_whole: bool

    def at(self, sizes: Sizes) -> dict[Dtype, list[Array]]:
        """Return the images for each number type, in batches N x C x H x W; see Check.batches."""
        wanted = {dtype: sizes.of(dtype) for dtype in self.dtypes}
        if self.is_whole:
            wanted["float64"] = wanted["float64"][:1]
        largest = max((count_values(self.graph, size) for size in chain(*wanted.values())), default=0)
        return {
            dtype: [batch for size in wanted[dtype] for batch in self._of_size(dtype, size, largest)]
            for dtype in wanted
        }

    def _of_size(self, dtype: Dtype, size: KnownSize, largest: int) -> list[Array]:
        """Return the batches of one size; `largest` is how many numbers the values of one image of the
        largest size have.
        """
        decides = self._decides(dtype)
        if self.is_whole and decides:
            return [make_telling_images(size, 1, self.channels, self.fed, SMOOTH)]
        count = self._count_images(decides, size)
        parts = self._count_parts(decides, size, count, largest)
        # As many in each, because some runtimes compile a program for every number of images.
        count = parts * -(-count // parts)
        rough = self.rough if decides else SMOOTH
        return np.split(make_telling_images(size, count, self.channels, self.fed, rough), parts)

    def _decides(self, dtype: Dtype) -> bool:
        """Return whether a number type decides what the function is."""
        return dtype == "float64" or "float64" not in self.dtypes

    def _count_least(self, decides: bool, size: KnownSize) -> int:
        """Return how many images there are at least."""
        if decides:
            return self.least
        stated = shapes(self.graph, size)
        outputs = sum(count_numbers(stated[path]) for path in self.graph.outputs)
        return 1 if self.is_whole and outputs >= _MANY_OUTPUTS else 2

    def _count_enough(self, size: Sequence[int]) -> int:
        """Return how many images have `_NUMBERS` together."""
        return -(-_NUMBERS // (self.channels * math.prod(size)))

    def _count_images(self, decides: bool, size: KnownSize) -> int:
        most = min(_MOST_IMAGES, _MOST_VALUES // count_values(self.graph, size))
        return max(self._count_least(decides, size), min(self._count_enough(size), most))

    def _count_parts(self, decides: bool, size: KnownSize, count: int, largest: int) -> int:
        """Return into how many batches `count` images are split, so that their values at once are no more
        than those of one image of the largest size, or, if the images are small, than `_AT_ONCE`.
        """
        is_small = self._count_enough(size) > self._count_least(decides, size)
        at_once, fewest = (_AT_ONCE, 2) if is_small else (largest, 1)
        # -(-a // b) rounds up
        return min(count, max(fewest, -(-count * count_values(self.graph, size) // at_once)))

    def reaching_bounds(self, batches: Sequence[Array], run: ValuesAt) -> list[Array]:
        """Return one batch, in a list, of images from a larger pool that reach more bounds of activations.
        Return none if the images are large, or if none of the pool reaches more.

        Args:
            batches: the images so far.
            run: gives the port's values at some paths for a batch.
        """
        rows, columns = size = batches[0].shape[2], batches[0].shape[3]
        if self._count_enough(size) <= self.least:
            return []
        known = [batch for batch in batches if batch.shape[1:] == batches[0].shape[1:]]
        count = min(_POOL // (self.channels * rows * columns), 8 * _MOST_IMAGES)
        pool = make_images(size, count, self.channels, self.fed, seed=1)
        at_once = max(len(batches[0]), _TOGETHER // count_values(self.graph, size))
        chosen = farthest_images(self.graph, known, pool, run, at_once)
        return [chosen] if len(chosen) else []
