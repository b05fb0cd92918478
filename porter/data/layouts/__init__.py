"""Data sets of labelled photos as people have them, recognised by what is in them. docs/data.md lists the layouts.

Photos that cannot be scored are named and counted, never dropped; photos that are left out on purpose are named too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from porter.data.layouts.classes import listed
from porter.data.layouts.found import VALIDATION_IMAGES, Candidate, validation_number
from porter.data.layouts.label_files import devkit_beside, read_labels, relabelled
from porter.data.layouts.listing import list_photos
from porter.data.layouts.recognise import NEXT, find
from porter.data.photos import Bytes, Failure, Photo, PhotoSet
from porter.errors import FileError, UsageError, escaped

__all__ = ["open_any_photos", "open_photos"]

T = TypeVar("T")

_TRAINING = re.compile(r"n\d{8}_\d")
"""How the photos of ImageNet's training set are named."""


def open_photos(path: Path, *, imagenet: bool, classes: int, labels: Path | None = None, limit: int | None = None) -> PhotoSet:
    """The photos of a data set and their labels; no photo is opened.

    Args:
        path: a folder or a file in one of the layouts.
        imagenet: whether the port's classes are ImageNet-1k's, so that wnids, names and ILSVRC's labels are understood.
        classes: how many classes the port tells apart, without a background class.
        labels: a devkit or ReaL's labels, in place of what the data set itself says.
        limit: at most so many photos, spread evenly over all of them.

    Raises:
        UsageError: arguments that do not fit each other, or classes that do not fit the port's.
        FileError: no such path, no layout that porter knows, no photos, none with a label, or files that cannot be read.
        MissingFramework: Parquet files without pyarrow.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"the number of photos is at least 1, got {limit}")
    if labels is not None and not imagenet:
        raise UsageError("label files are ImageNet's, and this port has other classes", where=str(labels))
    found = find(path, imagenet, classes)
    validation = imagenet and _is_validation(found.candidates)
    if labels is not None:
        found = relabelled(found, read_labels(labels))
    elif found.beside and not any(candidate.labels for candidate in found.candidates):
        found = relabelled(found, devkit_beside(found))
    if not any(candidate.labels and candidate.place for candidate in found.candidates):
        reasons = sorted({candidate.why for candidate in found.candidates})
        message = f"none of the {len(found.candidates):,} photos can be scored: {listed(reasons) or 'the labels exclude them'}"
        raise FileError(message, where=str(found.path), next=NEXT)
    chosen = _spread(found.candidates, limit)
    return PhotoSet(
        path=found.path,
        layout=found.layout,
        photos=tuple(Photo(each.name, each.labels, each.place) for each in chosen if each.place is not None and each.labels),
        failed=tuple(Failure(each.name, each.why) for each in chosen if each.place is None or not each.labels),
        excluded=found.excluded,
        validation=validation and len(chosen) == len(found.candidates),
        limit=limit if len(chosen) < len(found.candidates) else None,
        labels=labels,
    )


def open_any_photos(path: Path, *, imagenet: bool, classes: int, labels: Path | None = None, limit: int | None = None) -> PhotoSet:
    """As `open_photos`; but a folder in which most photos tell no class that the port knows gives all its photos without classes,
    and so does one that has no layout.

    Raises:
        PorterError: as `open_photos`.
    """
    try:
        found = open_photos(path, imagenet=imagenet, classes=classes, labels=labels, limit=limit)
        if labels is not None or len(found.photos) >= len(found.failed) or not path.is_dir():
            return found
        why = f"most photos tell no class: {listed(sorted({photo.why for photo in found.failed}))}"
    except (FileError, UsageError) as error:
        if labels is not None or not path.is_dir() or not list_photos(path).photos:
            raise
        why = error.message
    listing = list_photos(path)
    chosen = _spread(listing.photos, limit)
    return PhotoSet(
        path=path,
        layout="photos without classes",
        photos=tuple(Photo(escaped(photo.name), (), Bytes(Path(photo.path))) for photo in chosen if not photo.why),
        failed=tuple(Failure(escaped(photo.name), photo.why) for photo in chosen if photo.why),
        excluded=listing.excluded,
        limit=limit if len(chosen) < len(listing.photos) else None,
        unlabelled=why,
    )


def _is_validation(candidates: Sequence[Candidate]) -> bool:
    """Whether these are ImageNet's 50,000: by their numbers, otherwise by 50 of each class without the names of training photos."""
    if len(candidates) != VALIDATION_IMAGES:
        return False
    numbers = {validation_number(candidate.key) for candidate in candidates}
    if len(numbers - {None}) == VALIDATION_IMAGES:
        return True
    per_class = Counter(candidate.labels for candidate in candidates)
    named = any(_TRAINING.match(candidate.key.rpartition("/")[2]) for candidate in candidates)
    return set(per_class) == {(label,) for label in range(1000)} and set(per_class.values()) == {50} and not named


def _spread(candidates: Sequence[T], limit: int | None) -> Sequence[T]:
    """`limit` of them, spread evenly: the first of each of `limit` equal parts."""
    if limit is None or limit >= len(candidates):
        return candidates
    return [candidates[part * len(candidates) // limit] for part in range(limit)]
