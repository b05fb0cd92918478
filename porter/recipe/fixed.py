"""Fixed arrays, which hold no weights: source tensors that a recipe may leave out if they are what it says,
and arrays that a zoo's code computes, so that no file holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isqrt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # recipes are loaded by commands that need no numpy
    from porter.base.dtypes import Array


def is_group_sums(array: Array) -> bool:
    """Return whether a 1x1 kernel (1, 1, groups * width**2, groups * width) adds up, for each group of
    `width` channels, the outputs of a depthwise convolution with `width` outputs per channel: output m of
    every channel of the group goes to channel m of it.

    keras-applications has it after each of ResNeXt's depthwise convolutions (`_2_gconv`, resnet_common.py,
    block3, since e0a6492).
    """
    import numpy as np

    if array.ndim != 4 or array.shape[:2] != (1, 1) or not array.shape[3] or array.shape[2] % array.shape[3]:
        return False
    outputs, channels = array.shape[2:]
    width = outputs // channels
    if not width or channels % width:
        return False
    rows = np.arange(outputs)
    # Row ((g * width) + j) * width + m is output m of the group's channel j.
    ones = array[0, 0, rows, rows // width**2 * width + rows % width]
    return bool(np.all(ones == 1)) and np.count_nonzero(array) == outputs


FIXED: Mapping[str, Callable[[Array], bool]] = {"group_sums": is_group_sums}
"""Tells whether an array is the fixed one, by the name of that in a recipe."""


def equals_fixed(array: Array, equals: float | str) -> bool:
    """Return whether an array, which a rule ignores, is what the rule's `equals` says: one number in all
    cells, or a fixed array by its name (FIXED).
    """
    if isinstance(equals, str):
        return FIXED[equals](array)
    return bool((array == equals).all())


class Computed(NamedTuple):
    """An array that a zoo's code computes.

    Attributes:
        words: the shapes that it can have, in words.
        fits: tells whether a shape is one of these.
        values: returns the array of a shape, in float64.
    """

    words: str
    fits: Callable[[tuple[int, ...]], bool]
    values: Callable[[tuple[int, ...]], Array]


def sines_2d(shape: tuple[int, ...]) -> Array:
    """Return an array (cells, channels) with the positions of the cells of a square, row by row, as MoCo v3
    and big_vision's ViT have them (posemb_sincos_2d of models/vit.py): the sines and cosines of the column
    and then of the row, each times powers of 1 to 1/10000.
    """
    import numpy as np

    cells, channels = shape
    quarter = channels // 4
    rows, columns = np.divmod(np.arange(cells), isqrt(cells))
    powers = 10_000.0 ** -(np.arange(quarter) / (quarter - 1))
    angles = (np.outer(columns, powers), np.outer(rows, powers))
    return np.concatenate(
        [wave(angles_of_axis) for angles_of_axis in angles for wave in (np.sin, np.cos)], axis=1
    )


def _is_square_of_cells(shape: tuple[int, ...]) -> bool:
    """Return whether a shape is (cells of a square, channels), with channels in fours and at least 8."""
    return len(shape) == 2 and isqrt(shape[0]) ** 2 == shape[0] and shape[1] % 4 == 0 and shape[1] >= 8


COMPUTED: Mapping[str, Computed] = {
    "sines_2d": Computed("of the cells of a square, with channels in fours", _is_square_of_cells, sines_2d)
}
"""Name in a recipe to the array that a zoo's code computes."""
