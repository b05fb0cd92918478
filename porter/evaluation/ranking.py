"""The ranks of labels, the likeliest classes and their probabilities, computed from logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOP = 5


def probabilities(logits: NDArray[Any], activation: str | None) -> NDArray[np.float64]:
    """Apply the source's own last activation to logits (the classes are the last axis); softmax if it has
    none.
    """
    wide = logits.astype(np.float64)
    if activation == "sigmoid":
        # the sigmoid, without an exponential that overflows
        return np.asarray(0.5 * (1 + np.tanh(0.5 * wide)))
    shares = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def average_crops(logits: NDArray[Any], activation: str | None) -> NDArray[np.float64]:
    """Return scores N x classes for logits N x crops x classes: for one crop the logits, for more crops the
    mean of their probabilities.

    The mean is of probabilities, as in TensorNets' table, the only ten-crop figures that porter's recipes
    cite (its tests/all_imagenet_models.py averages the networks' outputs, which end in a softmax).
    fb.resnet.torch adds the crops' logits instead (`computeScore` in train.lua: its `exp` is commented out).
    """
    if logits.shape[1] == 1:
        return logits[:, 0].astype(np.float64)
    return np.asarray(probabilities(logits, activation).mean(axis=1))


def label_ranks(scores: NDArray[Any], labels: Sequence[tuple[int, ...]]) -> NDArray[np.int32]:
    """Return for each row of `scores` (N x classes) the number of classes before the best of its labels: 0 is
    top-1, below 5 top-5; the number of all classes if no row has a label.

    Equal scores are in the order of their classes, as after a stable sort.
    """
    most = max(map(len, labels), default=0)
    # Photos with fewer labels repeat their first one.
    padded = [[*of_photo, *of_photo[:1] * (most - len(of_photo))] for of_photo in labels]
    labels_by_place = np.array(padded, np.intp).reshape(len(labels), most).T
    classes = np.arange(scores.shape[1])
    ranks = []
    # once for the first label of every photo, once for the second, ...
    for one_label in labels_by_place[:, :, np.newaxis]:
        label_scores = np.take_along_axis(scores, one_label, axis=1)
        is_before = (scores > label_scores) | ((scores == label_scores) & (classes < one_label))
        ranks.append(is_before.sum(axis=1))
    if not ranks:
        return np.full(len(labels), scores.shape[1], np.int32)
    return np.asarray(np.min(ranks, axis=0).astype(np.int32))


def top_classes(scores: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the five best classes of each row (all if there are fewer), best first; equal ones are in the
    order of the classes.
    """
    left = scores.copy()
    rows = np.arange(len(scores))
    columns = []
    for _ in range(min(TOP, scores.shape[1])):  # several times as fast as sorting all classes
        columns.append(left.argmax(axis=1))  # the first of equal ones
        left[rows, columns[-1]] = -np.inf
    return np.stack(columns, axis=1).astype(np.int32)
