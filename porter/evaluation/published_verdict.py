"""The verdict on a measured accuracy beside the published one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from porter.data.labels import IMAGENET
from porter.data.photos import VALIDATION_IMAGES, PhotoSet
from porter.evaluation.photo_options import Options
from porter.evaluation.results import Accuracy, Judgement
from porter.port import Record
from porter.recipe import Member, Published

REPRODUCED = 0.05
"""Percentage points: 25 of 50,000 photos, more than other decoders and other arithmetic change."""


def published_figure(record: Record, member: Member | None) -> Published | None:
    """Return the recipe's published figure for a port's variant and zoo; None if the port has other
    classes.
    """
    return member.zoo.published.get(member.variant) if member and record.labels == IMAGENET else None


def obstacles(
    side: int, photos: PhotoSet, accuracy: Accuracy, options: Options, published: Published, complete: bool
) -> list[str]:
    """List why a measurement cannot be compared with a published figure, which is of a single crop, in
    float32, over all 50,000 photos.

    Args:
        side: of the squares that the model was fed.
    """
    has_several_labels = any(len(photo.labels) > 1 for photo in photos.photos)
    # ReaL gives several labels, or none
    relabelled = has_several_labels or bool(photos.excluded and photos.labels is not None)
    left_out = () if relabelled else photos.excluded
    is_validation_set = photos.validation and accuracy.images == VALIDATION_IMAGES
    first_left_out = "; ".join(map(str, left_out[:1]))
    # each reason, and whether it holds
    reasons = {
        "it was interrupted": not complete,
        f"{accuracy.images:,} images, not the {VALIDATION_IMAGES:,} of ImageNet's validation set": (
            not is_validation_set
        ),
        "labels other than the set's own": relabelled,
        f"{len(left_out)} left out: {first_left_out}": bool(left_out),
        f"{options.crops} crops, published is one": options.crops != 1,
        f"{options.run.precision}, published is float32": options.run.precision != "fp32",
        f"fed {side}x{side}, published at {published.size}x{published.size}": side != published.size,
    }
    return [why for why, holds in reasons.items() if holds]


def obstacle_of_protocol(record: Record) -> list[str]:
    """Say why photos are not prepared as they were for the published figure; [] if they are."""
    owner = {"user": "your own", "file": "the file's"}.get(record.protocol_by or "")
    return [f"the preprocessing is {owner}, and not the zoo's"] if owner else []


def judge(
    accuracy: Accuracy, published: Published | None, against: Sequence[str], notes: Sequence[str] = ()
) -> Judgement:
    """Judge a measured accuracy against the published one, and return the verdict with a sentence:
    `reproduced`, `off by`, `not comparable`, or that there is no published figure.

    Args:
        against: the obstacles to a comparison.
        notes: other facts about it.
    """
    low, high = accuracy.ci95
    measured = f"top-1 {accuracy.top1:.3f}, at 95 % between {low:.2f} and {high:.2f}"
    if published is None:
        return Judgement(
            "no published figure", f"{measured}; porter knows no published accuracy for this model"
        )
    figure = f"published {published.top1:.3f} ({published.source})"
    if published.note:
        notes = [*notes, published.note]
    if against:
        return Judgement("not comparable", "; ".join([f"with the {figure}", *against, measured, *notes]))
    difference = accuracy.top1 - published.top1
    # Published figures have three decimals; 1e-9 is for their binary rounding.
    verdict = "reproduced" if abs(difference) <= REPRODUCED + 1e-9 else f"off by {difference:+.2f}"
    return Judgement(verdict, "; ".join([measured, figure, *notes]))


def notes_on_weights(record: Record, member: Member | None) -> list[str]:
    """Return a note if the published figure is of a file that the port was not made from, or if its record
    does not tell.
    """
    file = member.file if member else None
    published = record.source.is_published(file)
    if file is None or published:
        return []
    name = PurePosixPath(file.member or file.name).name
    if published is None:
        note = (
            f"the port does not record whether its {record.source.file} is the published {name}: "
            "convert again"
        )
        return [note]
    return [f"the port was made from {record.source.file}, which is not the published {name}"]
