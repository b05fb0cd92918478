"""Runs any number of models over photos in one pass, and collects their scores for every photo."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import product
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array, NamedArrays
from porter.data.photos import Failure, Photo
from porter.data.preprocess import Preprocess
from porter.evaluation.losses import Losses, log_losses
from porter.evaluation.photo_progress import Progress
from porter.evaluation.ranking import TOP, average_crops, label_ranks, probabilities, top_classes
from porter.frameworks import Classifier

if TYPE_CHECKING:
    from porter.data.pipeline.batching import Batch, Feed

Watch = Callable[[Sequence[int], NamedArrays], None]
"""Called with every batch that has readable photos: their positions, and each model's logits, N x crops x
classes.
"""

ARRAYS = ("ranks", "centre", "losses", "top", "shares")
"""The fields of `Scores` that have a row for each photo."""
_NOT_FINITE = "its logits are not finite"


@dataclass(frozen=True)
class Watching:
    """Who follows a pass.

    Attributes:
        batch: called with every batch that has readable photos.
        so_far: called after every batch, with what gives the scores so far.
    """

    batch: Watch | None = None
    so_far: Callable[[Callable[[], Scored]], None] | None = None


@dataclass(frozen=True)
class Logits:
    """What a model's logits are.

    Attributes:
        background: row 0 is ImageNet's background class, so every label is one row later.
        activation: the source's, after its logits (None for softmax), for probabilities and the average of
            ten crops.
    """

    background: bool = False
    activation: str | None = None

    def row(self, label: int) -> int:
        """Return the row of the logits that is a class."""
        return label + self.background


@dataclass(frozen=True)
class Scores:
    """The scores of one model for every photo, by the photo's position; -1, or nan, if the photo failed or
    was not reached.

    Attributes:
        ranks: the number of classes before the photo's label: 0 is top-1, below 5 top-5. For several crops,
            by their average.
        centre: the same only by the first crop, which is the centre: single-crop figures from a ten-crop
            pass.
        losses: the cross-entropies (porter.evaluation.losses.log_losses), in float64; nan also if the photos
            have no labels.
        top: the five likeliest classes, best first; rows of the logits.
        shares: their probabilities.
        failed: photos whose logits are not finite.
    """

    ranks: NDArray[np.int32]
    centre: NDArray[np.int32]
    losses: Losses
    top: NDArray[np.int32]
    shares: NDArray[np.float32]
    failed: dict[int, Failure] = field(default_factory=dict)


@dataclass(frozen=True)
class Scored:
    """The result of one pass.

    Attributes:
        models: the scores of each model by its name.
        reached: by position, the photos that were scored or failed.
        failed: photos that could not be read, for every model.
        complete: False if Ctrl-C ended it; the other fields are then of the photos so far.
        seconds: wall clock, first photo to last.
        waited: the seconds of these in which nothing could run, because the next photos were not prepared.
    """

    models: Mapping[str, Scores]
    reached: NDArray[np.bool_]
    failed: Mapping[int, Failure]
    complete: bool
    seconds: float
    waited: float = 0.0


def score(
    photos: Sequence[Photo],
    protocol: Preprocess,
    models: Mapping[str, Classifier],
    feed: Feed,
    logits: Mapping[str, Logits] | None = None,
    watching: Watching = Watching(),
) -> Scored:
    """Prepare every photo once and feed it to all `models`, and return their scores by photo. Ctrl-C ends the
    pass and keeps the scores so far.

    Args:
        photos: all with labels, or all without; ranks are then the number of classes.
        models: see porter.frameworks.Engine.classifier; the progress bar shows the first one's top-1. All
            take the `geometry` and the crop of `protocol`.
        logits: what the logits of each model are, if not the defaults.
        watching: who is shown each batch's logits, and the scores so far.

    Raises:
        UsageError, FileError: as porter.data.pipeline.batching.batches.
    """
    from porter.data.pipeline.batching import batches

    stream = batches(photos, protocol, feed)
    tally = _Tally(photos, {name: (logits or {}).get(name, Logits()) for name in models})
    labelled = any(photo.labels for photo in photos)
    rank, world = feed.share
    own_count = -(-len(photos) // world)  # of this process: rounded up
    with Progress(own_count, rank == 0, labelled, feed.done) as progress, closing(stream):
        complete = _pass(stream, models, tally, watching, progress)
    return tally.result(complete)


def merge_scored(parts: Sequence[Scored]) -> Scored:
    """Return the scores of a pass that several processes shared: each scored its part of the same photos, and
    its scores of the others are empty.
    """
    models = {name: _merge_scores([part.models[name] for part in parts]) for name in parts[0].models}
    seconds, waited = max((part.seconds, part.waited) for part in parts)  # of the slowest process
    return Scored(
        models,
        np.any([part.reached for part in parts], axis=0),
        {position: why for part in parts for position, why in part.failed.items()},
        all(part.complete for part in parts),
        seconds,
        waited,
    )


def _merge_scores(parts: Sequence[Scores]) -> Scores:
    """Join one model's scores of several processes. A photo that a process did not reach has -1 for its rank
    and classes there, nan for its loss and 0 for its probabilities, so the largest is that of the process
    that scored it.
    """
    largest = {name: np.fmax.reduce([getattr(part, name) for part in parts]) for name in ARRAYS}
    failed = {position: why for part in parts for position, why in part.failed.items()}
    return Scores(**largest, failed=failed)


def _pass(
    stream: Iterator[Batch],
    models: Mapping[str, Classifier],
    tally: _Tally,
    watching: Watching,
    progress: Progress,
) -> bool:
    """Run the models over all batches; return False if Ctrl-C ended it.

    Each batch is counted after the next one has begun, so that a GPU always has work.
    """

    def count(batch: Batch, begun: Mapping[str, Callable[[], Array]]) -> None:
        """Wait for a batch's logits, and score them."""
        logits = _logits(begun, batch)
        if watching.batch is not None and logits:
            watching.batch(batch.positions, logits)
        progress.advance(len(batch.positions) + len(batch.failed), tally.add(batch, logits))
        if watching.so_far is not None:
            watching.so_far(lambda: tally.result(complete=False))

    last = None
    try:
        while (batch := tally.wait_for_next(stream)) is not None:
            begun = _begin(models, batch)
            if last is not None:
                count(*last)
            last = batch, begun
        if last is not None:
            count(*last)
    except KeyboardInterrupt:
        if last is not None:  # counting a batch twice changes nothing
            count(*last)
        return False
    return True


