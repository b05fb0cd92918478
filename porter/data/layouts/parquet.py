"""Tables of photos as Hugging Face's datasets library has them: Parquet shards (porter.data.parquet), and the
Arrow files of `save_to_disk` (porter.data.arrow).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from porter.base.errors import escaped
from porter.data import arrow
from porter.data.classes import Classes, labels_of_names, wnid_label
from porter.data.parquet import read_table
from porter.data.photos import Cell, FoundPhotos, PhotoCandidate, PhotoPlace


def read_parquet_photos(path: Path, files: Sequence[Path], classes: Classes) -> FoundPhotos:
    """Return the photos of Parquet files, in the order of the files and of the rows in each.

    A label is a wnid, or a number: of the classes that the file's metadata names, otherwise of the port's
    classes.

    Raises:
        FileError: a file cannot be read, or see porter.data.classes.labels_of_names.
        NotInstalled: pyarrow is not installed.
    """
    candidates = []
    for file in files:
        table = read_table(file)
        known = _classes_of_numbers(table.names, classes, file)
        for number, row in enumerate(table.rows):
            place = Cell(file, row.row_group, row.row)
            candidates.append(_candidate(file, number, row.path, row.label, place, known, classes.imagenet))
    return FoundPhotos(path, "Parquet", candidates)


def read_saved_photos(path: Path, files: Sequence[Path], classes: Classes) -> FoundPhotos:
    """Return the photos of a folder that `save_to_disk` wrote, as `read_parquet_photos` does. Its
    `dataset_info.json` names the classes.
    """
    known = _classes_of_numbers(arrow.class_names(path), classes, path / arrow.INFO)
    candidates = [
        _candidate(file, number, row.path, row.label, row.place, known, classes.imagenet)
        for file in files
        for number, row in enumerate(arrow.read_rows(file))
    ]
    return FoundPhotos(path, "Arrow", candidates)


def _classes_of_numbers(names: Sequence[str] | None, classes: Classes, file: Path) -> Sequence[int | None]:
    """Return the port's row for each number that a table's labels may have: by the names of its classes if it
    states them, otherwise the number itself.
    """
    if names is None:
        return range(classes.count)
    return labels_of_names(names, classes, str(file))


def _candidate(
    file: Path,
    number: int,
    path: str | None,
    label: int | str | None,
    place: PhotoPlace | None,
    known: Sequence[int | None],
    imagenet: bool,
) -> PhotoCandidate:
    """Return the photo of a table's row.

    Args:
        number: of the row, from 0.
        path: the file name that the photo once had.
        place: where its bytes are; None if it has none.
        known: the port's rows by the numbers of the data set.
        imagenet: whether wnids and ImageNet's names are known.
    """
    if place is None:
        why = "it has no bytes"
    elif label is None:
        why = "it has no label"
    else:
        why = f"its label '{escaped(str(label)[:40])}' is no class of the port"
    row = _row_of_label(label, known, imagenet)
    return PhotoCandidate(
        f"{escaped(file.name)}#{number}", path or "", place, () if row is None else (row,), why
    )


def _row_of_label(label: int | str | None, known: Sequence[int | None], imagenet: bool) -> int | None:
    """Return the port's row for a label: through `known`, the rows by the data set's numbers, or by its wnid;
    None if it is no class of the port.
    """
    if isinstance(label, int):
        return known[label] if 0 <= label < len(known) else None
    return wnid_label(label) if label and imagenet else None
