"""The program of a worker process, which `workers` starts. It imports no framework.

Its argument is the geometry, as JSON. It reads jobs, a line each, and after each prints null or what went
wrong. It ends when its input ends, so it never outlives the process that started it.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from porter.data.photos import Bytes, Cell, PhotoPlace, Sealed
from porter.data.pipeline.making import make_chunk
from porter.data.preprocess import Preprocess


def make_job(places: Sequence[PhotoPlace], path: Path) -> dict[str, Any]:
    """Return the request for a chunk of these photos, to be written to `path`, as JSON has it."""
    return {"photos": [{**asdict(place), "path": str(place.path)} for place in places], "path": str(path)}


def _parse_place(fields: dict[str, Any]) -> PhotoPlace:
    """Return the place of a photo from the fields of a request: a row's cell, a record's bytes, or a run of
    bytes in a file, told apart by the fields that only they have.
    """
    kind: type[PhotoPlace] = Bytes
    if "row" in fields:
        kind = Cell
    elif "record" in fields:
        kind = Sealed
    return kind(**{**fields, "path": Path(fields["path"])})


def main() -> None:
    """Make the chunks that stdin asks for, a line each, and answer each with a line."""
    warnings.simplefilter("ignore")  # open_image decides what Pillow warns about
    geometry = Preprocess(**json.loads(sys.argv[1]))
    for line in sys.stdin:
        request = json.loads(line)
        try:
            failure = make_chunk(
                [_parse_place(fields) for fields in request["photos"]], geometry, Path(request["path"])
            )
        except MemoryError:
            sys.exit("memory ran out")
        print(json.dumps(failure), flush=True)
