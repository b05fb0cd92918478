"""Parquet shards of Hugging Face data sets: see porter.data.parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from porter.base.errors import escaped
from porter.data.classes import Classes, named_labels, wnid_label
from porter.data.parquet import ParquetRow, read_table
from porter.data.photos import Cell, FoundPhotos, PhotoCandidate


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
        plain = tuple(range(classes.count))
        known = plain if table.names is None else named_labels(table.names, classes, str(file))
        for number, row in enumerate(table.rows):
            label = _label(row, known, classes.imagenet)
            name = f"{escaped(file.name)}#{number}"
            labels = () if label is None else (label,)
            why = (
                "it has no label"
                if row.label is None
                else f"its label '{escaped(str(row.label)[:40])}' is no class of the port"
            )
            candidates.append(
                PhotoCandidate(name, row.path or "", Cell(file, row.row_group, row.row), labels, why)
            )
    return FoundPhotos(path, "Parquet", candidates)


def _label(row: ParquetRow, known: Sequence[int | None], imagenet: bool) -> int | None:
    if isinstance(row.label, int):
        return known[row.label] if 0 <= row.label < len(known) else None
    return wnid_label(row.label) if row.label and imagenet else None
