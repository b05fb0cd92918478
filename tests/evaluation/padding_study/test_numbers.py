from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from porter.evaluation.padding_study.numbers import LEVEL, UNSCORED, Ranks, best_of, error, margin, mcnemar, wrong


def ranks(*places: int) -> Ranks:
    return np.array(places, np.int32)


def right(photos: int, among: range) -> Ranks:
    return np.array([0 if photo in among else 7 for photo in range(photos)], np.int32)


def test_errors_are_percentages_of_all_photos_those_not_scored_included() -> None:
    places = ranks(0, 1, 4, 5, UNSCORED)
    assert (error(places, 1), error(places, 5), wrong(places)) == (80, 40, 4)


@pytest.mark.parametrize(("one", "other"), [(0, 0), (1, 0), (5, 0), (0, 5), (3, 3), (12, 4), (51, 13), (250, 200)])
def test_mcnemars_exact_test_is_the_two_sided_binomial_test(one: int, other: int) -> None:
    tosses = one + other
    tail = sum(Fraction(comb(tosses, drawn), 2**tosses) for drawn in range(min(one, other) + 1))
    assert mcnemar(one, other) == pytest.approx(float(min(Fraction(1), 2 * tail)), rel=1e-12)


def test_mcnemar_of_numbers_beyond_any_float() -> None:
    assert mcnemar(25_000, 25_000) == 1
    assert mcnemar(50_000, 0) == 0 < mcnemar(12_500, 12_000) < 0.01
    assert mcnemar(5, 0) == 2 / 32  # by hand


def test_of_equal_cases_the_first_is_best() -> None:
    assert best_of([ranks(0, 3), ranks(3, 0), ranks(3, 3)]) == 0


def test_wide_margin() -> None:
    found = margin({"a": right(100, range(50)), "b": right(100, range(90)), "c": right(100, range(5, 20))})
    assert (found.case, found.over, found.photos, found.significant) == ("b", "a", 40, True)
    assert found.p == mcnemar(40, 0)
    assert found.text == "'b' is 40 photos ahead of 'a', p = 1.8e-12"


def test_margin_is_paired_by_photo() -> None:
    # Both are 10 photos apart, once out of 10 that differ and once out of 90.
    assert margin({"a": right(100, range(50)), "b": right(100, range(40))}).significant
    assert not margin({"a": right(100, range(50)), "b": right(100, range(50, 90))}).significant


def test_narrow_margin_says_so() -> None:
    found = margin({"a": right(100, range(50)), "b": right(100, range(47))})
    assert not found.significant and found.photos == 3
    assert found.text == "'a' is 3 photos ahead of 'b', but these photos do not tell: p = 0.25, not below 0.05"


def test_the_best_of_many_has_to_be_better_for_it() -> None:
    six = {"a": right(100, range(50)), "b": right(100, range(44))}
    assert margin(six).significant and LEVEL / 2 < mcnemar(6, 0) < LEVEL
    found = margin({**six, "c": right(100, range(10))})
    assert not found.significant and found.text.endswith("p = 0.031, not below 0.05 / 2")


def test_tie_says_so_and_the_first_stands() -> None:
    found = margin({"as shipped": right(10, range(5)), "other": right(10, range(5, 10))})
    assert found.case == "as shipped" and found.photos == 0 and not found.significant
    assert found.text == "'as shipped' and 'other' tie: these photos do not tell"


def test_a_single_case_has_no_margin() -> None:
    found = margin({"as shipped": right(10, range(5))})
    assert (found.case, found.over, found.significant) == ("as shipped", None, False)
