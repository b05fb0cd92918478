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
    assert log_losses(LOGITS[:, np.newaxis], LABELS, "softmax") == pytest.approx(wanted)
    assert entropies(LOGITS, None) == pytest.approx(-(shares * np.log(shares)).sum(axis=1))
    assert entropies(np.zeros((1, 9)), None) == pytest.approx(log(9))


def test_sigmoid() -> None:
    shares = probabilities(LOGITS, "sigmoid")
    right = np.array([[label in labels for label in range(9)] for labels in LABELS])
    assert log_losses(LOGITS[:, np.newaxis], LABELS, "sigmoid") == pytest.approx(
        -np.log(np.where(right, shares, 1 - shares)).sum(axis=1)
    )
    each = -(shares * np.log(shares) + (1 - shares) * np.log(1 - shares))
    assert entropies(LOGITS, "sigmoid") == pytest.approx(each.sum(axis=1))


@pytest.mark.parametrize("crops", [1, 10])
def test_the_loss_is_torchs_cross_entropy(crops: int) -> None:
    """Of ten crops, that of the mean of their probabilities."""
    torch = pytest.importorskip("torch")
    given = np.random.default_rng(1).normal(0, 8, (64, crops, 1000)).astype(np.float32)
    labels = np.random.default_rng(2).integers(0, 1000, 64)
    scored = torch.from_numpy(given).double()
    logs = scored.log_softmax(2).logsumexp(1) - log(crops)
    wanted = torch.nn.functional.nll_loss(logs, torch.from_numpy(labels), reduction="none")
    if crops == 1:
        assert torch.equal(
            wanted,
            torch.nn.functional.cross_entropy(scored[:, 0], torch.from_numpy(labels), reduction="none"),
        )
    found = log_losses(given.astype(np.float64), [(int(label),) for label in labels], None)
    assert found == pytest.approx(wanted.numpy(), rel=1e-13, abs=1e-13)


def test_the_loss_of_ten_crops_after_a_sigmoid() -> None:
    crops = LOGITS.reshape(2, 3, 9)
    shares = probabilities(crops, "sigmoid").mean(axis=1)
    right = np.array([[label in labels for label in range(9)] for labels in LABELS[:2]])
    wanted = -np.log(np.where(right, shares, 1 - shares)).sum(axis=1)
    assert log_losses(crops, LABELS[:2], "sigmoid") == pytest.approx(wanted)


@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_logits_of_any_size_give_finite_losses(activation: str | None) -> None:
    logits = np.array([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]])
    assert np.isfinite(log_losses(logits[:, np.newaxis], [(1,), (0,)], activation)).all()
    assert entropies(logits, activation) == pytest.approx([0, log(2)] if activation is None else [log(2), 0])
