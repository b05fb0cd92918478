"""Arrow files of photos as Hugging Face's datasets library writes them with `save_to_disk`: a column `image`
of bytes and path, and `label`.

The library writes streams without compression, so a photo is a run of bytes in its file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from porter.base.errors import FileError, first_line
from porter.data.classes import stated_names
from porter.data.photos import Bytes
from porter.data.table_files import MAX_NAME, MAX_ROWS, import_pyarrow

INFO = "dataset_info.json"
"""The file beside the photos that says what their columns are."""
_MAX_INFO = 16 << 20
_SAVE_AGAIN = "save it again, with datasets.Dataset.save_to_disk"


class ArrowRow(NamedTuple):
    """A photo. The file name that it once had, its label and its bytes may be None."""

    path: str | None
    label: int | str | None
    place: Bytes | None


def is_saved(folder: Path) -> bool:
    """Return whether `save_to_disk` wrote a folder."""
    return (folder / INFO).is_file() and (folder / "state.json").is_file()


def class_names(folder: Path) -> tuple[str, ...] | None:
    """Return the names of the classes that labels are numbers of; None if the folder states none.

    Raises:
        FileError: what it states cannot be read.
    """
    file = folder / INFO
    try:
        with file.open("rb") as stream:
            label = json.loads(stream.read(_MAX_INFO))["features"]["label"]
        names = label.get("names")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise FileError("it does not say what its column 'label' is", where=file, next=_SAVE_AGAIN) from None
    return stated_names(names)


def read_rows(file: Path) -> list[ArrowRow]:
    """Return every photo of a file, in its order. Only the labels and the names are read.

    Raises:
        FileError: it is no such stream, is damaged, lacks these columns, or has more than MAX_ROWS.
        NotInstalled: pyarrow is not installed.
    """
    arrow = import_pyarrow("Arrow")
    try:
        with arrow.memory_map(str(file)) as mapped:
            content = mapped.read_buffer()
            with arrow.ipc.open_stream(content) as stream:
                rows: list[ArrowRow] = []
                for batch in stream:
                    if len(rows) + batch.num_rows > MAX_ROWS:
                        raise ValueError(f"it has more than {MAX_ROWS:,} rows")
                    rows += _rows_of_batch(batch, content, file)
                return rows
    except (OSError, LookupError, ValueError, TypeError, arrow.ArrowException) as error:
        raise FileError(
            f"cannot be read as Arrow: {first_line(error)}", where=file, next=_SAVE_AGAIN
        ) from None


def _rows_of_batch(batch: Any, file_content: Any, file: Path) -> Iterator[ArrowRow]:
    """Yield the rows of a batch whose buffers lie in the file. A photo's bytes are not read: the row has
    where they lie.
    """
    images, labels = batch.column("image"), batch.column("label")
    photos, paths = images.field("bytes"), images.field("path")
    for column in (images, labels, photos, paths):
        column.validate(full=True)
    _, offset_buffer, photo_buffer = photos.buffers()
    photos_start = 0
    if photo_buffer is not None:
        # Memory-mapped, so a buffer's place in memory is its place in the file. One that was compressed lies
        # outside.
        photos_start = photo_buffer.address - file_content.address
        if not 0 <= photos_start <= photos_start + photo_buffer.size <= file_content.size:
            raise ValueError("its photos are compressed")
    offsets = memoryview(offset_buffer).cast("q" if str(photos.type) == "large_binary" else "i")
    photo_bounds = offsets[photos.offset : photos.offset + len(photos) + 1].tolist()
    has_photo = photos.is_valid().to_pylist()
    paths_and_labels = zip(paths.to_pylist(), labels.to_pylist(), strict=True)
    for index, (path, label) in enumerate(paths_and_labels):
        if max(len(text) for text in (path, label, "") if isinstance(text, str)) > MAX_NAME:
            raise ValueError(f"a label or a file name has more than {MAX_NAME:,} characters")
        start, end = photo_bounds[index], photo_bounds[index + 1]
        place = Bytes(file, photos_start + start, end - start) if has_photo[index] else None
        yield ArrowRow(path, label, place)
