"""The details of an evaluation for a report: pairs of logits, and a few photos with the classes seen in
them.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from io import BytesIO
from typing import Annotated

import numpy as np
from pydantic import Field

from porter.base.errors import FileError
from porter.data.photo_bytes import read_bytes
from porter.data.photo_decoding import open_image
from porter.data.photos import Photo, take_evenly
from porter.evaluation.photo_distances import (
    PAIRED_PHOTOS,
    PAIRS_PER_PHOTO,
    PORT_ROLE,
    SOURCE_ROLE,
    PhotoDistances,
    differing_positions,
)
from porter.evaluation.scoring import Scored, Scores
from porter.files import write_whole
from porter.port import DETAILS, StoredPort

MAX_PAIRS = PAIRED_PHOTOS * PAIRS_PER_PHOTO
PHOTOS = 12
THUMBNAIL = 128
"""The pixels of a thumbnail's longer side."""

OptionalNumber = float | None


@dataclass(frozen=True)
class LikelyClass:
    """One of a photo's likeliest classes."""

    index: int
    name: str | None
    probability: OptionalNumber


@dataclass(frozen=True)
class SamplePhoto:
    """A photo with the likeliest classes of both frameworks; `source` is None if it was not run.

    `labels` are as in porter.data.photos.Photo, `thumbnail` is a JPEG in base64, or None where the photo
    cannot be read any more.
    """

    name: str
    labels: tuple[int, ...]
    thumbnail: str | None
    source: Annotated[tuple[LikelyClass, ...], Field(max_length=5)] | None
    port: Annotated[tuple[LikelyClass, ...], Field(max_length=5)]


@dataclass(frozen=True)
class Details:
    """The content of evaluation.json. `pairs` are sampled logits of the source and of the port."""

    pairs: (
        Annotated[tuple[tuple[OptionalNumber, OptionalNumber], ...], Field(max_length=MAX_PAIRS)] | None
    ) = None
    photos: Annotated[tuple[SamplePhoto, ...], Field(max_length=PHOTOS)] | None = None


def write_details(
    port: StoredPort, photos: tuple[Photo, ...], scored: Scored, distances: PhotoDistances | None
) -> None:
    """Write `evaluation.json` into the port's folder: Details.

    Raises:
        FileError: the folder cannot be written.
    """
    by_photo = {} if distances is None else distances.pairs
    pairs = tuple(pair for position in sorted(by_photo) for pair in by_photo[position].tolist())
    samples = tuple(
        _sample(port, photos[position], position, scored) for position in _choose_positions(scored)
    )
    write_whole(
        port.folder / DETAILS, json.dumps(asdict(Details(pairs, samples)), indent=1, allow_nan=False) + "\n"
    )


def _choose_positions(scored: Scored) -> list[int]:
    """Return the positions of the photos that a report shows: some in which source and port see different
    classes, then wrong ones, then right ones, each kind spread over the set.

    Each kind except the last takes at most half of the remaining places.
    """
    ranks = scored.models[PORT_ROLE].ranks
    differing = differing_positions(scored) if SOURCE_ROLE in scored.models else []
    differing_set = set(differing)
    # -1 is the rank of a photo that failed.
    wrong = [position for position in np.flatnonzero(ranks > 0).tolist() if position not in differing_set]
    right = [position for position in np.flatnonzero(ranks == 0).tolist() if position not in differing_set]
    chosen = [*take_evenly(differing, PHOTOS // 2)]
    chosen += take_evenly(wrong, (PHOTOS - len(chosen)) // 2)
    # The last kind takes what is left.
    return [*chosen, *take_evenly(right, PHOTOS - len(chosen))]


def _sample(port: StoredPort, photo: Photo, position: int, scored: Scored) -> SamplePhoto:
    """Return a photo for a report: its thumbnail, its labels, and the likeliest classes by the port and, if
    it ran, by the source.
    """
    scores_of_source = scored.models.get(SOURCE_ROLE)
    source = None if scores_of_source is None else _likeliest_classes(port, scores_of_source, position)
    return SamplePhoto(
        photo.name,
        photo.labels,
        _thumbnail(photo),
        source,
        _likeliest_classes(port, scored.models[PORT_ROLE], position),
    )


def _likeliest_classes(port: StoredPort, scores: Scores, position: int) -> tuple[LikelyClass, ...]:
    """Return the likeliest classes of a photo, best first; fewer than five if the port has fewer."""
    classes = []
    for row, share in zip(scores.top[position].tolist(), scores.shares[position].tolist(), strict=True):
        if row >= 0:
            label = port.record.label_of(row)
            classes.append(LikelyClass(row, label.name if label else None, share))
    return tuple(classes)


def _thumbnail(photo: Photo) -> str | None:
    """Make a small JPEG of a photo, in base 64; None if the photo cannot be read any more."""
    try:
        image = open_image(read_bytes(photo.place))
    except FileError:  # the photo was deleted after it was scored
        return None
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    file = BytesIO()
    image.save(file, "JPEG", comment=b"")  # not the photo's own
    return base64.b64encode(file.getvalue()).decode()
