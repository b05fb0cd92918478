from __future__ import annotations

from math import sqrt

import pytest
from hypothesis import given, strategies as st

from porter.evaluation.intervals import Z95, wilson


def test_a_textbook_case() -> None:
    # 15 of 50: (0.1910, 0.4375) in R's prop.test(15, 50, correct=FALSE).
    assert wilson(15, 50) == pytest.approx((19.10, 43.75), abs=0.005)


@given(st.integers(1, 50_000), st.data())
def test_the_ends_are_where_the_score_test_is_at_its_limit(images: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, images))
    low, high = wilson(right, images)
    assert 0 <= low <= 100 * right / images <= high <= 100
    for end in (low, high):
        if 0 < end < 100:
            share = end / 100
            assert abs(right / images - share) == pytest.approx(
                Z95 * sqrt(share * (1 - share) / images), rel=1e-6, abs=1e-9
            )
