"""What a worker does: photos in, the file of a chunk out. It runs in a process of its own or, without
workers, in this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from porter.base.errors import FileError
from porter.data.photo_bytes import read_bytes
from porter.data.photo_decoding import open_image
from porter.data.photos import PhotoPlace
from porter.data.pipeline.chunks import Chunk, Resized, write_chunk
from porter.data.preparing import resize_image
from porter.data.preprocess import Preprocess


def make_chunk(places: Iterable[PhotoPlace], geometry: Preprocess, path: Path) -> str | None:
    """Decode and resize photos, and write them to `path`. For a broken photo, the chunk holds the reason.

    Returns:
        Why `path` cannot be written, or None.
    """
    photos: list[Resized] = []
    lasting = True
    for place in places:
        try:
            data = read_bytes(place)
        except FileError as error:  # a file that is missing today may be there tomorrow
            photos.append(error.message)
            lasting = False
            continue
        if not data:
            photos.append("the photo has no bytes")
            continue
        try:
            photos.append(resize_image(open_image(data, geometry.jpeg), geometry))
        except FileError as error:
            photos.append(error.message)
    try:
        write_chunk(path, Chunk(tuple(photos), lasting))
    except OSError as error:
        return error.strerror
    return None
