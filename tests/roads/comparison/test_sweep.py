"""Many pairs: the same functions from several hands, and one mistake in each of many networks."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.comparison.found_difference import KINDS, Kind
from tests.support.comparison.hands import compared, pairs
from tests.support.comparison.sweep import plant

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]


def test_the_same_functions_are_said_to_be_the_same(tmp_path: Path) -> None:
    found = {name: compared(make) for name, make in pairs(tmp_path)}
    assert len(found) == 64
    assert {name: str(each) for name, each in found.items() if not each.ok} == {}


@pytest.mark.parametrize("kind", KINDS)
def test_mistakes_are_refused_and_named(kind: Kind) -> None:
    """Twenty of each kind; a network that hides one may make another reason likelier."""
    found = [*plant(kind)]
    assert [each for each in found if not each.refused] == []
    assert sum(each.named for each in found) >= 18
