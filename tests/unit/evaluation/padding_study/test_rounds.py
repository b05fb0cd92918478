"""The order of a study, with outcomes made up: each strided site that is not padded as in training costs a
tenth of a nat.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pytest

from porter.base.errors import PaddingError
from porter.evaluation.padding_study.best_case import LEVEL, judge, mean
from porter.evaluation.padding_study.cases import Change, Setting, Trial, site_at, strided_sites, with_changes
from porter.evaluation.padding_study.rounds import Outcome, Rounds, helpful_changes, run_rounds
from porter.frameworks import get_destination
from porter.padding import Convention
from porter.recipe import expand, find_recipe

VARIANT = "mobilenet_v2"
STEM, FIRST, SECOND, THIRD, LAST = SITES = (
    "stem/conv",
    *(f"block{block}/depthwise/conv" for block in (1, 3, 6, 13)),
)
SAME, ONE = Convention("same"), Convention("explicit", (1, 1, 1, 1))


@pytest.fixture(scope="module")
def setting() -> Setting:
    recipe = find_recipe(VARIANT)
    graph = expand(recipe.member(VARIANT, "torchvision"))
    assert strided_sites(graph) == SITES
    return Setting(graph, (224, 224), get_destination("torch").CAPABILITIES)


class Photos:
    """Runs trials of weights that were trained with SAME at the sites `same` and with 1 cell all round
    elsewhere.
    """

    def __init__(
        self, setting: Setting, same: Collection[str], interrupted_in: int = 0, by_entropy: bool = False
    ) -> None:
        self.setting, self.same, self.interrupted_in, self.by_entropy = (
            setting,
            same,
            interrupted_in,
            by_entropy,
        )
        self.rounds: list[list[str]] = []

    def __call__(self, trials: Sequence[Trial]) -> list[Outcome]:
        self.rounds.append([trial.name for trial in trials])
        if len(self.rounds) == self.interrupted_in:
            raise KeyboardInterrupt
        return [self._outcome(self.setting.padded_graph(trial)) for trial in trials]

    def _outcome(self, graph) -> Outcome:
        wrong = sum((site_at(graph, path).convention.rule == "same") != (path in self.same) for path in SITES)
        losses = 1 + 0.1 * wrong + np.linspace(0, 1, 100)
        ranks = np.where(np.arange(100) < 10 * (5 - wrong), 3, 0).astype(np.int32)  # top-1 would lead astray
        return Outcome(ranks, None, *((losses, None) if self.by_entropy else (losses[::-1] * 0, losses)))


def study(
    setting: Setting,
    same: Collection[str],
    asked: Sequence[Change] = (),
    interrupted_in: int = 0,
    by_entropy: bool = False,
) -> tuple[Rounds, Photos]:
    photos = Photos(setting, same, interrupted_in, by_entropy)
    return run_rounds(setting, {}, asked, photos), photos


def trained(found: Rounds) -> str:
    return found.trials[found.best()].name


def test_where_no_single_change_helps_there_are_two_rounds(setting: Setting) -> None:
    found, photos = study(setting, ())
    assert trained(found) == "as shipped = symmetric" and found.complete
    assert photos.rounds == [
        ["as shipped = symmetric", "asymmetric"],
        [f"as shipped, but {path} same" for path in SITES],
    ]


def test_the_second_round_starts_from_the_best(setting: Setting) -> None:
    found, photos = study(setting, SITES)
    assert trained(found) == "asymmetric"
    assert photos.rounds[1] == [f"asymmetric, but {path} 1" for path in SITES] and len(photos.rounds) == 2


def test_one_change_that_helps_is_not_run_again(setting: Setting) -> None:
    found, photos = study(setting, {FIRST})
    assert trained(found) == f"as shipped, but {FIRST} same" and len(photos.rounds) == 2


@pytest.mark.parametrize("by_entropy", [False, True])
def test_changes_that_help_are_tried_together(setting: Setting, by_entropy: bool) -> None:
    found, photos = study(setting, {FIRST, LAST}, by_entropy=by_entropy)
    together = f"as shipped, but {FIRST} same; {LAST} same"
    assert photos.rounds[2:] == [[together]] and trained(found) == together
    assert [round(10 * (mean(outcome.judged) - 1.5)) for outcome in found.outcomes] == [
        2,
        3,
        3,
        1,
        3,
        3,
        1,
        0,
    ]
    assert [trial.changes for trial in found.trials] == [0, 0, 1, 1, 1, 1, 1, 2]


def test_the_last_round_drops_the_best_case_no_more_often_than_promised() -> None:
    """Ten sites without effect, whose differences add up: joined by their sign, the best of them drop the
    base in 10 of 100.
    """
    random, studies, lost = np.random.default_rng(5), 400, 0
    base, changes = Trial(("as shipped",), {}), [Change(f"site{number}", SAME) for number in range(10)]
    trials = (base, *(with_changes(base, [change]) for change in changes))
    for _ in range(studies):
        losses = [np.zeros(200), *random.normal(size=(10, 200))]
        found = Rounds(trials, tuple(Outcome(np.zeros(200, np.int32), None, case, None) for case in losses))
        together = [losses[1 + changes.index(change)] for change in helpful_changes(found, base, changes)]
        lost += 0 not in judge([*losses, *([sum(together)] if len(together) > 1 else [])]).plausible
    assert 0 < lost <= studies * LEVEL


def test_of_several_conventions_at_a_site_the_best_goes_into_the_last_round(setting: Setting) -> None:
    asked = [Change(FIRST, Convention("valid")), Change(FIRST, SAME), Change(LAST, SAME), Change(STEM, SAME)]
    found, photos = study(setting, {FIRST, LAST}, asked)
    assert photos.rounds[1] == [f"as shipped, but {change}" for change in asked]
    assert (
        photos.rounds[2] == [f"as shipped, but {FIRST} same; {LAST} same"]
        and trained(found) == photos.rounds[2][0]
    )


def test_what_was_asked_for_and_is_there_already_is_told(setting: Setting) -> None:
    found, photos = study(setting, (), [Change(STEM, ONE)])
    assert found.skipped == {
        f"as shipped, but {STEM} 1": "at this size it has the windows of 'as shipped = symmetric'"
    }
    assert len(photos.rounds) == 1


def test_an_interrupted_round_is_left_out(setting: Setting) -> None:
    found, _ = study(setting, {FIRST, LAST}, interrupted_in=3)
    assert not found.complete and len(found.trials) == len(found.outcomes) == 7
    found, _ = study(setting, SITES, interrupted_in=2)
    assert not found.complete and trained(found) == "asymmetric" and len(found.trials) == 2
    with pytest.raises(KeyboardInterrupt):
        study(setting, SITES, interrupted_in=1)


def test_an_input_too_small_for_the_shipped_pads_is_refused() -> None:
    recipe = find_recipe("inception_v3")
    graph = expand(recipe.member("inception_v3", "torchvision"))
    small = Setting(graph, (32, 32), get_destination("torch").CAPABILITIES)
    photos = Photos(small, ())
    with pytest.raises(PaddingError, match=r"no \dx\d window fits"):
        run_rounds(small, {}, (), photos)
    assert not photos.rounds
