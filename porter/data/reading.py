"""The bytes of a photo, wherever they lie."""

from __future__ import annotations

from porter.data.photos import Bytes, Cell
from porter.errors import FileError


def read_bytes(place: Bytes | Cell) -> bytes:
    """The photo's file as it was stored.

    Raises:
        FileError: it cannot be read, or ends before the photo does.
    """
    if isinstance(place, Cell):
        raise FileError("photos in Parquet files cannot be read yet", where=str(place.path))
    try:
        with place.path.open("rb") as file:
            file.seek(place.offset)
            data = file.read() if place.size is None else file.read(place.size)
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror}", where=str(place.path)) from None
    if place.size is not None and len(data) < place.size:
        raise FileError(f"the file ends {place.size - len(data)} bytes before the photo does", where=str(place.path))
    return data
