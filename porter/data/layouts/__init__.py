"""Data sets of labelled photos as people have them, recognised by what is in them. docs/data.md lists the
layouts.

Photos that cannot be scored are named and counted, never dropped; photos that are left out on purpose are
named too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from porter.base.errors import FileError, UsageError, escaped, some
from porter.base.options import LABELS, SPLIT
from porter.base.package import page
from porter.data.arrow import is_saved
from porter.data.classes import Classes
from porter.data.layouts.folders import (
    list_photos,
    names_in_folder,
    read_class_folders,
    read_class_tars,
    read_flat_folder,
    read_flat_tar,
)
from porter.data.layouts.label_files import devkit_beside, read_label_file, with_labels
from porter.data.layouts.lists import is_list, with_labels_of_list
from porter.data.layouts.parquet import read_parquet_photos, read_saved_photos
from porter.data.layouts.tars import is_tar, is_webdataset, list_members, read_webdataset, unpacker
from porter.data.layouts.tfrecord import read_tfrecord_photos
from porter.data.parquet import is_parquet
from porter.data.photos import (
    VALIDATION_IMAGES,
    Bytes,
    Failure,
    FoundPhotos,
    Photo,
    PhotoCandidate,
    PhotoSet,
    is_photo,
    validation_number,
)
from porter.data.tfrecord import is_tfrecord

__all__ = ["open_any_photos", "open_photos"]

T = TypeVar("T")

_LAYOUTS_HINT = f"{page('data.md')} lists the layouts that are read"

_SHARDS = (".parquet", ".tar")
_COMPRESSED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip")
_SPLIT_WORDS = {
    **dict.fromkeys(("val", "valid", "validation"), "validation"),
    **dict.fromkeys(("train", "training"), "train"),
    "test": "test",
}
"""The split by each word for it. Figures are published on validation."""
_SPLIT_IN_NAME = re.compile(rf"(?:^|[-_.])({'|'.join(_SPLIT_WORDS)})(?=[-_.])", re.IGNORECASE)
_TFRECORD_NAME = re.compile(r"\.tfrec(?:ords?)?(?:[-_.]?\d+(?:-of-\d+)?)?$|-\d{5}-of-\d{5}$")
"""How TFRecord files are named: `x.tfrecord`, `x.tfrecord-00000-of-00128`, `train-00000-of-01024`."""
_SHARD_OF = re.compile(r"-(\d{5})-of-(\d{5})(?!\d)")
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
    chosen_split = None if split is None else _parse_split(split)
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
        raise FileError(message, where=photos.path, next=_LAYOUTS_HINT)
    chosen = _take_evenly(photos.candidates, limit)
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
    try:
        photos = open_photos(path, classes=classes, labels=labels, limit=limit, split=split)
        if labels is not None or len(photos.photos) >= len(photos.failed) or not path.is_dir():
            return photos
        reason = f"most photos tell no class: {some(sorted({photo.why for photo in photos.failed}))}"
    except (FileError, UsageError) as error:
        # Labels or a split that were asked for are not left out.
        if labels is not None or split is not None:
            raise
        if not path.is_dir() or not list_photos(path).photos:
            raise
        reason = error.message
    listing = list_photos(path)
    chosen = _take_evenly(listing.photos, limit)
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


def _take_evenly(candidates: Sequence[T], limit: int | None) -> Sequence[T]:
    """Return `limit` of the photos, spread evenly: the first of each of `limit` equal parts."""
    if limit is None or limit >= len(candidates):
        return candidates
    return [candidates[part * len(candidates) // limit] for part in range(limit)]


def _parse_split(word: str) -> str:
    """Return porter's word for a split: `validation` for `val`.

    Raises:
        UsageError: it is no word for a split.
    """
    if word.lower() not in _SPLIT_WORDS:
        raise UsageError(
            f"there is no split '{word}'", where=SPLIT, next=f"write one of {', '.join(_SPLIT_WORDS)}"
        )
    return _SPLIT_WORDS[word.lower()]


def _find_photos(path: Path, classes: Classes, split: str | None) -> FoundPhotos:
    """Return the photos of a folder or file, at least one, with the classes that it states.

    Raises:
        PorterError: as `open_photos`.
    """
    try:
        if not path.exists():
            raise FileError(
                "there is no such file or folder", where=path, next=f"check the path; {_LAYOUTS_HINT}"
            )
        if path.is_dir():
            folder, remaining_split = _choose_split_folder(path, split)
            photos = _read_folder(folder, remaining_split, classes)
        else:
            photos = _read_file(path, split, classes)
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror}", where=path) from None
    if not photos.candidates:
        raise FileError("there are no photos", where=photos.path, next=_LAYOUTS_HINT)
    return photos


def _find_unlabelled(path: Path, classes: Classes, split: str | None) -> FoundPhotos:
    """Return the photos of a folder or a tar without classes, because a list states them. Photos of other
    layouts come with the classes that the layout states.
    """
    if path.is_dir():
        folder, _ = _choose_split_folder(path, split)
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


def _choose_split_folder(path: Path, split: str | None) -> tuple[Path, str | None]:
    """Return the folder in which a split's files are, and the split that remains to be chosen among them by
    their names; None if nothing remains.

    It is the split's own folder, where `path` has folders for splits: `val` beside `train`. It is `data`,
    where Hugging Face's shards are in there. Otherwise it is `path`.

    Raises:
        UsageError: `path` has folders for splits, but none for this one.
    """
    folders, files = names_in_folder(path)
    splits = {name: _SPLIT_WORDS[name.lower()] for name in folders if name.lower() in _SPLIT_WORDS}
    # A folder of photos is a class of them, even if it is called "train".
    if len(splits) == 1 and all(_is_class_folder(path / name) for name in splits):
        splits = {}
    chosen = [name for name, split_of_name in splits.items() if split_of_name == (split or "validation")]
    has_to_choose = split is not None or len(splits) > 1
    if splits and has_to_choose and not chosen:
        problem = (
            f"it has no split '{split}'" if split else "it has several splits, and none is of validation"
        )
        first_split = next(iter(splits))
        raise UsageError(f"{problem}: {', '.join(splits)}", where=path, next=f"add {SPLIT(first_split)}")
    if chosen:
        return path / chosen[0], None
    if splits and len(folders) == 1:  # no split is asked for, and this is the only one
        return path / folders[0], None
    if "data" in folders and not _has_shards(files):
        _, files_of_data = names_in_folder(path / "data")
        if _has_shards(files_of_data):
            return path / "data", split
    return path, split


def _has_shards(files: Iterable[str]) -> bool:
    """Return whether a name is that of a Parquet file or a tar."""
    return any(name.endswith(_SHARDS) for name in files)


def _is_class_folder(folder: Path) -> bool:
    """Return whether a folder with the name of a split is a class, such as `valid` beside `invalid`: photos
    lie directly in it, and they are not ImageNet's validation photos.
    """
    folders, files = names_in_folder(folder)
    photos = [name for name in files if is_photo(name)]
    return not folders and bool(photos) and all(validation_number(name) is None for name in photos)


def _read_folder(path: Path, split: str | None, classes: Classes) -> FoundPhotos:
    """Return the photos of a folder. The layout follows from the files that it holds."""
    listing = list_photos(path)
    if is_saved(path):
        files = [path / name for name in listing.others if name.endswith(".arrow")]
        return _read_shards(read_saved_photos, path, _files_of_split(path, files, split), classes)
    if tables := [path / name for name in listing.others if name.endswith(".parquet")]:
        return _read_shards(read_parquet_photos, path, _files_of_split(path, tables, split), classes)
    in_folders = sum(bool(photo.folder) for photo in listing.photos)
    numbered = sum(not photo.folder and validation_number(photo.name) is not None for photo in listing.photos)
    if classes.imagenet and numbered > in_folders:
        _expect_no_split(split, path)
        return read_flat_folder(path, listing)
    if in_folders:
        _expect_no_split(split, path)
        return read_class_folders(path, listing, classes)
    shards = [path / name for name in listing.others if _TFRECORD_NAME.search(name)]
    if any(map(is_tfrecord, shards)):
        return _read_shards(read_tfrecord_photos, path, _files_of_split(path, shards, split), classes)
    if tars := [path / name for name in listing.others if name.endswith(".tar")]:
        return _read_shards(_read_tars, path, _files_of_split(path, tars, split), classes)
    problems = [f"{len(listing.photos):,} photos lie in no class folder"] if listing.photos else []
    if listing.folders:
        problems.append(f"no photos in the folders {some(listing.folders)}")
    packed_shards = [file.name for file in shards if unpacker(file)]
    if packed := [*(name for name in listing.others if name.endswith(_COMPRESSED)), *packed_shards]:
        problems.append(f"compressed files are not read, so unpack them: {some(packed)}")
    if not_tfrecord := [file.name for file in shards if file.name not in packed_shards]:
        problems.append(f"these do not begin as TFRecord files do: {some(not_tfrecord)}")
    next = f"put those of each class into a folder, or give {LABELS.placeholder}; {_LAYOUTS_HINT}"
    raise FileError(
        "; ".join(problems) or "there are no photos",
        where=path,
        next=next if listing.photos else _LAYOUTS_HINT,
    )


def _read_file(path: Path, split: str | None, classes: Classes) -> FoundPhotos:
    """Return the photos of a file, which is Parquet, a tar or TFRecord by its content.

    Raises:
        FileError: it is none of these.
    """
    readers = (
        (is_parquet, read_parquet_photos),
        (lambda file: is_tar(file) or unpacker(file), _read_tars),
        (is_tfrecord, read_tfrecord_photos),
    )
    for is_of_layout, read in readers:
        if is_of_layout(path):
            return read(path, _files_of_split(path, [path], split), classes)
    raise FileError(
        "it is no folder, no tar, no TFRecord file and no Parquet file", where=path, next=_LAYOUTS_HINT
    )


def _read_shards(
    read: Callable[[Path, Sequence[Path], Classes], FoundPhotos],
    path: Path,
    files: Sequence[Path],
    classes: Classes,
) -> FoundPhotos:
    """Return the photos in the files of a folder. Where their names say how many there are, as
    `x-00003-of-00010.tar` does, those that are not there are named among what is left out.
    """
    photos = read(path, files, classes)
    names = {file.name for file in files}
    # ten names where one is `x-00003-of-00010.tar`
    expected = set[str]()
    for name in names:
        if match := _SHARD_OF.search(name):
            start, end = name[: match.start()], name[match.end() :]
            expected |= {f"{start}-{number:05}-of-{match[2]}{end}" for number in range(int(match[2]))}
    missing = tuple(
        Failure(escaped(name), "this file of the data set is not there") for name in sorted(expected - names)
    )
    return replace(photos, excluded=(*photos.excluded, *missing))


def _read_tars(path: Path, files: Sequence[Path], classes: Classes) -> FoundPhotos:
    """Return the photos of tars: WebDataset's, ImageNet's own of the validation set, or folders within one
    tar.
    """
    shards = [(file, list_members(file)) for file in files]
    if any(is_webdataset(inside) for _, inside in shards):
        return read_webdataset(path, shards, classes)
    names = [member.name for _, inside in shards for member in inside]
    is_numbered = any(is_photo(name) and validation_number(name) is not None for name in names)
    if classes.imagenet and len(shards) == 1 and is_numbered:
        return replace(read_flat_tar(*shards[0]), path=path)
    if classified := read_class_tars(path, shards, classes):
        return classified
    raise FileError(
        "an archive without labels, neither webdataset, class folders nor ImageNet's validation set: it has "
        f"{some(names) or 'no files'}",
        where=path,
        next="unpack it into class folders",
    )


def _files_of_split(path: Path, files: Sequence[Path], split: str | None) -> list[Path]:
    """Return the files of a split, by their names: those of validation if no split is asked for, or all files
    if they name at most one split.

    Raises:
        UsageError: there are no files of the split, or none of validation among several splits.
    """
    # the files by the split that their names have; "" for names without one
    splits: dict[str, list[Path]] = {}
    for file in files:
        match = _SPLIT_IN_NAME.search(file.name)
        split_of_file = _SPLIT_WORDS[match[1].lower()] if match else ""
        splits.setdefault(split_of_file, []).append(file)
    wanted = split or "validation"
    if wanted in splits:
        return splits[wanted]
    if set(splits) == {""}:
        _expect_no_split(split, path)
    elif split is not None:
        raise UsageError(f"it has no files of split '{split}', only {_split_list(splits)}", where=path)
    if len(splits) > 1:
        message = f"files of several splits and none of validation: {_split_list(splits)}"
        raise UsageError(message, where=path, next=f"add {SPLIT(max(splits))}")
    return list(files)


def _expect_no_split(split: str | None, path: Path) -> None:
    """Refuse a split where the data set has none."""
    if split is not None:
        raise UsageError(
            f"it has no splits, and '{split}' is asked for", where=path, next=f"leave out {SPLIT}"
        )


def _split_list(splits: Iterable[str]) -> str:
    """List splits in words, the files without one as `no split`."""
    return ", ".join(sorted(split or "no split" for split in splits))
