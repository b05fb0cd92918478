"""The losses of a model's answers, photo by photo and in nats: the log-loss of the true class, and the
entropy of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from porter.evaluation.ranking import probabilities

Losses = NDArray[np.float64]
"""One loss for each photo, in their order; nan where there is none, inf where the logits are not finite."""


def log_losses(
    logits: NDArray[np.float64], labels: Sequence[tuple[int, ...]], activation: str | None
) -> Losses:
    """Return for each photo of `logits` (N x crops x classes) its cross-entropy: minus the logarithm of the
    probability of the photo's labels together. The probability is the mean of the crops'; nothing is rounded
    to 0, so the loss of finite logits is finite.

    If the source ends in a sigmoid, every class is a separate question, and the logarithms of all right
    answers are added.
    """
    # by photo and class, whether it is one of the photo's labels; the same for all crops
    wanted = np.zeros((len(logits), 1, logits.shape[2]), np.bool_)
    for row, labels_of_photo in zip(wanted[:, 0], labels, strict=True):
        row[list(labels_of_photo)] = True
    # the mean over the crops: a sum, less the logarithm of their number
    log_crops = np.log(logits.shape[1])
    if activation == "sigmoid":
        # the logarithm of the right answer's probability for each class: log(1 / (1 + exp(-logit))) of a yes
        log_right = -np.logaddexp(0, np.where(wanted, -logits, logits))
        return np.asarray((log_crops - _log_sum(log_right, 1)).sum(axis=-1)[:, 0])
    log_probabilities = logits - _log_sum(logits, 2)
    log_wanted = np.where(wanted, log_probabilities, -np.inf)
    return np.asarray(log_crops - _log_sum(log_wanted, (1, 2))[:, 0, 0])


def _log_sum(logs: NDArray[np.float64], axes: int | tuple[int, ...]) -> NDArray[np.float64]:
    """Return the logarithm of the sum, along some axes, of numbers that are given by their logarithms,
    without an exponential that overflows; the axes stay, with length 1.
    """
    largest = logs.max(axis=axes, keepdims=True)
    return np.asarray(largest + np.log(np.exp(logs - largest).sum(axis=axes, keepdims=True)))


def entropies(logits: NDArray[np.float64], activation: str | None) -> Losses:
    """Return for each row of `logits` (N x classes) the entropy of the model's answer in nats: 0 if it is
    sure of a class, log(classes) if all are equally likely. After a sigmoid, it is the sum of the entropies
    of all classes, because each is a separate yes or no.

    Args:
        activation: the source's last one; None counts as softmax.
    """
    if activation == "sigmoid":
        return np.asarray((np.logaddexp(0, logits) - probabilities(logits, activation) * logits).sum(axis=1))
    logs = logits - np.logaddexp.reduce(logits, axis=1)[:, np.newaxis]
    return np.asarray(-(np.exp(logs) * logs).sum(axis=1))


def entropy_of(answer: NDArray[np.float64], activation: str | None) -> float:
    """Return the entropy of one answer, as `entropies`, from its probabilities."""
    # after a sigmoid, the yes and the no of every class
    shares = np.stack([answer, 1 - answer]) if activation == "sigmoid" else answer
    # 0 times the logarithm of the smallest number is 0.
    return float(-(shares * np.log(np.maximum(shares, np.finfo(np.float64).tiny))).sum())
