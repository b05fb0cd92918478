from __future__ import annotations

import numpy as np
import pytest

from porter.data.photos import Bytes, Photo
from porter.evaluation.photo_distances import (
    PAIRED_PHOTOS,
    PAIRS_PER_PHOTO,
    PhotoDistances,
    agreement,
    differing_positions,
    merge_distances,
)
from porter.evaluation.results import Accuracy, Differing
from porter.evaluation.scoring import Scored, Scores
from tests.support.arrays import Array

PHOTOS = 50
CLASSES = 1000


def logits() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    source = rng.normal(size=(PHOTOS, 1, CLASSES)).astype(np.float32)
    return source, source + rng.normal(scale=1e-3, size=source.shape).astype(np.float32)


def seen(source: Array, port: Array, positions: range) -> PhotoDistances:
    found = PhotoDistances(PHOTOS)
    found.watch(positions, {"source": source[positions], "port": port[positions]})
    return found


def scores(first: list[int]) -> Scores:
    top = np.tile(np.array(first, np.int32)[:, np.newaxis], 5)
    return Scores(top[:, 0], top[:, 0], np.full(len(top), np.nan), top, np.zeros(top.shape, np.float32))


def test_distances_and_pairs() -> None:
    source, port = logits()
    found = seen(source, port, range(PHOTOS))
    assert found.max_abs == pytest.approx(np.abs(source - port).max(axis=(1, 2)))
    assert found.rel_l2 == pytest.approx(
        np.linalg.norm(source - port, axis=2)[:, 0] / np.linalg.norm(source, axis=2)[:, 0], rel=1e-4
    )
    pairs = np.concatenate(list(found.pairs.values()))
    assert pairs.shape == (PAIRED_PHOTOS * PAIRS_PER_PHOTO, 2) and len(pairs) <= 4000
    assert pairs[7].tolist() == [source[0, 0, 35], port[0, 0, 35]]


def test_photos_without_finite_logits_are_not_compared() -> None:
    source, port = logits()
    port[3, 0, 5] = np.nan
    found = seen(source, port, range(PHOTOS))
    assert np.isnan(found.max_abs).tolist() == [place == 3 for place in range(PHOTOS)]


def test_shares_add_up_to_the_whole() -> None:
    source, port = logits()
    whole, found = (
        seen(source, port, range(PHOTOS)),
        merge_distances([seen(source, port, range(20)), seen(source, port, range(20, PHOTOS))]),
    )
    assert np.array_equal(found.max_abs, whole.max_abs) and np.array_equal(found.rel_l2, whole.rel_l2)
    assert sorted(found.pairs) == sorted(whole.pairs)


def test_agreement_counts_photos_that_both_saw() -> None:
    photos = [Photo(f"{place}", (0,), Bytes(path=None)) for place in range(4)]  # type: ignore[arg-type]
    scored = Scored(
        {"source": scores([1, 2, 3, -1]), "port": scores([1, 5, -1, 4])}, np.ones(4, np.bool_), {}, True, 1.0
    )
    compared = PhotoDistances(4)
    compared.max_abs[:2], compared.rel_l2[:2] = (0.5, 0.25), (0.1, 0.2)
    found = agreement("keras", Accuracy(4, 0.0, 0.0, (0.0, 1.0)), photos, scored, compared)
    assert (found.compared, found.agreeing, found.max_abs, found.rel_l2) == (2, 1, 0.5, 0.2)
    assert found.differing == (Differing("1", (0,), 2, 5),) and differing_positions(scored) == [1]