def _begin(models: Mapping[str, Classifier], batch: Batch) -> dict[str, Callable[[], Array]]:
    """Have every model begin with a batch; return by its name a function that waits for its logits. Without
    readable photos no model begins.
    """
    return {name: model(batch.pixels) for name, model in models.items()} if batch.positions else {}


def _logits(begun: Mapping[str, Callable[[], Array]], batch: Batch) -> NamedArrays:
    """Wait for the logits that the models have begun to compute, and return them by model, photos x crops x
    classes.
    """
    by_model = {name: wait() for name, wait in begun.items()}
    photos = len(batch.positions)
    return {name: logits.reshape(photos, -1, logits.shape[-1]) for name, logits in by_model.items()}


class _Tally:
    """Collects scores by position."""

    def __init__(self, photos: Sequence[Photo], models: Mapping[str, Logits]) -> None:
        self._photos, self._models, self._start, self._waited = photos, models, perf_counter(), 0.0
        self._reached = np.zeros(len(photos), np.bool_)
        self._failed: dict[int, Failure] = {}
        self._scores = {name: unscored(len(photos)) for name in models}

    def wait_for_next(self, stream: Iterator[Batch]) -> Batch | None:
        """Return the next batch, and count how long it was waited for; None at the end."""
        start = perf_counter()
        batch = next(stream, None)
        self._waited += perf_counter() - start
        return batch

    def add(self, batch: Batch, logits: NamedArrays) -> int:
        """Add a batch, and return the number of photos that the first model recognises."""
        right = [
            self._add(batch.positions, self._models[name], self._scores[name], values)
            for name, values in logits.items()
        ]
        self._failed.update(batch.failed)
        for position in (*batch.positions, *(position for position, _ in batch.failed)):
            self._reached[position] = True
        return right[0] if right else 0

    def _add(self, positions: Sequence[int], kind: Logits, scores: Scores, logits: Array) -> int:
        """Score a model's logits (photos x crops x classes) of a batch, and return how many photos it
        recognises. Photos whose logits are not finite are noted as failed.
        """
        finite = np.isfinite(logits).all(axis=(1, 2))
        for index in map(int, np.flatnonzero(~finite)):
            position = positions[index]
            scores.failed[position] = Failure(self._photos[position].name, _NOT_FINITE)
        scored = np.asarray(positions, np.intp)[finite]
        logits = logits[finite]
        labels = [tuple(map(kind.row, self._photos[position].labels)) for position in scored]
        average = average_crops(logits, kind.activation)
        best = top_classes(average)
        # The average of several crops is of probabilities already.
        shares = average if logits.shape[1] > 1 else probabilities(logits[:, 0], kind.activation)
        scores.ranks[scored] = label_ranks(average, labels)
        scores.centre[scored] = label_ranks(logits[:, 0], labels)
        if all(labels):
            scores.losses[scored] = log_losses(logits.astype(np.float64), labels, kind.activation)
        # A port of fewer than five classes leaves the other places as they are.
        scores.top[scored, : best.shape[1]] = best
        scores.shares[scored, : best.shape[1]] = np.take_along_axis(shares, best, axis=1)
        return int((scores.ranks[scored] == 0).sum())

    def result(self, complete: bool) -> Scored:
        """Return the scores so far. Photos that not all models have seen lose theirs: Ctrl-C may have come
        between two models.
        """
        missing, empty = ~self._reached, unscored(len(self._photos))
        for scores, name in product(self._scores.values(), ARRAYS):
            getattr(scores, name)[missing] = getattr(empty, name)[missing]
        return Scored(
            self._scores, self._reached, self._failed, complete, perf_counter() - self._start, self._waited
        )


def unscored(photos: int) -> Scores:
    """Return the scores of a model that has seen no photo."""
    ranks = np.full(photos, -1, np.int32)
    top = np.full((photos, TOP), -1, np.int32)
    return Scores(ranks, ranks.copy(), np.full(photos, np.nan), top, np.zeros((photos, TOP), np.float32))
