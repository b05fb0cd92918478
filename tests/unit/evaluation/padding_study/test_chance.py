"""Cases of weights that were not trained say nothing, and others say something."""

from __future__ import annotations

import re
from math import log

import numpy as np
import pytest

from porter.evaluation.padding_study.chance import at_chance, probability_of_at_least
from porter.evaluation.padding_study.rounds import Outcome

PHOTOS, CLASSES = 60, 1000


def outcome(hits: int = 0, loss: float | None = None, entropy: float = 6.9, mean: float = 6.9) -> Outcome:
    single = np.full(PHOTOS, 7, np.int32)
    single[:hits] = 0
    losses = None if loss is None else np.full(PHOTOS, loss)
    return Outcome(single, None, np.full(PHOTOS, entropy), losses, mean)


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ([outcome(0, 6.9)], "top-1 error is 100.000 % and the least log-loss 6.9000, .* 99.900 % and 6.9078"),
        ([outcome(0, 45.3), outcome(0, 46.0)], "log-loss 45.3000"),
        ([outcome(0, np.inf)], "log-loss inf"),
        ([outcome(1, 7.2)], "98.333 %"),  # 5.8 % of all draws of 60 have one
        ([outcome(0, 6.9), outcome(3, 7.2)], None),
        ([outcome(0, 5.5)], None),
        (
            [outcome(entropy=6.5), outcome(entropy=6.8)],
            "entropy is 6.5000, and .* have 6.9078",
        ),
        ([outcome(entropy=0.884, mean=0.975)], "nearly the same for all photos: they tell 0.0910 of 4.0943"),
        ([outcome(entropy=0.001, mean=0.692)], "they tell 0.6910"),
        ([outcome(entropy=0.77, mean=1.4)], None),
        ([outcome(entropy=0.77, mean=0.8), outcome(entropy=0.64, mean=3.9)], None),
    ],
)
def test_answers_that_say_nothing_of_the_photos(outcomes: list[Outcome], said: str | None) -> None:
    found = at_chance(outcomes, CLASSES)
    assert (found is None) == (said is None) and re.search(said or "", found or "")


def test_chance_is_that_of_the_head() -> None:
    assert at_chance([outcome(30, 0.69)], 2) is not None and at_chance([outcome(48, 0.69)], 2) is None
    # Each of 20 questions of a sigmoid has log(2) by chance.
    assert at_chance([outcome(0, 20 * log(2))], 20, activation="sigmoid") is not None
    assert at_chance([outcome(0, 4.0)], 20, activation="sigmoid") is None
    # Ten of 20 classes are right for each photo.
    assert (
        at_chance([outcome(30, 9.0)], 20, right=10.0) is not None
        and at_chance([outcome(30, 9.0)], 20) is None
    )


def test_the_probability_of_hits() -> None:
    assert probability_of_at_least(0, 5, 0.3) == 1 and probability_of_at_least(1, 5, 1.0) == 1
    assert probability_of_at_least(1, 5, 0.3) == pytest.approx(1 - 0.7**5) and probability_of_at_least(
        5, 5, 0.3
    ) == pytest.approx(0.3**5)
