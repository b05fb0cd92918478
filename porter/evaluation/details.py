"""The details of an evaluation for a report: pairs of logits, and a few photos with the classes seen in them."""

from __future__ import annotations

import base64
import json
from io import BytesIO
from typing import Any

from porter.data.labels import class_label
from porter.data.photos import Photo
from porter.data.preprocess import open_image
from porter.data.reading import read_bytes
from porter.errors import FileError
from porter.evaluation.comparison import PORT, SOURCE, Comparison, differing_positions, spread
from porter.evaluation.scoring import Scored, Scores
from porter.files import write_whole
from porter.port import Port

DETAILS = "evaluation.json"
PHOTOS = 12
THUMBNAIL = 128
"""Pixels of the longer side."""


def write_details(port: Port, photos: tuple[Photo, ...], scored: Scored, seen: Comparison | None) -> None:
    """Writes `evaluation.json` into the port's folder.

    It holds `pairs`, [source, port] of sampled logits, and `photos`, at most twelve: name, labels (as in porter.data.photos.Photo),
    `thumbnail`, a JPEG in base64 or null, and the five likeliest classes of `source` (null if it was not run) and `port`.

    Raises:
        FileError: the folder cannot be written.
    """
    pairs = [] if seen is None else [pair for position in sorted(seen.pairs) for pair in seen.pairs[position].tolist()]
    shown = [_photo(port, photos[position], position, scored) for position in _chosen(scored)]
    write_whole(port.folder / DETAILS, json.dumps({"pairs": pairs, "photos": shown}, indent=1, allow_nan=False) + "\n")


def _chosen(scored: Scored) -> list[int]:
    """Photos in which source and port differ, then wrong ones, then right ones, each kind spread over the set.

    Each kind except the last takes at most half of the remaining places.
    """
    ranks = scored.models[PORT].ranks
    differing = differing_positions(scored) if SOURCE in scored.models else []
    wrong = [position for position in (ranks > 0).nonzero()[0].tolist() if position not in set(differing)]
    right = [position for position in (ranks == 0).nonzero()[0].tolist() if position not in set(differing)]
    chosen = spread(differing, PHOTOS // 2)
    chosen += spread(wrong, (PHOTOS - len(chosen)) // 2)
    return chosen + spread(right, PHOTOS - len(chosen))


def _photo(port: Port, photo: Photo, position: int, scored: Scored) -> dict[str, Any]:
    beside = scored.models.get(SOURCE)
    return {
        "name": photo.name,
        "labels": list(photo.labels),
        "thumbnail": _thumbnail(photo),
        "source": None if beside is None else _top(port, beside, position),
        "port": _top(port, scored.models[PORT], position),
    }


def _top(port: Port, scores: Scores, position: int) -> list[dict[str, Any]]:
    found = []
    for row, share in zip(scores.top[position].tolist(), scores.shares[position].tolist(), strict=True):
        if row >= 0:
            label = class_label(row, port.record.label_map, port.record.background)
            found.append({"index": row, "name": label.name if label else None, "probability": share})
    return found


def _thumbnail(photo: Photo) -> str | None:
    try:
        image = open_image(read_bytes(photo.place))
    except FileError:  # the photo was deleted after it was scored
        return None
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    file = BytesIO()
    image.save(file, "JPEG", comment=b"")  # not the photo's own
    return base64.b64encode(file.getvalue()).decode()
