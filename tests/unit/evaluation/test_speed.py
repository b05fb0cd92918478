"""Which way of running a model is chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from porter.base.errors import UsageError
from porter.base.ways_to_run import Run
from porter.data.preprocess import Preprocess
from porter.evaluation import speed
from porter.evaluation.speed import images_a_second, made_pixels, try_runs
from tests.support.arrays import Array

PROTOCOL = Preprocess("shorter_side", 8, "pil_bilinear", crop=6, divide=255.0)
SECONDS = {"fp32": 0.02, "tf32": 0.02, "bf16": 0.01, "fp16": 0.005}


class Clock:
    """Goes on by what a run takes, and a little when it is asked."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1e-4
        return self.now


CLOCK = Clock()


@pytest.fixture(autouse=True)
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_MEASURED", 0.05)
    monkeypatch.setattr(speed, "perf_counter", CLOCK)


def taking(seconds: float, logit: float = 1.0) -> Callable[[NDArray[Any]], Callable[[], Array]]:
    def classify(pixels: NDArray[Any]) -> Callable[[], Array]:
        CLOCK.now += seconds
        return lambda: np.full((len(pixels), 3), logit, np.float32)

    return classify


def test_the_fastest_run_with_finite_logits_is_chosen_and_compiled() -> None:
    made: list[Run] = []

    def make(run: Run) -> Callable[[NDArray[Any]], Callable[[], Array]]:
        made.append(run)
        if run.compiled:
            raise UsageError("torch cannot compile this model here: no compiler", where="--compile")
        slower = 1 if run.channels_last else 2
        return taking(slower * SECONDS[run.precision], np.inf if run.precision == "fp16" else 1.0)

    tried = try_runs(make, made_pixels(PROTOCOL, 1, 4), "cuda")
    assert tried[0].run == Run("bf16") and made[-1] == Run("bf16", compiled=True) and len(made) == 9
    assert [each.run for each in tried if each.refused is not None] == [
        Run("fp16"),
        Run("fp16", channels_last=False),
        Run("bf16", compiled=True),
    ]
    speeds = [each.per_second for each in tried if each.refused is None]
    assert speeds == sorted(speeds, reverse=True) and 100 < tried[0].per_second <= 400


def test_a_model_that_runs_in_no_way_is_an_error() -> None:
    with pytest.raises(UsageError, match="does not run: its logits are not finite"):
        try_runs(lambda run: taking(0, np.nan), made_pixels(PROTOCOL, 1, 2), "cpu")


def test_made_photos_have_the_form_of_the_pipelines() -> None:
    assert (
        made_pixels(PROTOCOL, 10, 3).shape == (3, 10, 6, 6, 3)
        and made_pixels(PROTOCOL, 1, 1).dtype == np.uint8
    )
    fractions = Preprocess("squash", 6, "tf1_bilinear", divide=255.0)
    assert made_pixels(fractions, 1, 1).dtype == np.float32
    assert 200 < images_a_second(taking(0.01), made_pixels(PROTOCOL, 2, 2)) <= 400
