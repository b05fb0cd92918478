"""TFRecord shards as TensorFlow's users have them: slim's (`image/encoded`, `image/class/label`) and those of
TensorFlow Datasets.

Tested on files that TensorFlow wrote, with the features and in the order of these two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from porter.base.errors import FileError, escaped
from porter.data.classes import Classes, named_labels, wnid_label
from porter.data.photos import FoundPhotos, PhotoCandidate, Sealed
from porter.data.tfrecord import Example, TfRecord, read_example, records

_PHOTOS = ("image/encoded", "image")
_LABELS = ("image/class/label", "label")
_WNIDS = ("image/class/synset", "image/class/label", "label")
_FILES = ("image/filename", "file_name")
_NAMES = ("labels.txt", "label.labels.txt")
"""The files beside the shards that name the classes: slim's `0:daisy` on each line, and that of TensorFlow
Datasets, a name on each line.
"""
_NUMBERED = re.compile(r"([0-9]{1,9}):(.*)")
_MAX_NAMES = 1 << 20


class _Row(NamedTuple):
    shard: Path
    number: int
    record: TfRecord
    example: Example | str


def tfrecord(path: Path, files: Sequence[Path], classes: Classes) -> FoundPhotos:
    """Photos in the order of the files and of the records in each.

    A synset is a wnid. A number is one of the names in `labels.txt` or `label.labels.txt` beside the shards:
    the one with this number, or on this line, from 0, where the lines have no numbers. Without these, numbers
    of ImageNet are in the order of wnids: slim's from 1, unless a photo has 0, TensorFlow Datasets' from 0.
    Other numbers count from 0, or from 1 where the last one is the number of classes.

    Raises:
        FileError: a file cannot be read, it does not say which number a name has, or see
            porter.data.classes.named_labels.
    """
    rows: list[_Row] = []
    for shard in files:
        with shard.open("rb") as file:
            for number, record in enumerate(records(file, shard)):
                rows.append(
                    _Row(
                        shard,
                        number,
                        record,
                        read_example(file, record, _PHOTOS, (*_LABELS, *_WNIDS, *_FILES)),
                    )
                )
    known = _named(path if path.is_dir() else path.parent, classes)
    first = _first(rows, classes)
    return FoundPhotos(path, "TFRecord", [_candidate(row, classes, known, first) for row in rows])


def _candidate(
    row: _Row, classes: Classes, known: Mapping[int, int | None] | None, first: int
) -> PhotoCandidate:
    """A photo of a record."""
    name = f"{escaped(row.shard.name)}#{row.number}"
    example = row.example
    if isinstance(example, str):
        return PhotoCandidate(name, "", None, (), example)
    photo, values = example.photo, example.values
    key = next(
        (value.decode("utf-8", "replace") for word in _FILES if isinstance(value := values.get(word), bytes)),
        "",
    )
    if photo is None:
        return PhotoCandidate(name, key, None, (), f"it has no feature {' or '.join(_PHOTOS)}")
    place = Sealed(
        row.shard, photo.start, photo.end - photo.start, row.record.start, row.record.end - row.record.start
    )
    label = _label(example, classes, known, first)
    said = next((values[word] for word in (*_LABELS, *_WNIDS) if word in values), None)
    shown = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    why = "it has no label" if said is None else f"its label '{escaped(shown[:40])}' is no class of the port"
    return PhotoCandidate(name, key, place, () if label is None else (label,), why)


def _label(
    example: Example, classes: Classes, known: Mapping[int, int | None] | None, first: int
) -> int | None:
    """The row of the port that a record's label is."""
    if classes.imagenet:
        for word in _WNIDS:
            value = example.values.get(word)
            if (
                isinstance(value, bytes)
                and (label := wnid_label(value.decode("utf-8", "replace"))) is not None
            ):
                return label
    number = _number(example)
    if number is None:
        return None
    if known is not None:
        return known.get(number)
    return number - first if 0 <= number - first < classes.count else None


def _number(example: Example) -> int | None:
    return next((value for word in _LABELS if isinstance(value := example.values.get(word), int)), None)


def _first(rows: Sequence[_Row], classes: Classes) -> int:
    """The number of the first class."""
    numbers = {
        number
        for row in rows
        if isinstance(row.example, Example) and (number := _number(row.example)) is not None
    }
    slims = any(isinstance(row.example, Example) and _LABELS[0] in row.example.values for row in rows)
    if 0 in numbers or not numbers:
        return 0
    return int(classes.count in numbers or (slims and classes.imagenet))


def _named(folder: Path, classes: Classes) -> Mapping[int, int | None] | None:
    """The rows that the numbers of a data set are, by the file that names its classes; None without one."""
    for name in _NAMES:
        file = folder / name
        if file.is_file():
            try:
                with file.open("rb") as opened:
                    text = opened.read(_MAX_NAMES).decode("utf-8", "replace")
            except OSError as error:
                raise FileError(f"cannot be read: {error.strerror}", where=file) from None
            names = _numbered([line.strip() for line in text.rstrip().split("\n")], str(file))
            return dict(zip(names, named_labels(list(names.values()), classes, str(file)), strict=True))
    return None


def _numbered(lines: Sequence[str], where: str) -> dict[int, str]:
    """The names in a list of names by their numbers, in the order of the numbers."""
    matches = [_NUMBERED.fullmatch(line) for line in lines if line]
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
