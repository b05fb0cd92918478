"""The labels of ImageNet's validation photos: from ILSVRC 2012's devkit, ReaL's reassessed ones, or a list
that people have.

The first two were checked on the real files: `ILSVRC2012_devkit_t12.tar.gz`, whose MD5 in torchvision is
fa75699e90414af021442c21a62c3abf, and google-research/reassessed-imagenet's `real.json`; lists only on
generated ones.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from porter.base.errors import FileError
from porter.base.options import LABELS, REAL_LABELS
from porter.data.classes import number_in, wnid_label
from porter.data.labels import imagenet_classes
from porter.data.photos import VALIDATION_IMAGES, Failure, FoundPhotos, validation_number
from porter.files.archives import unpack

_ARCHIVE = "ILSVRC2012_devkit_t12.tar.gz"
_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
_MAX_FILE = 8 << 20  # ReaL's file has 0.4 million bytes, the ground truth 0.2

_LIST_BEGINNINGS = (
    (b"ImageId", "Kaggle's list"),
    (b"ILSVRC2012_val_", "Caffe's list"),
    (b"n", "slim's list"),
)
"""The first bytes of a list of labels, and its name in messages."""


class LabelFile(NamedTuple):
    """Labels from a file beside the photos.

    Attributes:
        name: how messages call them: `ReaL`, `the devkit`.
        labels: class indices of ILSVRC2012_val_00000001, 00000002, ...; none where the labels leave a photo
            out.
    """

    name: str
    labels: tuple[tuple[int, ...], ...]


def read_label_file(path: Path) -> LabelFile:
    """Return the labels of a devkit (the archive, its folder, or the ground truth), of ReaL's real.json, or
    of a list: slim's `imagenet_2012_validation_synset_labels.txt`, Caffe's `val.txt`, Kaggle's
    `LOC_val_solution.csv`. The content tells which it is.

    Raises:
        FileError: it is neither of them, or broken.
    """
    try:
        if path.is_dir():
            return _read_folder(path)
        with path.open("rb") as file:
            head = file.read(64).lstrip()
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror}", where=path, next=_accepted_files()) from None
    if head.startswith(b"["):
        return LabelFile("ReaL", _read_real(path))
    if head.startswith(b"\x1f\x8b"):
        with tempfile.TemporaryDirectory(prefix="porter-devkit-") as name:
            unpack(path, f"ILSVRC2012_devkit_t12/data/{_TRUTH}", Path(name))
            return LabelFile("the devkit", _read_devkit(Path(name, _TRUTH)))
    for start, name in _LIST_BEGINNINGS:
        if head.startswith(start):
            return LabelFile(name, _read_list(path, name))
    return LabelFile("the devkit", _read_devkit(path))


def devkit_beside(found: FoundPhotos) -> LabelFile:
    """Return the labels of the devkit that lies where the layout expects it.

    Raises:
        FileError: there is none, or it is broken.
    """
    for folder in found.beside:
        for name in (_ARCHIVE, "ILSVRC2012_devkit_t12", _TRUTH):
            if (folder / name).exists():
                return read_label_file(folder / name)
    message = "the photos do not tell their classes, and there is no devkit beside them"
    raise FileError(message, where=found.path, next=_accepted_files())


def with_labels(found: FoundPhotos, label_file: LabelFile) -> FoundPhotos:
    """Return a data set whose photos have the labels of a file, found by the photos' ImageNet numbers. Photos
    that the file leaves out are excluded.

    Raises:
        FileError: no photo has a number.
    """
    candidates, excluded = [], list(found.excluded)
    numbers = [validation_number(candidate.key) for candidate in found.candidates]
    if not any(numbers):
        message = (
            f"{label_file.name} labels ILSVRC2012_val_00000001 and so on, and no photo here has such a name"
        )
        raise FileError(
            message, where=found.path, next="name the photos as ImageNet does, or leave these labels out"
        )
    for candidate, number in zip(found.candidates, numbers, strict=True):
        # Photos are numbered from 1 on; one without a number has no label here.
        labels = label_file.labels[number - 1] if number else ()
        if number and not labels:
            excluded.append(Failure(candidate.name, f"{label_file.name} gives it no label"))
        elif candidate.place is None:
            candidates.append(candidate)
        else:
            why = "" if labels else "its name has no number of ImageNet's validation set"
            candidates.append(candidate._replace(labels=labels, why=why))
    return replace(
        found,
        layout=f"{found.layout}, labels of {label_file.name}",
        candidates=candidates,
        excluded=tuple(excluded),
    )


def _read_folder(path: Path) -> LabelFile:
    """Return the labels of ImageNet's devkit in one of its folders: from the ground truth there, or in its
    `data`, or in the archive.

    Raises:
        FileError: it has none of these.
    """
    for truth in (path / _TRUTH, path / "data" / _TRUTH):
        if truth.is_file():
            return LabelFile("the devkit", _read_devkit(truth))
    if (path / _ARCHIVE).is_file():
        return read_label_file(path / _ARCHIVE)
    raise FileError(
        f"neither the folder nor its data folder has {_TRUTH}", where=path, next=_accepted_files()
    )


def _read_devkit(truth: Path) -> tuple[tuple[int, ...], ...]:
    """Return the labels of a ground truth, which has an ILSVRC id on each line, in the order of the photos'
    names. The ids 1 to 1000 are not in the order of wnids.
    """
    lines = _read_text(truth).split()
    are_ids = all(line.isascii() and line.isdigit() and len(line) <= 4 for line in lines)
    if len(lines) != VALIDATION_IMAGES or not are_ids:
        message = (
            f"no ground truth of ImageNet's validation set: {VALIDATION_IMAGES:,} numbers expected, "
            "one per line"
        )
        raise FileError(message, where=truth, next=_accepted_files())
    by_id = {entry.ilsvrc: label for label, entry in enumerate(imagenet_classes())}
    ids = [int(line) for line in lines]
    if unknown := set(ids) - by_id.keys():
        raise FileError(f"ILSVRC ids are from 1 to {len(by_id)}, got {min(unknown)}", where=truth)
    return tuple((by_id[number],) for number in ids)


def _read_list(path: Path, name: str) -> tuple[tuple[int, ...], ...]:
    """Return the labels of a list with a photo on each line: its wnid; its name and its class from 0 in the
    order of wnids; or its name, a comma, and boxes that begin with its wnid.
    """
    lines = _read_text(path).split("\n")
    if name == "Kaggle's list":
        lines = lines[1:]  # without the heading
    labels: dict[int, int] = {}
    for number, line in enumerate(filter(None, map(str.strip, lines)), 1):
        photo, label = _parse_line(line, number)
        if photo is None or label is None:
            raise FileError(
                f"{name} has no photo and class in '{line[:60]}'",
                where=f"{path}:{number}",
                next=_accepted_files(),
            )
        labels[photo] = label
    if len(labels) != VALIDATION_IMAGES:
        message = f"{name} of ImageNet's validation set has {VALIDATION_IMAGES:,} photos, got {len(labels):,}"
        raise FileError(message, where=path, next=_accepted_files())
    return tuple((labels[number],) for number in range(1, VALIDATION_IMAGES + 1))


def _parse_line(line: str, number: int) -> tuple[int | None, int | None]:
    """Return the number of a validation photo and its label on a line, each None if the line does not tell
    it: `n01751748`, `ILSVRC2012_val_00000001.JPEG 65`, or `ILSVRC2012_val_00000001,n01751748 111 108 441
    193`.

    Args:
        number: of the line, from 1: a line with a label only is for the photo of this number.
    """
    name, _, label = line.replace(",", " ", 1).partition(" ")
    if not label:
        return (number if number <= VALIDATION_IMAGES else None), wnid_label(name)
    label = label.split()[0]
    number_of_class = number_in(label, digits=3)
    return validation_number(name), wnid_label(label) if number_of_class is None else number_of_class


def _read_real(path: Path) -> tuple[tuple[int, ...], ...]:
    """Return ReaL's lists of class indices in the order of the photos' names. An empty one leaves its photo
    out (ReaL's README).
    """
    try:
        lists = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise FileError(f"not JSON: {error}", where=path, next=_accepted_files()) from None
    classes = range(len(imagenet_classes()))
    if len(lists) != VALIDATION_IMAGES:
        message = f"ReaL's labels are {VALIDATION_IMAGES:,} lists, got {len(lists):,}"
        raise FileError(message, where=path, next=_accepted_files())
    for number, labels in enumerate(lists, start=1):
        if not isinstance(labels, list) or not all(
            type(label) is int and label in classes for label in labels
        ):
            message = (
                f"the labels of ILSVRC2012_val_{number:08} are no list of numbers from 0 to {classes[-1]}"
            )
            raise FileError(message, where=path, next=_accepted_files())
    return tuple(map(tuple, lists))


def _read_text(path: Path) -> str:
    """Return the text of a file of labels; refuse one that is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE + 1)
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror}", where=path) from None
    if len(data) > _MAX_FILE:
        raise FileError(
            f"no labels of ImageNet's validation set: more than {_MAX_FILE:,} bytes",
            where=path,
            next=_accepted_files(),
        )
    return data.decode("utf-8", "replace")


def _accepted_files() -> str:
    """Return the advice that says which files of labels are read."""
    return (
        f"{LABELS} takes the devkit ({_ARCHIVE}, unpacked or not), ReaL's real.json, slim's, Caffe's or "
        f"Kaggle's list; {REAL_LABELS} takes real.json"
    )
