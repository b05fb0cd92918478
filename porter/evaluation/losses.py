"""What answers say about a model, photo by photo and in nats: how unlikely it holds the truth, and how undecided it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Losses = NDArray[np.float64]
"""Of one photo each, in the order of the photos; nan where there is none, inf where the logits are not finite."""


def log_losses(logits: NDArray[np.float64], labels: Sequence[tuple[int, ...]], activation: str | None) -> Losses:
    """Per row of `logits` (N x classes), minus the logarithm of the probability that the model gives the row's labels together.

    Where the source ends in a sigmoid, every class is a question of its own, and the logarithms of all right answers add up.
    """
    wanted = np.zeros(logits.shape, np.bool_)
    for row, right in zip(wanted, labels, strict=True):
        row[list(right)] = True
    if activation == "sigmoid":
        return np.asarray(np.logaddexp(0, np.where(wanted, -logits, logits)).sum(axis=1))
    return np.asarray(np.logaddexp.reduce(logits, axis=1) - np.logaddexp.reduce(np.where(wanted, logits, -np.inf), axis=1))


def entropies(logits: NDArray[np.float64], activation: str | None) -> Losses:
    """Per row of `logits` (N x classes), the entropy of the model's answer: 0 where it is sure of a class, log(classes) where it
    holds all for equally likely. After a sigmoid, the sum of the entropies of all classes, each of which is there or not.
    """
    if activation == "sigmoid":
        shares = 0.5 * (1 + np.tanh(0.5 * logits))
        return np.asarray((np.logaddexp(0, logits) - shares * logits).sum(axis=1))
    logs = logits - np.logaddexp.reduce(logits, axis=1)[:, np.newaxis]
    return np.asarray(-(np.exp(logs) * logs).sum(axis=1))
