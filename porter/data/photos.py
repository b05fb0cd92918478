"""Photos and their classes, wherever they are stored: as a layout finds them in a data set, and as they are
scored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")

VALIDATION_IMAGES = 50_000
PHOTO_SUFFIXES = (".jpeg", ".jpg", ".jpe", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_UNREAD_SUFFIXES = (".heic", ".heif", ".avif", ".jxl", ".dng", ".cr2", ".nef", ".arw")
"""Suffixes of photos that porter does not read. They count as failed; without notice, the figures would be
those of fewer photos.
"""
_VALIDATION_NAME = re.compile(r"ILSVRC2012_val_(\d{8})(?!\d)")


@dataclass(frozen=True)
class Bytes:
    """A photo that is a file, or a run of bytes in an uncompressed archive that is read in place.

    Attributes:
        size: in bytes; None for the rest of the file.
    """

    path: Path
    offset: int = 0
    size: int | None = None


@dataclass(frozen=True)
class Cell:
    """A photo in a Parquet file."""

    path: Path
    row_group: int
    row: int


@dataclass(frozen=True)
class Sealed:
    """A photo in a record of a TFRecord file.

    Attributes:
        offset, size: its bytes in the file.
        record, length: the bytes of the record in the file; its checksum comes after them.
    """

    path: Path
    offset: int
    size: int
    record: int
    length: int


PhotoPlace = Bytes | Cell | Sealed


@dataclass(frozen=True)
class Photo:
    """A photo and the classes that count as right.

    Attributes:
        name: as reports give it: the path inside the data set, the member of an archive, or `FILE#ROW`.
        labels: class indices in the order of the port's logits without a background row; one, or with ReaL
            labels several. None in a data set that is taken without classes.
        place: where its bytes are.
    """

    name: str
    labels: tuple[int, ...]
    place: PhotoPlace


@dataclass(frozen=True)
class Failure:
    """A photo that could not be scored, and why. It counts as an image, with a wrong answer."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


@dataclass(frozen=True)
class PhotoSet:
    """A data set as found on disk.

    Attributes:
        layout: what it was recognised as, such as `class folders`.
        photos: in an order that depends only on the data set.
        failed: photos that cannot be scored for reasons seen before they are opened: no label, an unknown
            class.
        excluded: photos that its labels leave out on purpose (ReaL has none for some), which do not count.
        validation: whether it is the whole of ImageNet's validation set, all 50,000 photos of it.
        limit: how many photos were asked for, if the data set has more; None if these are all.
        labels: the file of labels that was used instead of the data set's own.
        unlabelled: why its photos are taken without classes; None if they have classes.
    """

    path: Path
    layout: str
    photos: tuple[Photo, ...]
    failed: tuple[Failure, ...] = ()
    excluded: tuple[Failure, ...] = ()
    validation: bool = False
    limit: int | None = None
    labels: Path | None = None
    unlabelled: str | None = None

    @property
    def classes(self) -> int:
        """How many classes are present."""
        return len({label for photo in self.photos for label in photo.labels})


class PhotoCandidate(NamedTuple):
    """A photo of a data set.

    Attributes:
        name: see porter.data.photos.Photo.
        key: the data set's name of it; ImageNet's own file name has its number in the validation set.
        place: None where it cannot be read.
        labels: empty where the data set has none that the port knows.
        why: the reason why it cannot be scored; empty where it has a place and labels.
    """

    name: str
    key: str
    place: PhotoPlace | None
    labels: tuple[int, ...]
    why: str = ""


def photo_candidate(
    name: str, key: str, place: PhotoPlace | None, label: int | None, unread: str, no_label: str
) -> PhotoCandidate:
    """Return a photo with at most one label.

    Args:
        unread: the reason why it cannot be read, which counts where `place` is None.
        no_label: the reason why it has no label, which counts where `label` is None and it can be read.
    """
    lack = unread if place is None else no_label if label is None else ""
    return PhotoCandidate(name, key, place, () if label is None else (label,), lack)


@dataclass(frozen=True)
class FoundPhotos:
    """A data set as one of the layouts finds it. See porter.data.photos.PhotoSet.

    Attributes:
        beside: folders that may hold the labels, where the photos' names do not say them.
    """

    path: Path
    layout: str
    candidates: list[PhotoCandidate]
    excluded: tuple[Failure, ...] = ()
    beside: tuple[Path, ...] = ()


def is_photo(name: str) -> bool:
    """Return whether a file is a photo by its name. A name that begins with a dot belongs to a system or a
    program.
    """
    base = name.rpartition("/")[2]
    return base.lower().endswith(PHOTO_SUFFIXES + _UNREAD_SUFFIXES) and not base.startswith(".")


def why_unread(name: str) -> str:
    """Return why a photo of this name cannot be read; an empty text if it can."""
    suffix = f".{name.lower().rpartition('.')[2]}"
    return f"porter does not read {suffix}: save it as JPEG or PNG" if suffix in _UNREAD_SUFFIXES else ""


def validation_number(key: str) -> int | None:
    """Return a photo's number in ImageNet's validation set, from 1, by its file name; None if the name has
    none.
    """
    match = _VALIDATION_NAME.match(key.rpartition("/")[2])
    number = int(match[1]) if match else 0
    return number if 1 <= number <= VALIDATION_IMAGES else None


def take_evenly(items: Sequence[T], most: int | None) -> Sequence[T]:
    """Return at most `most` of the items, spread evenly: the first of each of so many equal parts. Return all
    for None.
    """
    if most is None or most >= len(items):
        return items
    return [items[part * len(items) // most] for part in range(most)]
