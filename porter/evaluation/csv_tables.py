"""The figures of several ports, and what a port saw in every photo, as tables for other programs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from porter.base.errors import escaped
from porter.data.photos import Failure, Photo
from porter.evaluation.ranking import TOP
from porter.evaluation.results import OfPort
from porter.evaluation.scoring import Scores
from porter.files import behind_links, write_whole
from porter.port import Record

_PREDICTION_COLUMNS = (
    "photo",
    "label",
    "rank",
    *(f"{what}{place}" for place in range(1, TOP + 1) for what in ("class", "name", "probability")),
)


_RESULT_COLUMNS = (
    "port",
    "name",
    "framework",
    "protocol",
    "photos",
    "top1",
    "top5",
    "loss",
    "photos_per_second",
)
_TIMM_COLUMNS = ("model", "img_size", "top1_err", "top5_err", "param_count", "crop_pct", "interpolation")
"""Further columns of the tables that timm's validate.py writes; its top1 and top5 are those above.
param_count is in millions.
"""


def write_results(path: Path, results: Sequence[OfPort]) -> None:
    """Write a CSV with a line for each port: accuracies in percent of all photos, the loss in nats, and the
    speed of its pass, which several ports may have shared. timm's columns are there too.

    Raises:
        FileError: it cannot be written.
    """
    text = StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow((*_RESULT_COLUMNS, *_TIMM_COLUMNS))
    for result in results:
        evaluation = result.evaluation
        loss = "" if evaluation.loss is None else evaluation.loss
        table.writerow(
            [
                escaped(result.port),
                escaped(result.name),
                result.framework,
                evaluation.protocol,
                evaluation.images,
                evaluation.top1,
                evaluation.top5,
                loss,
                f"{evaluation.per_second:.1f}",
                *_timm_cells(result),
            ]
        )
    write_whole(behind_links(path), text.getvalue())


def _timm_cells(result: OfPort) -> tuple[object, ...]:
    """Return the cells of timm's columns for a port, rounded as timm rounds (validate.py, `validate`)."""
    evaluation, protocol = result.evaluation, result.evaluation.preprocess or {}
    crop, size = protocol.get("crop"), protocol.get("size")
    errors = (round(100 - evaluation.top1, 4), round(100 - evaluation.top5, 4))
    crop_share = round(crop / size, 4) if crop and size else 1.0
    millions = round(result.parameters / 1e6, 2)
    interpolation = str(protocol.get("interpolation", "")).rpartition("_")[2]  # without porter's prefix
    return escaped(result.name), crop or size, *errors, millions, crop_share, interpolation


def write_predictions(
    path: Path, record: Record, photos: Sequence[Photo], scores: Scores, failed: Sequence[Failure]
) -> None:
    """Write a CSV with a line for each photo: its labels, the number of classes before the best of them (0 is
    top-1), and the five likeliest classes with their names and probabilities. Classes are rows of the port's
    logits. Failed photos have only a name.

    Raises:
        FileError: it cannot be written.
    """
    text = StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_PREDICTION_COLUMNS)
    for position, photo in enumerate(photos):
        rank = int(scores.ranks[position])
        if rank < 0:  # it failed, and is listed below
            continue
        cells: list[object] = [
            photo.name,
            "|".join(str(label + record.background) for label in photo.labels),
            rank,
        ]
        for row, share in zip(scores.top[position].tolist(), scores.shares[position].tolist(), strict=True):
            if row < 0:  # the port has fewer classes than the table has places
                cells += ["", "", ""]
                continue
            label = record.label_of(row)
            cells += [row, escaped(label.name) if label else "", f"{share:.6g}"]
        table.writerow(cells)
    for failure in failed:
        table.writerow([failure.name])
    write_whole(behind_links(path), text.getvalue())
