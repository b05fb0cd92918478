"""The proof itself is tested: every kind of mistake, planted in right ports, is refused where it makes
another function.

`scripts/mutants` plants thousands (docs/mutants.md); these are a few of each kind, in the ports where they
have a place.
"""

from __future__ import annotations

from functools import cache
from itertools import takewhile

import pytest

from porter.verification.inputs import InputRange
from tests.mutation.of_wiring import KINDS
from tests.mutation.subjects import Subject, subject
from tests.mutation.trial import mutants, rights, trials

SUBJECTS = (
    "hand:net:calibrated:plain:all:torch:0",
    "recipe:mobilenet_v1_0.25/keras:calibrated:plain:layers:torch:0",
    "recipe:shufflenet_v2_x0_5/torchvision:calibrated:softmax:layers:torch:0",
)
EACH = 2


@cache
def made(key: str) -> Subject:
    found = subject(key)
    assert found is not None
    return found


@cache
def proved(key: str) -> InputRange:
    """On which inputs the right port is proved, as it is."""
    outcomes, fed = rights(made(key), also_rewritten=False)
    assert all(outcome.state == "right" for outcome in outcomes) and fed is not None, key
    return fed


@pytest.mark.parametrize(
    "key", [SUBJECTS[0], *(pytest.param(key, marks=pytest.mark.full) for key in SUBJECTS[1:])]
)
def test_a_right_port_is_proved_as_it_is_and_written_otherwise(key: str) -> None:
    outcomes, fed = rights(made(key))
    assert len(outcomes) > 1 and fed is not None
    assert all(outcome.state == "right" for outcome in outcomes), key


@pytest.mark.parametrize("kind", KINDS)
def test_a_mistake_that_moves_an_output_is_refused(kind: str) -> None:
    outcomes = (
        outcome for key in SUBJECTS for outcome in mutants(made(key), proved(key), [kind], range(EACH))
    )
    found = [*takewhile(lambda outcome: outcome.state != "killed", outcomes)]
    assert not [outcome for outcome in found if outcome.state == "escaped"]
    assert len(found) < EACH * len(SUBJECTS), "none is refused"


def test_a_bound_that_one_image_in_fifty_reaches_is_compared() -> None:
    right, mutant = trials(
        made("hand:net:loud:plain:given:torch:3"), ["activation's constant"], EACH, index=6
    )
    assert mutant.what == "clip: Clip(low=-0.6, high=0.7) is Clip(low=-0.6, high=0.77)"
    assert (right.state, mutant.state) == ("right", "killed")


def test_a_mistake_is_refused_by_a_given_reference_some_of_whose_names_are_wrong() -> None:
    found = list(
        trials(
            made("recipe:mobilenet_v1_0.25/keras:calibrated:plain:given:torch:0"), ["sign of a number"], EACH
        )
    )
    right = [outcome for outcome in found if outcome.index < 0]
    assert all(
        outcome.state == "right" and "are other layers of the port" in outcome.why for outcome in right
    )
    assert [outcome.state for outcome in found if outcome not in right] == ["killed"] * EACH
