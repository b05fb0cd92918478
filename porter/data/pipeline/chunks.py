r"""The file of a chunk: consecutive photos, resized and not yet cropped.

- b"porter pixels\n", then the CRC-32 of all that follows and the header's length, 4 bytes each, little-endian
- the header, JSON: {"dtype": "uint8", "photos": [[rows, columns] or "why it failed", ...], "lasting": true}
- the cells of each photo that has any, rows x columns x RGB
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAGIC = b"porter pixels\n"
_CHECKSUM_AND_LENGTH = struct.Struct("<II")
_DTYPES = ("uint8", "float32")

Resized = NDArray[np.uint8] | NDArray[np.float32] | str
"""A photo's pixels, rows x columns x RGB, or why there are none."""


class DamagedChunk(Exception):
    """A file that is no whole chunk. The chunk is made again, so no user sees this."""


@dataclass(frozen=True)
class Chunk:
    """Some photos as a worker decoded and resized them.

    Attributes:
        lasting: making it again would give the same. False if a photo could not be read at all.
    """

    photos: tuple[Resized, ...]
    lasting: bool = True


def write_chunk(path: Path, chunk: Chunk) -> None:
    """Write a chunk in place; the caller gives `path` its final name once it is complete.

    Raises:
        OSError: it cannot be written.
    """
    cells = [
        np.ascontiguousarray(photo, photo.dtype.newbyteorder("<"))
        for photo in chunk.photos
        if not isinstance(photo, str)
    ]
    header = json.dumps(
        {
            "dtype": cells[0].dtype.name if cells else _DTYPES[0],
            "photos": [photo if isinstance(photo, str) else photo.shape[:2] for photo in chunk.photos],
            "lasting": chunk.lasting,
        }
    ).encode()
    checksum = zlib.crc32(header)
    for cell in cells:
        checksum = zlib.crc32(cell.data, checksum)
    with path.open("wb") as file:
        file.write(_MAGIC + _CHECKSUM_AND_LENGTH.pack(checksum, len(header)) + header)
        for cell in cells:
            file.write(cell.data)


def read_chunk(path: Path) -> Chunk:
    """Return a chunk, which is read into memory: a mapped file that another program cuts short would end this
    process.

    Raises:
        DamagedChunk: not a chunk, cut short, or altered.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    start = len(_MAGIC) + _CHECKSUM_AND_LENGTH.size
    if not data.startswith(_MAGIC) or len(data) < start:
        raise DamagedChunk
    checksum, length = _CHECKSUM_AND_LENGTH.unpack_from(data, len(_MAGIC))
    if zlib.crc32(memoryview(data)[start:]) != checksum:
        raise DamagedChunk
    try:
        return _parse_chunk(json.loads(data[start : start + length]), data, start + length)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        # Somebody wrote it so: the checksum is right.
        raise DamagedChunk from None


def _parse_chunk(header: dict[str, Any], data: bytes, start: int) -> Chunk:
    """Return the photos of a chunk, as views of its bytes.

    Args:
        header: of the file, parsed.
        data: the whole file.
        start: where the cells begin in it.

    Raises:
        DamagedChunk: the header does not describe these bytes.
    """
    if header["dtype"] not in _DTYPES:
        raise DamagedChunk
    dtype = np.dtype(header["dtype"])
    photos: list[Resized] = []
    for entry in header["photos"]:
        if isinstance(entry, str):
            photos.append(entry)
            continue
        rows, columns = entry
        if min(rows, columns) < 1:  # numpy takes a negative count for all that is left
            raise DamagedChunk
        little_endian = f"<{dtype.kind}{dtype.itemsize}"
        cells: NDArray[Any] = np.frombuffer(data, little_endian, rows * columns * 3, start)
        photos.append(cells.reshape(rows, columns, 3))
        start += cells.nbytes
    if start != len(data):
        raise DamagedChunk
    return Chunk(tuple(photos), bool(header["lasting"]))
