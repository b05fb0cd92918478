"""Images for comparisons are made once, and given as arrays of the caller's own."""

from __future__ import annotations

import numpy as np

from porter.verification import inputs
from porter.verification.inputs import PIXELS, UNIT, make_images


def test_what_a_caller_does_to_images_is_not_in_the_next_ones() -> None:
    first = make_images((9, 7), 2, 3, UNIT)
    as_made = first.copy()
    first[:] = 5
    assert np.array_equal(make_images((9, 7), 2, 3, UNIT), as_made)
    assert np.array_equal(make_images((9, 7), 2, 3, PIXELS), 255 * as_made)
    assert not np.array_equal(make_images((9, 7), 2, 3, UNIT, seed=1), as_made)


def test_large_images_are_not_kept() -> None:
    inputs._cached_unit_images.cache_clear()
    make_images((9, 7), 2, 3, UNIT)
    make_images((600, 600), 1, 3, UNIT)
    assert inputs._cached_unit_images.cache_info().currsize == 1
