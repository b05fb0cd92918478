"""Tables of photos as Hugging Face's datasets library has them: Parquet shards, read by
porter.data.parquet_file, and the Arrow files of `save_to_disk`, read by porter.data.arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from porter.base.errors import escaped
from porter.data import arrow
from porter.data.classes import Classes, StatedClasses, no_class_of_port, stated_classes
from porter.data.parquet_file import read_table
from porter.data.photos import Cell, FoundPhotos, PhotoCandidate, PhotoPlace, photo_candidate


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
        known = stated_classes(table.names, classes, str(file))
        for number, row in enumerate(table.rows):
            place = Cell(file, row.row_group, row.row)
            candidates.append(_candidate(file, number, row.path, row.label, place, known))
    return FoundPhotos(path, "Parquet", candidates)


def read_saved_photos(path: Path, files: Sequence[Path], classes: Classes) -> FoundPhotos:
    """Return the photos of a folder that `save_to_disk` wrote, as `read_parquet_photos` does. Its
    `dataset_info.json` names the classes.
    """
    known = stated_classes(arrow.class_names(path), classes, str(path / arrow.INFO))
    candidates = [
        _candidate(file, number, row.path, row.label, row.place, known)
        for file in files
        for number, row in enumerate(arrow.read_rows(file))
    ]
    return FoundPhotos(path, "Arrow", candidates)


def _candidate(
    file: Path,
    number: int,
    path: str | None,
    label: int | str | None,
    place: PhotoPlace | None,
    known: StatedClasses,
) -> PhotoCandidate:
    """Return the photo of a table's row.

    Args:
        number: of the row, from 0.
        path: the file name that the photo once had.
        place: where its bytes are; None if it has none.
        known: what the data set's labels stand for.
    """
    no_label = "it has no label" if label is None else no_class_of_port(str(label))
    name = f"{escaped(file.name)}#{number}"
    return photo_candidate(name, path or "", place, known.row_of(label), "it has no bytes", no_label)
