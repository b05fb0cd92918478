"""Which of the weights and their moving averages is used."""

import pytest

from porter.base.errors import MappingError
from porter.source.fitting.locating import prefer_averages

SUFFIX = "/ExponentialMovingAverage"
FOUND = {
    ("conv", "kernel"): "C/weights",
    ("norm", "gamma"): "C/gamma",
    ("norm", "mean"): "C/moving_mean",
    ("norm", "variance"): "C/moving_variance",
}


def names(*averaged: str) -> set[str]:
    return {*FOUND.values(), *(name + SUFFIX for name in averaged)}


def test_without_averages_nothing_changes() -> None:
    assert prefer_averages(FOUND, names(), SUFFIX) == (FOUND, {}, ())
    assert prefer_averages(FOUND, names("C/weights", "C/gamma"), None) == (FOUND, {}, ())


def test_averages_of_trained_variables_go_without_those_of_statistics() -> None:
    chosen, unused, notes = prefer_averages(FOUND, names("C/weights", "C/gamma"), SUFFIX)
    assert chosen == FOUND | {("conv", "kernel"): "C/weights" + SUFFIX, ("norm", "gamma"): "C/gamma" + SUFFIX}
    assert set(unused) == {"C/weights", "C/gamma"}
    assert "all 2 weights" in notes[0] and "no batch norm statistics" in notes[0]


def test_averages_of_all_are_used() -> None:
    chosen, unused, _ = prefer_averages(FOUND, names(*FOUND.values()), SUFFIX)
    assert all(name.endswith(SUFFIX) for name in chosen.values()) and set(unused) == set(FOUND.values())


@pytest.mark.parametrize(
    ("averaged", "lacking"),
    [
        (("C/weights",), "C/gamma"),
        (("C/weights", "C/gamma", "C/moving_mean"), "C/moving_variance"),
        (("C/moving_mean",), "C/moving_variance"),
    ],
)
def test_averages_of_a_part_are_refused_with_a_list(averaged: tuple[str, ...], lacking: str) -> None:
    with pytest.raises(MappingError) as caught:
        prefer_averages(FOUND, names(*averaged), SUFFIX)
    assert lacking in caught.value.message and "C/weights" not in caught.value.message.split("none:")[1]
