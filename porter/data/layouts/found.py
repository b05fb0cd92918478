"""The common form of all layouts: photos, and what their data set says about them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from porter.data.photos import Bytes, Cell, Failure

VALIDATION_IMAGES = 50_000
_PHOTO_SUFFIXES = (".jpeg", ".jpg", ".jpe", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_NUMBERED = re.compile(r"ILSVRC2012_val_(\d{8})(?!\d)")


class Candidate(NamedTuple):
    """A photo of a data set.

    Attributes:
        name: see porter.data.photos.Photo.
        key: the data set's name of it; ImageNet's own file name has its number in the validation set.
        place: None where it cannot be read.
        labels: empty where the data set has none that the port knows.
        why: the reason for either.
    """

    name: str
    key: str
    place: Bytes | Cell | None
    labels: tuple[int, ...]
    why: str = ""


@dataclass(frozen=True)
class Found:
    """A data set as one of the layouts finds it. See porter.data.photos.PhotoSet.

    Attributes:
        beside: folders that may hold the labels, where the photos' names do not say them.
    """

    path: Path
    layout: str
    candidates: list[Candidate]
    excluded: tuple[Failure, ...] = ()
    beside: tuple[Path, ...] = ()


def is_photo(name: str) -> bool:
    """Whether a file is a photo by its name. A name that begins with a dot belongs to a system or a program."""
    base = name.rpartition("/")[2]
    return base.lower().endswith(_PHOTO_SUFFIXES) and not base.startswith(".")


def validation_number(key: str) -> int | None:
    """A photo's number in ImageNet's validation set, from 1, by its file name; None where the name has none."""
    match = _NUMBERED.match(key.rpartition("/")[2])
    return int(match[1]) if match and 1 <= int(match[1]) <= VALIDATION_IMAGES else None
