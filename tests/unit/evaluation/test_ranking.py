from __future__ import annotations

import numpy as np
import pytest

from porter.evaluation.ranking import average_crops, label_ranks, probabilities, top_classes


@pytest.mark.parametrize("levels", [3, 1_000_000])
def test_ranks_are_those_of_a_stable_sort(levels: int) -> None:
    rng = np.random.default_rng(levels)
    scores = rng.integers(0, levels, (200, 30)).astype(np.float64)
    labels = rng.integers(0, 30, 200)
    order = np.argsort(-scores, axis=1, kind="stable")
    assert np.array_equal(
        label_ranks(scores, [(label,) for label in labels]),
        [list(row).index(y) for row, y in zip(order, labels, strict=True)],
    )
    assert np.array_equal(top_classes(scores), order[:, :5])


def test_of_several_labels_the_best_placed_counts() -> None:
    scores = np.array([[0.1, 0.5, 0.4, 0.0], [0.1, 0.5, 0.4, 0.0]])
    assert label_ranks(scores, [(3, 2, 0), (3,)]).tolist() == [1, 3]


def test_fewer_than_five_classes() -> None:
    assert top_classes(np.array([[0.0, 2.0, 1.0]])).tolist() == [[1, 2, 0]]


def test_nothing_to_rank() -> None:
    assert label_ranks(np.empty((0, 7)), []).shape == (0,)
    assert label_ranks(np.ones((2, 7)), [(), ()]).tolist() == [7, 7]  # photos without labels
    assert top_classes(np.empty((0, 7))).shape == (0, 5)


def test_one_crop_is_ranked_by_its_logits() -> None:
    # Probabilities in float64 cannot tell these apart: the first is 1 for both.
    logits = np.array([[[800.0, 0.0, -1.0]]], np.float32)
    assert average_crops(logits, None).tolist() == [[800.0, 0.0, -1.0]]


def test_ten_crops_average_probabilities_not_logits() -> None:
    logits = np.zeros((1, 10, 2), np.float32)
    logits[0, 0], logits[0, 1:] = (30.0, 0.0), (0.0, 2.0)  # one crop is certain, nine lean the other way
    assert logits.mean(axis=1).argmax() == 0
    mean = average_crops(logits, None)
    assert mean.argmax() == 1
    assert mean[0, 1] == pytest.approx(0.9 / (1 + np.exp(-2.0)))


def test_a_sigmoid_is_what_the_source_ended_with() -> None:
    assert probabilities(np.array([[0.0, 2.0]]), "sigmoid")[0] == pytest.approx([0.5, 1 / (1 + np.exp(-2.0))])
    assert probabilities(np.array([[0.0, 2.0]]), None).sum() == pytest.approx(1.0)
