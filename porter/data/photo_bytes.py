"""The bytes of a photo, wherever it is stored."""

from __future__ import annotations

import stat

from porter.base.errors import FileError
from porter.data.parquet_file import read_cell
from porter.data.photos import Bytes, Cell, PhotoPlace, Sealed
from porter.data.tfrecord_file import expect_whole

MAX_BYTES = 256 << 20
"""The most bytes of one photo; ImageNet's largest has 15 million."""


def read_bytes(place: PhotoPlace) -> bytes:
    """Return a photo's file, still encoded.

    Raises:
        FileError: it cannot be read, is no regular file, ends early, has more than MAX_BYTES, or lies in a
            damaged record.
        NotInstalled: the photo is in a Parquet file, and pyarrow is not installed.
    """
    if isinstance(place, Cell):
        content = read_cell(place.path, place.row_group, place.row)
        _expect_bounded_size(len(content), place)
        return content
    if isinstance(place, Sealed):
        record_end = place.record + place.length
        payload = _read_run(Bytes(place.path, place.record, place.length))
        checksum = _read_run(Bytes(place.path, record_end, 4))
        expect_whole(payload, checksum, place.path)
        start = place.offset - place.record
        return payload[start : start + place.size]
    return _read_run(place)


def _read_run(place: Bytes) -> bytes:
    """Return a run of bytes in a regular file; refuse one that ends early."""
    try:
        status = place.path.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for ever
            raise FileError("no regular file", where=place.path)
        size = status.st_size - place.offset if place.size is None else place.size
        _expect_bounded_size(size, place)
        with place.path.open("rb") as file:
            file.seek(place.offset)
            content = file.read(size)
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror}", where=place.path) from None
    if len(content) < size:
        raise FileError(
            f"{size:,} bytes expected from byte {place.offset:,} on, got {len(content):,}",
            where=place.path,
        )
    return content


def _expect_bounded_size(size: int, place: PhotoPlace) -> None:
    """Refuse a photo of more than MAX_BYTES."""
    if not 0 <= size <= MAX_BYTES:
        raise FileError(
            f"the photo has {size:,} bytes, and porter reads at most {MAX_BYTES:,}", where=place.path
        )
