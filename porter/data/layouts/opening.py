"""Opens a data set of labelled photos.

Photos that cannot be scored are named and counted, never dropped; photos that are left out on purpose are
named too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from porter.base.errors import FileError, PorterError, UsageError, escaped, some
from porter.data.classes import Classes
from porter.data.layouts.folders import list_photos, read_flat_tar
from porter.data.layouts.label_files import devkit_beside, read_label_file, with_labels
from porter.data.layouts.lists import is_list, with_labels_of_list
from porter.data.layouts.read_layout import LAYOUTS_HINT, read_file, read_folder
from porter.data.layouts.splits import choose_split_folder, parse_split
from porter.data.layouts.webdataset import is_webdataset
from porter.data.photos import (
    VALIDATION_IMAGES,
    Bytes,
    Failure,
    FoundPhotos,
    Photo,
    PhotoCandidate,
    PhotoSet,
    take_evenly,
    validation_number,
)
from porter.data.tar_file import is_tar, list_members

_TRAINING_PHOTO = re.compile(r"n\d{8}_\d")
"""How the photos of ImageNet's training set are named."""


def open_photos(
    path: Path,
    *,
    classes: Classes,
    labels: Path | None = None,
    limit: int | None = None,
    split: str | None = None,
) -> PhotoSet:
    """Find the photos of a data set and their labels, and return them, with those that cannot be scored and
    the reason; no photo is opened.

    Args:
        path: a folder or a file in one of the layouts.
        classes: those that the port tells apart.
        labels: a list of photos and their classes, a devkit, ReaL's labels or ImageNet's lists, in place of
            what the data set itself says.
        limit: at most so many photos, spread evenly over all of them.
        split: of a data set that has several: `train`, `validation` (`val`) or `test`; None for validation,
            or its only one.

    Raises:
        UsageError: arguments that do not fit each other, or classes that do not fit the port's.
        FileError: no such path, no layout that porter knows, no photos, none with a label, or files that
            cannot be read.
        NotInstalled: Parquet files without pyarrow.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"expected at least 1 photo, got {limit}")
    chosen_split = None if split is None else parse_split(split)
    photos, labels_of_imagenet = _find_for_labels(path, classes, chosen_split, labels)
    validation = classes.imagenet and _is_validation(photos.candidates)
    if labels_of_imagenet is not None:
        photos = with_labels(photos, read_label_file(labels_of_imagenet))
    elif photos.beside and not any(candidate.labels for candidate in photos.candidates):
        photos = with_labels(photos, devkit_beside(photos))
    if not any(candidate.labels and candidate.place for candidate in photos.candidates):
        reasons = sorted({candidate.why for candidate in photos.candidates})
        message = (
            f"none of the {len(photos.candidates):,} photos can be scored: "
            f"{some(reasons) or 'the labels exclude them'}"
        )
        raise FileError(message, where=photos.path, next=LAYOUTS_HINT)
    chosen = take_evenly(photos.candidates, limit)
    return PhotoSet(
        path=photos.path,
        layout=photos.layout,
        photos=tuple(
            Photo(candidate.name, candidate.labels, candidate.place)
            for candidate in chosen
            if candidate.place is not None and candidate.labels
        ),
        failed=tuple(
            Failure(candidate.name, candidate.why)
            for candidate in chosen
            if candidate.place is None or not candidate.labels
        ),
        excluded=photos.excluded,
        validation=validation and len(chosen) == len(photos.candidates),
        limit=limit if len(chosen) < len(photos.candidates) else None,
        labels=labels,
    )


def _find_for_labels(
    path: Path, classes: Classes, split: str | None, labels: Path | None
) -> tuple[FoundPhotos, Path | None]:
    """Return the photos of a data set, and the file that has ImageNet's labels for them, if `labels` is one.
    If it is a list of photos and classes, they have their classes from it already.

    Raises:
        PorterError: as `open_photos`.
    """
    if labels is None:
        return _find_photos(path, classes, split), None
    if not labels.exists():
        raise FileError("there is no such file", where=labels, next="check the path")
    if labels.is_file() and is_list(labels):
        return with_labels_of_list(_find_unlabelled(path, classes, split), labels, classes), None
    if not classes.imagenet:
        raise UsageError(
            "this is no list of photos and classes, and ImageNet's labels do not fit this port's classes",
            where=labels,
            next="leave it out, or give a list of photos with their classes",
        )
    return _find_photos(path, classes, split), labels


def open_any_photos(
    path: Path,
    *,
    classes: Classes,
    labels: Path | None = None,
    limit: int | None = None,
    split: str | None = None,
) -> PhotoSet:
    """Open photos as `open_photos` does, or, for a study that can do without labels, without classes: where a
    folder has no layout, or most photos in it tell no class that the port knows. `unlabelled` then says why.

    Raises:
        PorterError: as `open_photos`.
    """
    unopened: PorterError | None = None
    try:
        photos = open_photos(path, classes=classes, labels=labels, limit=limit, split=split)
        if labels is not None or len(photos.photos) >= len(photos.failed) or not path.is_dir():
            return photos
        reason = f"most photos tell no class: {some(sorted({photo.why for photo in photos.failed}))}"
    except (FileError, UsageError) as error:
        # Labels or a split that were asked for are not left out.
        if labels is not None or split is not None or not path.is_dir():
            raise
        unopened, reason = error, error.message
    listing = list_photos(path)
    if unopened is not None and not listing.photos:
        raise unopened
    chosen = take_evenly(listing.photos, limit)
    return PhotoSet(
        path=path,
        layout="photos without classes",
        photos=tuple(
            Photo(escaped(photo.name), (), Bytes(Path(photo.path))) for photo in chosen if not photo.why
        ),
        failed=tuple(Failure(escaped(photo.name), photo.why) for photo in chosen if photo.why),
        excluded=listing.excluded,
        limit=limit if len(chosen) < len(listing.photos) else None,
        unlabelled=reason,
    )


def _is_validation(candidates: Sequence[PhotoCandidate]) -> bool:
    """Return whether these are ImageNet's 50,000 validation photos: by their numbers, otherwise by 50 of each
    class and no names of training photos.
    """
    if len(candidates) != VALIDATION_IMAGES:
        return False
    numbers = {validation_number(candidate.key) for candidate in candidates}
    if len(numbers - {None}) == VALIDATION_IMAGES:
        return True
    per_class = Counter(candidate.labels for candidate in candidates)
    has_training_names = any(
        _TRAINING_PHOTO.match(candidate.key.rpartition("/")[2]) for candidate in candidates
    )
    return (
        set(per_class) == {(label,) for label in range(1000)}
        and set(per_class.values()) == {50}
        and not has_training_names
    )


def _find_photos(path: Path, classes: Classes, split: str | None) -> FoundPhotos:
    """Return the photos of a folder or file, at least one, with the classes that it states.

    Raises:
        PorterError: as `open_photos`.
    """
    try:
        if not path.exists():
            raise FileError(
                "there is no such file or folder", where=path, next=f"check the path; {LAYOUTS_HINT}"
            )
        if path.is_dir():
            folder, remaining_split = choose_split_folder(path, split)
            photos = read_folder(folder, remaining_split, classes)
        else:
            photos = read_file(path, split, classes)
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror}", where=path) from None
    if not photos.candidates:
        raise FileError("there are no photos", where=photos.path, next=LAYOUTS_HINT)
    return photos


def _find_unlabelled(path: Path, classes: Classes, split: str | None) -> FoundPhotos:
    """Return the photos of a folder or a tar without classes, because a list states them. Photos of other
    layouts come with the classes that the layout states.
    """
    if path.is_dir():
        folder, _ = choose_split_folder(path, split)
        listing = list_photos(folder)
        if listing.photos:
            photos = [
                PhotoCandidate(escaped(photo.name), photo.name, photo.place, (), photo.why)
                for photo in listing.photos
            ]
            return FoundPhotos(folder, "folder", photos, listing.excluded)
    elif path.is_file() and is_tar(path) and not is_webdataset(inside := list_members(path)):
        return replace(read_flat_tar(path, inside), layout="tar")
    return _find_photos(path, classes, split)
