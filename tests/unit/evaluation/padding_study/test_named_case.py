"""The name that a study gives: the simplest of the cases that may be as good as the best."""

from __future__ import annotations

from dataclasses import replace

import pytest

from porter.evaluation.padding_study.best_case import CaseRanking
from porter.evaluation.padding_study.cases import Trial
from porter.evaluation.padding_study.named_case import disagreement, in_words, name_case, summarise
from porter.evaluation.padding_study.rounds import Rounds
from porter.evaluation.padding_study.study_results import StudyAnswer
from porter.padding import Convention

ROUNDS = Rounds(
    (
        Trial(("asymmetric",), {}),
        Trial(("as shipped", "symmetric"), {}),
        Trial(("both changed",), {}, 2),
        Trial(("stem changed",), {}, 1),
    )
)


@pytest.mark.parametrize(
    ("best", "kept", "name", "also"),
    [
        (2, (0, 1, 2, 3), "as shipped = symmetric", ("asymmetric", "stem changed", "both changed")),
        (2, (0, 2, 3), "asymmetric", ("stem changed", "both changed")),
        (2, (2, 3), "stem changed", ("both changed",)),
        (2, (2,), "both changed", ()),
    ],
)
def test_the_simplest_that_is_not_worse_is_named(
    best: int, kept: tuple[int, ...], name: str, also: tuple[str, ...]
) -> None:
    judged = CaseRanking(best, tuple(0.2 if position in kept else 1e-4 for position in range(4)), kept)
    found = name_case(ROUNDS, judged, "log-loss")
    assert (found.name, found.also, found.certain) == (name, also, not also)
    unsure = "'both changed' has the least log-loss, but on these photos it is not clearly better than"
    assert found.why.startswith(
        unsure if also else "every other case has a larger log-loss: p is below 0.05 / 3, at most 1.0e-04"
    )
    assert not name_case(replace(ROUNDS, complete=False), judged, "log-loss").certain


def test_a_single_case_is_all_there_is() -> None:
    found = name_case(Rounds(ROUNDS.trials[1:2]), CaseRanking(0, (1.0,), (0,)), "entropy")
    assert found == StudyAnswer(
        "as shipped = symmetric",
        True,
        (),
        "there is no other case to try",
        "Trained with symmetric pads, as shipped: there is no other case",
    )


@pytest.mark.parametrize(
    ("kept", "needed", "complete", "said"),
    [
        ((0,), {}, True, "asymmetric pads (certain)"),
        ((0,), {}, False, "asymmetric pads (so far)"),
        (
            (0, 2, 3),
            {2: 500, 3: 500},
            True,
            (
                "asymmetric pads (certain but for stem and block 3): 60 photos are too few, about 500 "
                "decide them"
            ),
        ),
        (
            (0, 2, 3),
            {2: 500, 3: 1200},
            True,
            "asymmetric pads (certain but for stem and block 3): "
            "60 photos are too few, about 1,200 decide stem, about 500 decide block 3",
        ),
        (
            (0, 2, 3),
            {2: 500, 3: None},
            True,
            (
                "asymmetric pads (certain but for stem and block 3): 60 photos are too few, about 500 "
                "decide block 3"
            ),
        ),
        (
            (2, 3),
            {3: None},
            True,
            "asymmetric pads, but 1 at stem (certain but for block 3): 60 photos are too few",
        ),
        ((3,), {}, True, "asymmetric pads, but 1 at stem (certain)"),
        (
            (0, 1, 3),
            {1: 1200, 3: 90},
            True,
            "asymmetric pads or symmetric pads, as shipped: 60 photos are too few, about 1,200 decide it",
        ),
    ],
)
def test_in_short(kept: tuple[int, ...], needed: dict[int, int | None], complete: bool, said: str) -> None:
    one, same = Convention("explicit", (1, 1, 1, 1)), Convention("same")
    everywhere = dict.fromkeys(("stem", "block 3"), same)
    trials = (
        replace(ROUNDS.trials[0], conventions=everywhere),
        ROUNDS.trials[1],
        replace(ROUNDS.trials[2], conventions={"stem": one, "block 3": one}),
        replace(ROUNDS.trials[3], conventions={**everywhere, "stem": one}),
    )
    assert (
        summarise(Rounds(trials, complete=complete), CaseRanking(kept[0], (0.2,) * 4, kept, 60, needed))
        == f"Trained with {said}"
    )


def test_many_cases_are_counted_and_not_joined_by_or() -> None:
    rules = tuple(Trial((name,), {}, 0) for name in ("as shipped", "asymmetric", "symmetric"))
    judged = CaseRanking(0, (1.0, 0.3, 0.2), (0, 1, 2), 60, {1: 90, 2: 400})
    found = name_case(Rounds(rules), judged, "entropy")
    assert found.in_short == "Trained with one of 3 rules: 60 photos are too few, about 400 decide it"
    assert found.why == (
        "'as shipped' has the least entropy, but on these photos it is not clearly better than 2 other "
        "cases: p is not below 0.05 / 2"
    )
    assert in_words(found) == "one of 3 cases" and found.also == ("asymmetric", "symmetric")


def test_log_loss_and_entropy_disagree_where_no_case_is_left_by_both() -> None:
    one, other, both = (
        StudyAnswer(names[0], False, names[1:], "") for names in (("a", "b"), ("c", "d"), ("b", "c"))
    )
    assert disagreement(one, both) == disagreement(both, other) == disagreement(one, None) == ()
    assert disagreement(one, other) == ("the entropy of the answers gives another result: c or d",)
