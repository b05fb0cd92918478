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
from porter.data.pipeline.store import identity_of_place
from porter.evaluation.distributed import Process
from porter.evaluation.measuring import Entrant, Measured
from porter.evaluation.photo_distances import PhotoDistances
from porter.evaluation.photo_options import Options
from porter.evaluation.scoring import ARRAYS, Scored, Scores, unscored
from porter.files import cache_dir, write_whole

_FORMAT = 1
_MOST = 8
"""The most passes that are kept, each of all its processes; one of 50,000 photos takes 10 MB for every model.
"""


def file_of_pass(
    entrants: Sequence[Entrant], photos: Sequence[Photo], options: Options, process: Process
) -> Path:
    """Return the file in which this process's part of a pass is kept. Its name is a digest of everything that
    decides the figures, with the number of the process: the ports' records and model files, the sources'
    files, the versions of porter, the frameworks and Pillow, the protocols, the photos with their labels,
    sizes and times of change, and the settings.
    """
    ports = [
        (
            entrant.port.record.model_dump(mode="json", exclude={"evaluation", "evaluations", "study"}),
            asdict(entrant.protocol),
            # None without a source beside the port
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
        process.world,
    )
    listed = [(photo.name, photo.labels, identity_of_place(photo.place)) for photo in photos]
    text = json.dumps([_FORMAT, __version__, PIL.__version__, ports, settings, listed])
    return cache_dir() / "unfinished" / f"{sha256(text.encode()).hexdigest()}-{process.rank}.json"


def keep(file: Path, measured: Sequence[Measured]) -> bool:
    """Keep what was measured, and remove the oldest of too many passes. Return whether it could be
    written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps([_to_json(of_port) for of_port in measured]))
    except (OSError, FileError):
        return False
    with suppress(OSError):  # another process may remove them too
        _remove_oldest(file.parent)
    return True


def _remove_oldest(folder: Path) -> None:
    """Remove the oldest of too many passes, with the files of all their processes."""
    passes: dict[str, list[tuple[float, Path]]] = {}
    for file in folder.glob("*.json"):
        digest, _, _ = file.stem.partition("-")
        passes.setdefault(digest, []).append((file.stat().st_mtime, file))
    for files in sorted(passes.values(), key=max)[:-_MOST]:
        for _, file in files:
            file.unlink(missing_ok=True)


def drop(file: Path) -> None:
    """Remove what was kept of a pass that is finished."""
    with suppress(OSError):
        file.unlink()


def read_kept(file: Path, photo_count: int) -> list[Measured] | None:
    """Read what was kept of a pass over so many photos, for each port; None if there is nothing, or nothing
    that can be read.
    """
    try:
        return [_from_json(of_port, photo_count) for of_port in json.loads(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None


def _to_json(measured: Measured) -> dict[str, Any]:
    """Return what was measured as JSON, for photos that were reached only: `at` has their positions, and
    every list is in that order.
    """
    scored, distances = measured.scored, measured.compared
    positions = np.flatnonzero(scored.reached)
    compared = None
    if distances is not None:
        compared = {
            "max_abs": distances.max_abs[positions].tolist(),
            "rel_l2": distances.rel_l2[positions].tolist(),
            "pairs": [[position, pairs.tolist()] for position, pairs in distances.pairs.items()],
        }
    return {
        "at": positions.tolist(),
        "seconds": [scored.seconds, scored.waited],
        "failed": _failures_to_json(scored.failed),
        "models": {
            name: {field: getattr(scores, field)[positions].tolist() for field in ARRAYS}
            | {"failed": _failures_to_json(scores.failed)}
            for name, scores in scored.models.items()
        },
        "compared": compared,
    }


def _from_json(stored: dict[str, Any], photos: int) -> Measured:
    """Return what `_to_json` made JSON of, as an incomplete pass over so many photos."""
    positions = stored["at"]
    reached = np.zeros(photos, np.bool_)
    reached[positions] = True
    models = {name: _scores_from_json(fields, positions, photos) for name, fields in stored["models"].items()}
    seconds, waited = map(float, stored["seconds"])
    scored = Scored(models, reached, _failures_from_json(stored["failed"]), False, seconds, waited)
    if stored["compared"] is None:
        return Measured(scored)
    distances, compared = PhotoDistances(photos), stored["compared"]
    distances.max_abs[positions] = compared["max_abs"]
    distances.rel_l2[positions] = compared["rel_l2"]
    distances.pairs = {position: np.array(pairs, np.float64) for position, pairs in compared["pairs"]}
    return Measured(scored, distances)


def _scores_from_json(fields: dict[str, Any], positions: list[int], photos: int) -> Scores:
    """Return a model's scores of so many photos; those that are not at `positions` are unscored."""
    scores = unscored(photos)
    for name in ARRAYS:
        getattr(scores, name)[positions] = fields[name]
    scores.failed.update(_failures_from_json(fields["failed"]))
    return scores


def _failures_to_json(failed: Any) -> list[list[Any]]:
    return [[position, failure.name, failure.why] for position, failure in failed.items()]


def _failures_from_json(stored: list[list[Any]]) -> dict[int, Failure]:
    return {position: Failure(name, why) for position, name, why in stored}
