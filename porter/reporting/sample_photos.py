"""The sample photos of an evaluation, ready to be shown."""

from __future__ import annotations

import warnings
from base64 import b64decode, b64encode
from dataclasses import dataclass
from io import BytesIO
from itertools import zip_longest

from porter.data.labels import Label
from porter.evaluation.details import LikelyClass, SamplePhoto
from porter.port import Record

MAX_THUMBNAIL_SIDE = 128
MAX_THUMBNAIL_CHARACTERS = 1 << 17


@dataclass(frozen=True)
class Thumbnail:
    """A JPEG as a data: address, with its size in pixels."""

    address: str
    width: int
    height: int


@dataclass(frozen=True)
class Rank:
    """The guesses of both frameworks at one place of their top-5, and whether their classes differ."""

    source: LikelyClass | None
    port: LikelyClass | None
    differs: bool


@dataclass(frozen=True)
class ShownPhoto:
    """A photo as the page shows it. Unless it is `compared`, the source was not run."""

    name: str
    labels: str
    thumbnail: Thumbnail | None
    ranks: tuple[Rank, ...]
    compared: bool


def show(photo: SamplePhoto, record: Record) -> ShownPhoto:
    """Prepare a photo for the page, with the classes of source and port side by side."""
    was_run = photo.source is not None
    ranks = tuple(
        Rank(source, port, was_run and _index_of(source) != _index_of(port))
        for source, port in zip_longest(photo.source or (), photo.port)
    )
    labels = ", ".join(label_name(label, record) for label in photo.labels)
    return ShownPhoto(photo.name, labels, thumbnail(photo.thumbnail), ranks, was_run)


def _index_of(guess: LikelyClass | None) -> int | None:
    """Return the class of a guess; None where there is none."""
    return None if guess is None else guess.index


def label_name(index: int, record: Record) -> str:
    """Name the class of a photo's label, which is counted without a background row."""
    return logit_name(index + record.background, record) if index >= 0 else _name(index, None)


def logit_name(index: int, record: Record) -> str:
    """Name the class of one of the port's logits."""
    return _name(index, record.label_of(index) if index >= 0 else None)


def _name(index: int, label: Label | None) -> str:
    """Name a class by its label, otherwise by its number."""
    return label.name if label else f"class {index}"


def thumbnail(text: str | None) -> Thumbnail | None:
    """Return the JPEG in a record; None where it is no JPEG of at most 128 pixels a side.

    It is encoded again, so that only base64 reaches the page, and only its header is decoded.
    """
    from PIL import Image

    if text is None or len(text) > MAX_THUMBNAIL_CHARACTERS:
        return None
    try:
        data = b64decode(text, validate=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Image.open(BytesIO(data), formats=("JPEG",)) as image:
                width, height = image.size
    except Exception:
        # Pillow's plugins raise any error for a broken file (porter.data.photo_decoding.open_image).
        return None
    if max(width, height) > MAX_THUMBNAIL_SIDE:
        return None
    return Thumbnail(f"data:image/jpeg;base64,{b64encode(data).decode('ascii')}", width, height)
