"""The figures of a port, of what its pass measured."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import compress

import numpy as np

from porter.base.ways_to_run import FP32
from porter.data.photos import Failure, PhotoSet
from porter.data.protocol_words import input_in_words, protocol_in_words
from porter.evaluation.intervals import wilson
from porter.evaluation.measuring import Entrant, Measured
from porter.evaluation.photo_distances import PLAIN_ROLE, PORT_ROLE, SOURCE_ROLE, agreement
from porter.evaluation.photo_options import Options
from porter.evaluation.protocol import notes_on_proportion
from porter.evaluation.published_verdict import (
    judge,
    notes_on_weights,
    obstacle_of_protocol,
    obstacles,
    published_figure,
)
from porter.evaluation.results import Accuracy, Evaluation
from porter.evaluation.scoring import Scored
from porter.recipe import Member
from porter.source.photo_protocol import protocol_doubt


def make_evaluation(
    entrant: Entrant,
    photos: PhotoSet,
    options: Options,
    measured: Measured,
    member: Member | None,
    relabelled: PhotoSet | None,
) -> Evaluation:
    """Return the result of a port, with the verdict on the published figure, the agreement with the source if
    that ran beside it, and warnings.

    Args:
        photos: the data set.
        member: the recipe's variant, which has the published figure; None if there is none.
        relabelled: the same photos with ReaL's labels, whose figures stand beside the others.
    """
    record, protocol, scored = entrant.port.record, entrant.protocol, measured.scored
    accuracy = _accuracy(scored, PORT_ROLE, len(photos.failed))
    published = published_figure(record, member)
    against: list[str] = []
    if published:
        against = obstacle_of_protocol(record) + obstacles(
            protocol.square, photos, accuracy, options, published, scored.complete
        )
    judgement = judge(accuracy, published, against, notes_on_weights(record, member))
    beside = None
    if measured.compared is not None:
        of_source = _accuracy(scored, SOURCE_ROLE, len(photos.failed))
        beside = agreement(measured.reference, of_source, photos.photos, scored, measured.compared)
    real = None
    if relabelled is not None:
        real = _accuracy_with_labels(photos, relabelled, scored, record.background)
    run, tried = measured.way.run, measured.way.tried
    reached_photos = tuple(compress(photos.photos, scored.reached))
    return Evaluation(
        **vars(accuracy),
        **vars(judgement),
        photos=(str(photos.path), photos.layout),
        failed=_failures(photos, scored),
        excluded=photos.excluded,
        classes_present=replace(photos, photos=reached_photos).classes,
        protocol=protocol_in_words(protocol, options.crops),
        preprocess=asdict(protocol),
        fed=input_in_words(protocol, protocol.square, protocol.square),
        crops=options.crops,
        precision=run.precision,
        device=options.device,
        source=beside,
        published=asdict(published) if published else None,
        expected=None,
        ok=True,
        complete=scored.complete,
        per_second=int(scored.reached.sum()) / scored.seconds,
        limit=photos.limit,
        split=options.split,
        labels=None if photos.labels is None else str(photos.labels),
        class_names=None if options.class_names is None else str(options.class_names),
        warnings=_warnings(entrant, photos, measured),
        classes=record.classes,
        run=run.words,
        tried=tried,
        # of the port in fp32 beside a faster run
        fp32=_accuracy(scored, PORT_ROLE if run == FP32 else PLAIN_ROLE, len(photos.failed))
        if tried
        else None,
        real=real,
        real_labels=None if relabelled is None else str(relabelled.labels),
        waited=None if measured.way.network is None else scored.waited / scored.seconds,
        network=measured.way.network,
    )


def _warnings(entrant: Entrant, photos: PhotoSet, measured: Measured) -> tuple[str, ...]:
    """Return what a reader of the figures has to know: what is assumed of the photos' preparation, where the
    run went on, and on how many photos the source failed.
    """
    record = entrant.port.record
    warnings = [
        *protocol_doubt(record, record.zoo, record.input.size),
        *notes_on_proportion(record, entrant.protocol),
        *measured.warnings,
    ]
    if measured.earlier:
        warnings.append(
            f"went on at photo {measured.earlier:,} of {len(photos.photos):,}, where an earlier run had ended"
        )
    if measured.compared is not None and (lost := measured.scored.models[SOURCE_ROLE].failed):
        warnings.append(f"the source failed on {len(lost):,} photos, such as {lost[min(lost)]}")
    return tuple(warnings)


def _accuracy(scored: Scored, model: str, failed: int) -> Accuracy:
    """Return the accuracy of a model of the pass over the photos that were reached and those that the data
    set already names as failed.

    Args:
        model: its name in the pass.
        failed: how many photos the data set names as failed; they count as wrong.
    """
    ranks, losses = scored.models[model].ranks, scored.models[model].losses
    images = int(scored.reached.sum()) + failed
    right, among5 = (int(np.count_nonzero((ranks >= 0) & (ranks < top))) for top in (1, 5))
    known_losses = losses[~np.isnan(losses)]
    loss = float(known_losses.mean()) if len(known_losses) else None
    return _shares(right, among5, images, loss)


def _shares(right: int, among5: int, images: int, loss: float | None = None) -> Accuracy:
    """Return the accuracy of so many right answers, and of those among the five likeliest, of all images."""
    return Accuracy(images, 100 * right / images, 100 * among5 / images, wilson(right, images), loss=loss)


def _accuracy_with_labels(
    photos: PhotoSet, relabelled: PhotoSet, scored: Scored, background: bool
) -> Accuracy | None:
    """Return the port's accuracy with other labels of the same photos; None if no photo has one. Photos that
    have none, and those that were not reached, are left out.
    """
    labels_by_place = {photo.place: photo.labels for photo in relabelled.photos}
    # the classes that the port saw in each photo, likeliest first, and the right ones
    answers = [
        (scored.models[PORT_ROLE].top[position], labels_by_place[photo.place])
        for position, photo in enumerate(photos.photos)
        if scored.reached[position] and photo.place in labels_by_place
    ]
    if not answers:
        return None
    right, among5 = (
        # Rows of the logits become labels: slim's background is row 0.
        sum(bool({*likeliest[:top] - background} & {*labels}) for likeliest, labels in answers)
        for top in (1, 5)
    )
    return _shares(right, among5, len(answers))


def _failures(photos: PhotoSet, scored: Scored) -> tuple[Failure, ...]:
    """Return the photos that failed: those that the data set names, then those that could not be scored, in
    their order.
    """
    while_scored = {**scored.failed, **scored.models[PORT_ROLE].failed}
    return (*photos.failed, *(while_scored[position] for position in sorted(while_scored)))
