"""Parquet files of photos as Hugging Face's datasets library writes them: a column `image` of bytes and path,
and `label`.

Tested only on generated files, with the metadata that this library writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from porter.base.errors import FileError
from porter.data.classes import stated_names
from porter.data.parquet_footer import ColumnChunk, read_row_groups, unpacked_bytes
from porter.data.table_files import MAX_NAME, MAX_ROWS, import_pyarrow

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

IMAGE, PATH, LABEL = "image", "image.path", "label"
_BYTES, _TEXT, _FIXED = "BYTE_ARRAY", "UTF8", "FIXED_LEN_BYTE_ARRAY"
"""Types of columns. Fixed-length columns are refused: pyarrow allocates every row, even if the file stores
one value for all.
"""
_MAX_ROW_GROUP = 1 << 30
"""Bytes that a worker keeps in memory; the datasets library writes 100 photos to a row group, some 12 MB."""
_SMALL_ROW_GROUP, _EXPANSION = 64 << 20, 64
"""A larger row group has at most so many bytes for each of the file's: photos are packed already, and
kilobytes of zeros unpack to gigabytes.
"""
_MAX_TEXT = 256 << 20
"""Bytes of the labels and file names of one file: 134 for each of MAX_ROWS. A text that many rows share
counts once.
"""


class ParquetRow(NamedTuple):
    """A photo's row. `path` is the file name that it once had; it and the label may be None."""

    row_group: int
    row: int
    path: str | None
    label: int | str | None


class ParquetTable(NamedTuple):
    """Rows of a file, and the names of the classes that its numbers stand for, where it has them."""

    rows: list[ParquetRow]
    names: tuple[str, ...] | None


def is_parquet(path: Path) -> bool:
    """Return whether the content of a file is Parquet's."""
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def read_table(path: Path) -> ParquetTable:
    """Return every row of a file without its photo.

    Raises:
        FileError: it is no Parquet file, broken, lacks these columns, or exceeds MAX_ROWS, _MAX_TEXT or
            MAX_NAME.
        NotInstalled: pyarrow is not installed.
    """
    with _open_parquet(path) as file:
        columns = _types_of_columns(file)
        # A missing label counts as a column of fixed-size bytes, which is no label.
        if columns.get(LABEL, _FIXED) == _FIXED or _bytes_column(columns) is None:
            seen = ", ".join(f"{name} ({kind})" for name, kind in islice(columns.items(), 8))
            raise FileError(f"expected columns '{IMAGE}' of bytes and '{LABEL}', got {seen}", where=path)
        if file.metadata.num_rows > MAX_ROWS:
            raise FileError(
                f"the file has {file.metadata.num_rows:,} rows, and porter reads at most {MAX_ROWS:,}",
                where=path,
                next="split it into several files",
            )
        wanted = [LABEL, PATH] if columns.get(PATH) == _TEXT else [LABEL]
        chunks = (chunk for group in read_row_groups(path) for chunk in group if chunk.name in wanted)
        stored = unpacked_bytes(path, chunks)
        if stored > _MAX_TEXT:
            raise FileError(
                f"the file has {stored:,} bytes of labels and file names, and porter reads at most "
                f"{_MAX_TEXT:,}",
                where=path,
                next="split it into several files",
            )
        class_names = _class_names(file)
    rows: list[ParquetRow] = []
    with _open_parquet(path, shared=wanted) as file:
        for group in range(file.num_row_groups):
            table = _read_group(file, group, wanted).flatten()
            labels = _values_of(table[LABEL], path)
            names = _values_of(table[PATH], path) if PATH in wanted else [None] * len(labels)
            for number, (label, name) in enumerate(zip(labels, names, strict=True)):
                row_label = label if isinstance(label, int) else _text_or_none(label)
                rows.append(ParquetRow(group, number, _text_or_none(name), row_label))
    return ParquetTable(rows, class_names)


def _values_of(column: Any, path: Path) -> list[Any]:
    """Return the values of a column of labels or file names. pyarrow gives texts that many rows share once,
    with an index for each row; so they are one object here too.

    Args:
        path: of the file, for messages.

    Raises:
        FileError: a text is longer than MAX_NAME.
    """
    values: list[Any] = []
    for chunk in column.chunks:
        if not hasattr(chunk, "dictionary"):
            values += chunk.to_pylist()
            continue
        shared = chunk.dictionary.to_pylist()
        longest = max((len(text) for text in shared if isinstance(text, str)), default=0)
        if longest > MAX_NAME:
            raise FileError(
                f"a label or file name has {longest:,} characters, and porter reads at most {MAX_NAME:,}",
                where=path,
            )
        values += [None if index is None else shared[index] for index in chunk.indices.to_pylist()]
    return values


