from __future__ import annotations

from math import log

import numpy as np
import pytest

from porter.evaluation.losses import entropies, log_losses
from porter.evaluation.ranking import probabilities

LOGITS = np.random.default_rng(0).normal(0, 4, (6, 9))
LABELS = [(0,), (8,), (3, 5), (1,), (2,), (7, 0, 4)]


def test_softmax() -> None:
    shares = probabilities(LOGITS, None)
    wanted = [-log(sum(row[label] for label in labels)) for row, labels in zip(shares, LABELS, strict=True)]
    assert log_losses(LOGITS, LABELS, "softmax") == pytest.approx(wanted)
    assert entropies(LOGITS, None) == pytest.approx(-(shares * np.log(shares)).sum(axis=1))
    assert entropies(np.zeros((1, 9)), None) == pytest.approx(log(9))


def test_sigmoid() -> None:
    shares = probabilities(LOGITS, "sigmoid")
    right = np.array([[label in labels for label in range(9)] for labels in LABELS])
    assert log_losses(LOGITS, LABELS, "sigmoid") == pytest.approx(-np.log(np.where(right, shares, 1 - shares)).sum(axis=1))
    each = -(shares * np.log(shares) + (1 - shares) * np.log(1 - shares))
    assert entropies(LOGITS, "sigmoid") == pytest.approx(each.sum(axis=1))


@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_logits_of_any_size_give_finite_losses(activation: str | None) -> None:
    logits = np.array([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]])
    assert np.isfinite(log_losses(logits, [(1,), (0,)], activation)).all()
    assert entropies(logits, activation) == pytest.approx([0, log(2)] if activation is None else [log(2), 0])
