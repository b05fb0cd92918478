"""HDF5's texts of any length are objects in global heap collections (HDF5 File Format Specification, III.E).

libhdf5 goes from one to the next by sizes that it does not check, and never ends where one leads nowhere (H5HGcache.c).
"""

from __future__ import annotations

import mmap
import re

_MOST_OBJECTS = 1 << 16
"""Objects of a collection are numbered with 16 bits."""


def largest_collection(data: bytes | mmap.mmap, width: int) -> int:
    """The most bytes that a collection has, 0 if there is none. Every collection of the file is followed from object to object.

    Args:
        data: the whole file.
        width: bytes of a size, as the file's superblock says.

    Raises:
        ValueError: an object leaves its collection, collections overlap, or one has more objects than numbers.
    """
    largest = end = 0
    for match in re.finditer(b"GCOL\\x01", data):
        start = match.start()
        size = int.from_bytes(data[start + 8 : start + 8 + width], "little")
        if size > len(data) - start:  # the letters are something else's, or libhdf5 refuses it
            continue
        if start < end:
            raise ValueError(f"two collections of texts overlap at byte {start}")
        end = start + size
        _follow(data, start, end, width)
        largest = max(largest, size)
    return largest


def _follow(data: bytes | mmap.mmap, start: int, end: int, width: int) -> None:
    header = _aligned(8 + width)  # as long for the collection as for an object
    place = start + header
    for _ in range(_MOST_OBJECTS):
        if place + header > end:  # too little for another object
            return
        size = int.from_bytes(data[place + 8 : place + 8 + width], "little")
        # Number 0 is the space that is free, whose size counts its header.
        step = header + _aligned(size) if any(data[place : place + 2]) else size
        if not 0 < step <= end - place:
            raise ValueError(f"a text of {size} bytes at byte {place} leaves its collection, which ends at byte {end}")
        place += step
    raise ValueError(f"the collection of texts at byte {start} has more than {_MOST_OBJECTS} objects")


def _aligned(size: int) -> int:
    return -(-size // 8) * 8
