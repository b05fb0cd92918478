"""The name that a study gives: the simplest of the cases that may be as good as the best."""

from __future__ import annotations

from dataclasses import replace

import pytest

from porter.evaluation.padding_study.cases import Trial
from porter.evaluation.padding_study.naming import disagreement, name_case
from porter.evaluation.padding_study.numbers import CaseRanking
from porter.evaluation.padding_study.rounds import Rounds
from porter.evaluation.results import Trained

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
def test_the_simplest_that_is_not_worse_is_named(best: int, kept: tuple[int, ...], name: str, also: tuple[str, ...]) -> None:
    judged = CaseRanking(best, tuple(0.2 if position in kept else 1e-4 for position in range(4)), kept)
    found = name_case(ROUNDS, judged, "log-loss")
    assert (found.name, found.also, found.certain) == (name, also, not also)
    unsure = "'both changed' has the least log-loss, but on these photos it is not clearly better than"
    assert found.why.startswith(unsure if also else "every other case has a larger log-loss: p is below 0.05 / 3, at most 1.0e-04")
    assert not name_case(replace(ROUNDS, complete=False), judged, "log-loss").certain


def test_a_single_case_is_all_there_is() -> None:
    found = name_case(Rounds(ROUNDS.trials[1:2]), CaseRanking(0, (1.0,), (0,)), "entropy")
    assert found == Trained("as shipped = symmetric", True, (), "there is no other case to try")


def test_log_loss_and_entropy_disagree_where_no_case_is_left_by_both() -> None:
    one, other, both = (Trained(names[0], False, names[1:], "") for names in (("a", "b"), ("c", "d"), ("b", "c")))
    assert disagreement(one, both) == disagreement(both, other) == disagreement(one, None) == ()
    assert disagreement(one, other) == ("the entropy of the answers gives another result: c or d",)
