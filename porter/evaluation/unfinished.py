"""What a run that was ended had measured, kept in porter's cache until a run of the same ports, photos and
settings goes on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import PIL

from porter.base.errors import FileError
from porter.base.package import __version__, version_of
from porter.data.photos import Failure, Photo
from porter.data.pipeline.store import identity
from porter.evaluation.comparison import PhotoDistances
from porter.evaluation.distributed import Process
from porter.evaluation.measuring import Entrant, Measured, Options
from porter.evaluation.scoring import Scored, Scores, unscored
from porter.files import cache_dir, write_whole

_FORMAT = 1
_MOST = 8
"""The most runs that are kept; of 50,000 photos, each takes 10 MB for every model."""
_BY_PHOTO = ("ranks", "centre", "losses", "top", "shares")


def position_of(
    entrants: Sequence[Entrant], photos: Sequence[Photo], options: Options, process: Process
) -> Path:
    """Where this process's part of a pass is kept. The name is a digest of everything that decides the
    figures: the ports' records and model files, the sources' files, the versions of porter, the frameworks
    and Pillow, the protocols, the photos with their labels, sizes and times of change, and the settings.
    """
    ports = [
        (
            entrant.port.record.model_dump(mode="json", exclude={"evaluation", "evaluations", "study"}),
            asdict(entrant.protocol),
            entrant.opened and entrant.opened.file.sha256,
            version_of(entrant.port.destination.PACKAGE),
        )
        for entrant in entrants
    ]
    settings = (
        options.device,
        asdict(options.run),
        options.fast,
        options.crops,
        options.batch_size,
        process.rank,
        process.world,
    )
    listed = [(photo.name, photo.labels, identity(photo.place)) for photo in photos]
    text = json.dumps([_FORMAT, __version__, PIL.__version__, ports, settings, listed])
    return cache_dir() / "unfinished" / f"{sha256(text.encode()).hexdigest()}.json"


def keep(place: Path, measured: Sequence[Measured]) -> bool:
    """Keeps what was measured, and removes the oldest of too many such files. Gives whether it could be
    written.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, json.dumps([_stored(each) for each in measured]))
        for old in sorted(place.parent.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-_MOST]:
            old.unlink()
    except (OSError, FileError):
        return False
    return True


def drop(place: Path) -> None:
    """Removes what was kept of a pass that is finished."""
    with suppress(OSError):
        place.unlink()


def read_kept(place: Path, photo_count: int) -> list[Measured] | None:
    """What was kept of a pass over so many photos; None if there is nothing, or nothing that can be read."""
    try:
        return [_restored(each, photo_count) for each in json.loads(place.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, KeyError, IndexError):
        return None


def _stored(measured: Measured) -> dict[str, Any]:
    """What was measured as JSON: for photos that were reached only."""
    scored, seen = measured.scored, measured.compared
    at = np.flatnonzero(scored.reached)
    return {
        "at": at.tolist(),
        "seconds": [scored.seconds, scored.waited],
        "failed": _failures(scored.failed),
        "models": {
            name: {field: getattr(scores, field)[at].tolist() for field in _BY_PHOTO}
            | {"failed": _failures(scores.failed)}
            for name, scores in scored.models.items()
        },
        "compared": seen
        and {
            "max_abs": seen.max_abs[at].tolist(),
            "rel_l2": seen.rel_l2[at].tolist(),
            "pairs": [[position, pairs.tolist()] for position, pairs in seen.pairs.items()],
        },
    }


def _restored(stored: dict[str, Any], photos: int) -> Measured:
    """What `_stored` made JSON of."""
    at = stored["at"]
    reached = np.zeros(photos, np.bool_)
    reached[at] = True
    models = {name: _scores(fields, at, photos) for name, fields in stored["models"].items()}
    scored = Scored(models, reached, _failed(stored["failed"]), False, *map(float, stored["seconds"]))
    if stored["compared"] is None:
        return Measured(scored)
    seen = PhotoDistances(photos)
    seen.max_abs[at], seen.rel_l2[at] = stored["compared"]["max_abs"], stored["compared"]["rel_l2"]
    seen.pairs = {position: np.array(pairs, np.float64) for position, pairs in stored["compared"]["pairs"]}
    return Measured(scored, seen)


def _scores(fields: dict[str, Any], at: list[int], photos: int) -> Scores:
    scores = unscored(photos)
    for name in _BY_PHOTO:
        getattr(scores, name)[at] = fields[name]
    scores.failed.update(_failed(fields["failed"]))
    return scores


def _failures(failed: Any) -> list[list[Any]]:
    return [[position, failure.name, failure.why] for position, failure in failed.items()]


def _failed(stored: list[list[Any]]) -> dict[int, Failure]:
    return {position: Failure(name, why) for position, name, why in stored}
