"""Tables of photos as Hugging Face's datasets library has them: Parquet shards (porter.data.parquet), and the
Arrow files of `save_to_disk` (porter.data.arrow).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from porter.base.errors import escaped
from porter.data import arrow
from porter.data.classes import Classes, named_labels, wnid_label
from porter.data.parquet import read_table
from porter.data.photos import Cell, FoundPhotos, PhotoCandidate, PhotoPlace


def parquet(path: Path, files: Sequence[Path], classes: Classes) -> FoundPhotos:
    """Photos in the order of the files and of the rows in each.

    A label is a wnid, or a number: of the classes that the file's metadata names, otherwise of the port's
    classes.

    Raises:
        FileError: a file cannot be read, or see porter.data.classes.named_labels.
        NotInstalled: pyarrow is not installed.
    """
    candidates = []
    for file in files:
        table = read_table(file)
        known = _known(table.names, classes, file)
        for number, row in enumerate(table.rows):
            place = Cell(file, row.row_group, row.row)
            candidates.append(_candidate(file, number, row.path, row.label, place, known, classes.imagenet))
    return FoundPhotos(path, "Parquet", candidates)


def saved(path: Path, files: Sequence[Path], classes: Classes) -> FoundPhotos:
    """Reads, as `parquet` does, a folder that `save_to_disk` wrote, whose `dataset_info.json` names the
    classes.
    """
    known = _known(arrow.class_names(path), classes, path / arrow.INFO)
    candidates = [
        _candidate(file, number, row.path, row.label, row.place, known, classes.imagenet)
        for file in files
        for number, row in enumerate(arrow.read_rows(file))
    ]
    return FoundPhotos(path, "Arrow", candidates)


def _known(names: Sequence[str] | None, classes: Classes, file: Path) -> Sequence[int | None]:
    return tuple(range(classes.count)) if names is None else named_labels(names, classes, str(file))


def _candidate(
    file: Path,
    number: int,
    path: str | None,
    label: int | str | None,
    place: PhotoPlace | None,
    known: Sequence[int | None],
    imagenet: bool,
) -> PhotoCandidate:
    """A photo of a table's row."""
    if place is None:
        why = "it has no bytes"
    elif label is None:
        why = "it has no label"
    else:
        why = f"its label '{escaped(str(label)[:40])}' is no class of the port"
    row = _row(label, known, imagenet)
    return PhotoCandidate(
        f"{escaped(file.name)}#{number}", path or "", place, () if row is None else (row,), why
    )


def _row(label: int | str | None, known: Sequence[int | None], imagenet: bool) -> int | None:
    if isinstance(label, int):
        return known[label] if 0 <= label < len(known) else None
    return wnid_label(label) if label and imagenet else None
