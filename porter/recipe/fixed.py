"""Fixed arrays: source tensors that hold no weights. A recipe may leave them out if they are what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # recipes are loaded by commands that need no numpy
    from porter.base.dtypes import Array


def is_group_sums(array: Array) -> bool:
    """Whether a 1x1 kernel (1, 1, groups * width**2, groups * width) adds up, for each group of `width`
    channels, the outputs of a depthwise convolution with `width` outputs per channel: output m of every
    channel of the group goes to channel m of it.

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
"""Name in a recipe to whether an array is it."""


def holds(array: Array, equals: float | str) -> bool:
    """Whether an array is what an ignore rule's `equals` says: a number everywhere, or a fixed array by its
    name.
    """
    return FIXED[equals](array) if isinstance(equals, str) else bool((array == equals).all())
