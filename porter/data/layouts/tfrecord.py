"""TFRecord shards as TensorFlow's users have them: slim's (`image/encoded`, `image/class/label`) and those of
TensorFlow Datasets.

Tested on files that TensorFlow wrote, with the features and in the order of these two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from porter.base.errors import FileError, escaped
from porter.data.classes import Classes, StatedClasses, labels_of_names, no_class_of_port, stated_classes
from porter.data.photos import FoundPhotos, PhotoCandidate, Sealed, photo_candidate
from porter.data.tfrecord_file import Example, Span, iterate_records, read_example

_PHOTO_FEATURES = ("image/encoded", "image")
_LABEL_FEATURES = ("image/class/label", "label")
_WNID_FEATURES = ("image/class/synset", "image/class/label", "label")
_FILE_NAME_FEATURES = ("image/filename", "file_name")
_NAMES_FILES = ("labels.txt", "label.labels.txt")
"""The files beside the shards that name the classes: slim's `0:daisy` on each line, and that of TensorFlow
Datasets, a name on each line.
"""
_NUMBERED_LINE = re.compile(r"([0-9]{1,9}):(.*)")
_MAX_NAMES = 1 << 20


class _RecordRow(NamedTuple):
    """A record of a shard, with its features; `example` is a text that says why it has none that are read."""

    shard: Path
    number: int
    record: Span
    example: Example | str


def read_tfrecord_photos(path: Path, files: Sequence[Path], classes: Classes) -> FoundPhotos:
    """Return the photos in the order of the files and of the records in each.

    A synset is a wnid. A number is one of the names in `labels.txt` or `label.labels.txt` beside the shards:
    the one with this number, or on this line, from 0, where the lines have no numbers. Without these, numbers
    of ImageNet are in the order of wnids: slim's from 1, unless a photo has 0, TensorFlow Datasets' from 0.
    Other numbers count from 0, or from 1 where the last one is the number of classes.

    Raises:
        FileError: a file cannot be read, it does not say which number a name has, or see
            porter.data.classes.labels_of_names.
    """
    values = (*_LABEL_FEATURES, *_WNID_FEATURES, *_FILE_NAME_FEATURES)
    rows: list[_RecordRow] = []
    for shard in files:
        with shard.open("rb") as file:
            for number, record in enumerate(iterate_records(file, shard)):
                example = read_example(file, record, _PHOTO_FEATURES, values)
                rows.append(_RecordRow(shard, number, record, example))
    known = _classes_beside(path if path.is_dir() else path.parent, classes)
    known = known or stated_classes(None, classes, str(path), _first_number(rows, classes))
    return FoundPhotos(path, "TFRecord", [_candidate(row, known) for row in rows])


def _candidate(row: _RecordRow, known: StatedClasses) -> PhotoCandidate:
    """Return the photo of a record: where it lies, its file name and its label, or why it cannot be scored.

    Args:
        known: what the data set's labels stand for.
    """
    name = f"{escaped(row.shard.name)}#{row.number}"
    example = row.example
    if isinstance(example, str):
        return PhotoCandidate(name, "", None, (), example)
    photo, values = example.photo, example.values
    file_names = [value for word in _FILE_NAME_FEATURES if isinstance(value := values.get(word), bytes)]
    key = file_names[0].decode("utf-8", "replace") if file_names else ""
    if photo is None:
        return PhotoCandidate(name, key, None, (), f"it has no feature {' or '.join(_PHOTO_FEATURES)}")
    record = row.record
    place = Sealed(row.shard, photo.start, photo.end - photo.start, record.start, record.end - record.start)
    label = _label_of(example, known)
    stated = next((values[word] for word in (*_LABEL_FEATURES, *_WNID_FEATURES) if word in values), None)
    if stated is None:
        no_label = "it has no label"
    else:
        label_text = stated.decode("utf-8", "replace") if isinstance(stated, bytes) else str(stated)
        no_label = no_class_of_port(label_text)
    return photo_candidate(name, key, place, label, "", no_label)


def _label_of(example: Example, known: StatedClasses) -> int | None:
    """Return the row of the port for a record's label; None if it is no class of the port."""
    for word in _WNID_FEATURES:
        value = example.values.get(word)
        label = known.row_of(value.decode("utf-8", "replace")) if isinstance(value, bytes) else None
        if label is not None:
            return label
    return known.row_of(_stated_number(example))


def _stated_number(example: Example) -> int | None:
    """Return the number of a record's class, as it states it; None if it states none."""
    return next(
        (value for word in _LABEL_FEATURES if isinstance(value := example.values.get(word), int)), None
    )


def _first_number(rows: Sequence[_RecordRow], classes: Classes) -> int:
    """Return the number of the first class in a data set: 0 or 1. It is 1 if no photo has 0, and one has the
    number of the classes or the labels are slim's of ImageNet.
    """
    numbers = {
        number
        for row in rows
        if isinstance(row.example, Example) and (number := _stated_number(row.example)) is not None
    }
    has_slims_label = any(
        isinstance(row.example, Example) and _LABEL_FEATURES[0] in row.example.values for row in rows
    )
    if 0 in numbers or not numbers:
        return 0
    return int(classes.count in numbers or (has_slims_label and classes.imagenet))


def _classes_beside(folder: Path, classes: Classes) -> StatedClasses | None:
    """Return what the numbers of a data set stand for, which a file beside the shards names; None without
    such a file.
    """
    for file in (folder / name for name in _NAMES_FILES):
        if not file.is_file():
            continue
        try:
            with file.open("rb") as opened:
                text = opened.read(_MAX_NAMES).decode("utf-8", "replace")
        except OSError as error:
            raise FileError(f"cannot be read: {error.strerror}", where=file) from None
        names = _names_by_number([line.strip() for line in text.rstrip().split("\n")], str(file))
        rows = labels_of_names(list(names.values()), classes, str(file))
        return StatedClasses(dict(zip(names, rows, strict=True)), classes.imagenet)
    return None


def _names_by_number(lines: Sequence[str], where: str) -> dict[int, str]:
    """Return the names in a file of names by their numbers, in the order of the numbers: of `0:daisy` on each
    line, or of a name on each line, counted from 0.

    Raises:
        FileError: only some lines have a number, or two have the same.
    """
    matches = [_NUMBERED_LINE.fullmatch(line) for line in lines if line]
    if not any(matches) and "" not in lines:
        return dict(enumerate(lines))
    names = {int(match[1]): match[2] for match in matches if match}
    if len(names) < len(matches):
        raise FileError(
            "these lines do not say which number each name has: one is blank, has no number, or the "
            "number of another",
            where=where,
            next="write NUMBER:NAME on each line",
        )
    return dict(sorted(names.items()))
