from __future__ import annotations

from math import erfc, sqrt

import numpy as np
import pytest

from porter.evaluation.losses import Losses
from porter.evaluation.padding_study.best_case import (
    LEVEL,
    UNSCORED,
    best_of,
    error,
    judge,
    mean,
    p_no_worse,
    photos_to_decide,
    t_tail,
)


def losses(*values: float) -> Losses:
    return np.array(values)


def planted(photos: int, worse_by: list[float], seed: int = 0) -> list[Losses]:
    """Cases whose losses move together from photo to photo, and each a little by itself, as those of one
    model do.
    """
    random = np.random.default_rng(seed)
    shared = random.exponential(1.5, photos)
    return [shared + amount + random.normal(0, 0.3, photos) for amount in worse_by]


def test_errors_are_percentages_of_all_photos_those_not_scored_included() -> None:
    ranks = np.array([0, 1, 4, 5, UNSCORED], np.int32)
    assert (error(ranks, 1), error(ranks, 5)) == (80, 40)


@pytest.mark.parametrize(
    ("t", "freedom", "wanted"),
    [
        # From tables: the one-sided 5, 2.5, 0.5 and 0.05 percent.
        (6.314, 1, 0.05),
        (2.920, 2, 0.05),
        (2.571, 5, 0.025),
        (1.812, 10, 0.05),
        (3.169, 10, 0.005),
        (3.460, 60, 0.0005),
        (1.0, 1, 0.25),
        (1e-200, 7, 0.5),
        *((t, 500_000, erfc(t / sqrt(2)) / 2) for t in (0.5, 1.7, 2, 6)),  # close to the normal distribution
    ],
)
def test_tails_of_students_t(t: float, freedom: int, wanted: float) -> None:
    assert t_tail(t, freedom) == pytest.approx(wanted, rel=2e-3)


def test_the_tail_falls_without_a_jump_where_its_two_forms_meet() -> None:
    for freedom in (1, 30, 49_999):
        values = [t_tail(t, freedom) for t in np.linspace(1, 2.5, 151)]
        steps = -np.diff(np.log(values))
        assert (steps > 0).all() and np.abs(np.diff(steps)).max() < 1e-3


def test_a_planted_difference_is_found_and_photos_are_paired() -> None:
    best, little, much = planted(400, [0.0, 0.08, 0.3])
    differences = little - best
    assert p_no_worse(little, best) == pytest.approx(
        t_tail(differences.mean() / (differences.std(ddof=1) / 20), 399)
    )
    found = judge([much, best, little])
    assert (
        found.best == 1
        and found.plausible == (1,)
        and found.p[1] == 1
        and found.p[0] < found.p[2] < LEVEL / 2
    )
    shuffled = np.random.default_rng(1).permutation(little)  # the same losses, no longer of the same photos
    assert p_no_worse(shuffled, best) > LEVEL


def test_what_cannot_be_told_apart_stays() -> None:
    best, same, worse = planted(100, [0.0, 0.0, 0.4])
    assert judge([worse, same, best]).plausible == (1, 2)
    found = judge([best, best, worse])  # a tie: the first is best
    assert (found.best, found.plausible) == (0, (0, 1)) and found.p[1] == 1
    assert judge([best]).plausible == (0,) and judge([losses(1.0), losses(9.0)]).plausible == (0, 1)


def test_more_cases_ask_for_a_smaller_p() -> None:
    case, best = planted(60, [0.1, 0.0])
    p = p_no_worse(case, best)
    enough = int(LEVEL / p)
    assert enough > 1 and p < LEVEL / enough
    assert len(judge([best, *[case] * enough]).plausible) == 1
    assert len(judge([best, *[case] * (enough + 1)]).plausible) == enough + 2


def test_the_number_of_photos_that_decides_does_in_four_of_five_studies() -> None:
    limit = LEVEL / 7
    best, case = planted(5000, [0.0, 0.06])
    needed = photos_to_decide(case, best, limit)
    assert needed is not None and needed % 10 == 0
    decided = 0
    for seed in range(400):
        less, more = planted(needed, [0.0, 0.06], seed=seed + 1)
        decided += p_no_worse(more, less) < limit
    assert 0.72 < decided / 400 < 0.88
    assert (
        photos_to_decide(best, best, limit) is None and photos_to_decide(best, case, limit) is None
    )  # no difference, and a better one
    assert photos_to_decide(best + np.arange(5000) % 2 - 0.4999, best, limit) is None  # millions
    few = judge([best[:100], case[:100]])
    assert few.photos == 100 and (few.decisive(few.needed) or 0) > 100 and not judge([best, case]).needed


def test_photos_that_could_not_be_read_are_left_out_and_logits_that_are_not_finite_are_infinitely_wrong() -> (
    None
):
    best, worse = planted(50, [0.0, 0.5])
    best[3] = worse[3] = np.nan
    without = [np.delete(case, 3) for case in (worse, best)]
    assert judge([worse, best]) == judge(without) and mean(best) == without[1].mean()
    broken = np.full(50, np.inf)
    assert judge([broken, best]).plausible == (1,)
    assert best_of([broken, broken]) == 0 and mean(np.full(3, np.nan)) == np.inf
    assert judge([broken, broken]).plausible == (0, 1)
    assert p_no_worse(best + 0.25, best) == pytest.approx(0, abs=1e-12)  # every photo is worse by as much


def test_the_best_case_is_lost_no_more_often_than_promised() -> None:
    """Seven cases that are equally good, with the skewed losses that real ones have: whichever it is, it is
    kept in 95 of 100.
    """
    random, studies, lost = np.random.default_rng(5), 600, 0
    for _ in range(studies):
        shared = random.exponential(1.5, 50)
        lost += 0 not in judge([shared * random.lognormal(0, 0.3, 50) for _ in range(7)]).plausible
    assert 0 < lost <= studies * LEVEL