def read_cell(path: Path, row_group: int, row: int) -> bytes:
    """Return the bytes of a photo. Its row group stays in memory, because a worker takes the next photo from
    the same group.

    Raises:
        FileError: there is no such row, it has no bytes, or as `read_table`.
        NotInstalled: pyarrow is not installed.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror}", where=path) from None
    photos = _row_group(path, status.st_mtime_ns, row_group)
    photo = photos[row].as_py() if 0 <= row < len(photos) else None
    content = photo["bytes"] if isinstance(photo, dict) else photo
    if not isinstance(content, bytes):
        raise FileError("the row has no photo in it", where=f"{path}: row group {row_group}, row {row}")
    return content


@lru_cache(maxsize=1)
def _row_group(path: Path, changed: int, index: int) -> Any:
    """Return the photos of a row group, an Arrow array. `changed` makes an overwritten file another entry of
    the cache.
    """
    with _open_parquet(path) as file:
        if not 0 <= index < file.num_row_groups:
            raise FileError(f"it has {file.num_row_groups} row groups, not {index + 1}", where=path)
        # A small file that unpacks to very much is refused.
        most = min(_MAX_ROW_GROUP, max(_SMALL_ROW_GROUP, _EXPANSION * path.stat().st_size))
        column = _bytes_column(_types_of_columns(file))
        if column is None:
            raise FileError(f"it has no column '{IMAGE}' of bytes", where=path)
        chunks = (chunk for chunk in _footer(path, changed)[index] if chunk.name == column)
        if unpacked_bytes(path, chunks) > most:
            message = f"row group {index} has more than {most:,} bytes, and is read whole"
            raise FileError(message, where=path, next="write the file with row groups of some 100 photos")
    # A row group's size is what the file stores: one large photo may be stored once for any number of rows.
    with _open_parquet(path, shared=[column]) as file:
        return _read_group(file, index, [column])[IMAGE]


def _read_group(file: ParquetFile, index: int, columns: Sequence[str]) -> Any:
    """Return a row group, an Arrow table. It is validated: Arrow itself accepts any positions that a file
    states for values that rows share.
    """
    table = file.read_row_group(index, columns=columns, use_threads=False)
    table.validate(full=True)
    return table


@lru_cache(maxsize=4)
def _footer(path: Path, changed: int) -> list[list[ColumnChunk]]:
    """Return the columns of all row groups, read once. `changed`, the file's time of change, makes an
    overwritten file another entry of the cache.
    """
    return read_row_groups(path)


def _types_of_columns(file: ParquetFile) -> dict[str, str]:
    """Return the type of each column, in the terms of the format, by its name."""
    columns = [file.schema.column(index) for index in range(len(file.schema))]
    return {
        column.path: column.physical_type if column.converted_type == "NONE" else column.converted_type
        for column in columns
    }


def _bytes_column(columns: Mapping[str, str]) -> str | None:
    """Return the column with the photos' bytes; None if there is none."""
    return next((name for name in (f"{IMAGE}.bytes", IMAGE) if columns.get(name) == _BYTES), None)


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _class_names(file: ParquetFile) -> tuple[str, ...] | None:
    """Return the names of the classes in the metadata that the datasets library writes into the schema:
    {"info": {"features": {"label": {"names": [...]}}}}. Return None where there are none.
    """
    raw = (file.schema_arrow.metadata or {}).get(b"huggingface")
    try:
        names = json.loads(raw)["info"]["features"][LABEL]["names"] if raw else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return stated_names(names)


@contextmanager
def _open_parquet(path: Path, shared: Sequence[str] = ()) -> Iterator[ParquetFile]:
    """Open the file. In the columns `shared`, a value that many rows have is kept once."""
    parquet = import_pyarrow("Parquet", "pyarrow.parquet")
    pyarrow = import_pyarrow("Parquet")
    # pyarrow raises a KeyError for two columns of one name.
    try:
        # Without threads: there are as many workers as cores.
        with parquet.ParquetFile(path, pre_buffer=False, read_dictionary=list(shared)) as file:
            yield file
    except (OSError, LookupError, ValueError, RecursionError, pyarrow.ArrowException) as error:
        message = str(error).partition("\n")[0]
        raise FileError(
            f"cannot be read as a Parquet file: {message}", where=path, next="check that it is complete"
        ) from None
