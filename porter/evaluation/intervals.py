"""The confidence interval of an accuracy."""

from __future__ import annotations

from math import sqrt

Z95 = 1.959963984540054
"""The two-sided 95 % point of the normal distribution."""


def wilson(right: int, images: int) -> tuple[float, float]:
    """Return Wilson's score interval at 95 % for `right` of `images`, in percent (E. B. Wilson, JASA 22,
    1927).

    It stays within 0 and 100 and is valid near the ends, where the normal interval is not.
    """
    share, z2 = right / images, Z95 * Z95
    centre = (share + z2 / (2 * images)) / (1 + z2 / images)
    half = Z95 / (1 + z2 / images) * sqrt(share * (1 - share) / images + z2 / (4 * images * images))
    # At 0 and 100 the interval touches the end; rounding must not carry it past the end.
    low = 0.0 if right == 0 else 100 * (centre - half)
    high = 100.0 if right == images else 100 * (centre + half)
    return low, high
