"""Tars, read in place: where their members are. Nothing is unpacked, and no name in one is used as a path."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

from porter.base.errors import FileError

_UNPACKERS = {
    b"\x1f\x8b": "gunzip",
    b"BZh": "bunzip2",
    b"\xfd7zXZ\x00": "unxz",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"PK\x03\x04": "unzip",
}
_MAX_MEMBERS = 5_000_000
"""The most members of one archive, which are kept in memory: 1.3 million photos with a `.cls` and a `.json`
each are 3.9 million.
"""
_MAX_HEADER = 1 << 20
_MAX_PADDING = 1 << 20  # GNU tar fills the last record with zeros: 10 KiB unless told otherwise


class TarMember(NamedTuple):
    """A member of a tar.

    Attributes:
        offset, size: its bytes within the archive.
        why: why it cannot be read in place, or empty.
    """

    name: str
    offset: int
    size: int
    why: str


def is_tar(path: Path) -> bool:
    """Return whether the content of a file is a tar's; an empty tar is one too."""
    with path.open("rb") as file:
        header = file.read(512)
    is_end = len(header) == 512 and not any(header)  # a block of zeros ends a tar
    return header[257:262] == b"ustar" or is_end


def unpacker(path: Path) -> str | None:
    """Return the program that unpacks a compressed file; None for any other file."""
    with path.open("rb") as file:
        head = file.read(6)
    return next((program for magic, program in _UNPACKERS.items() if head.startswith(magic)), None)


def list_members(path: Path) -> list[TarMember]:
    """Return all members except folders, in the order of the archive. Of several with one name it has the
    last, as after unpacking.

    Raises:
        FileError: it is no tar, compressed, cut off, joined from several, or has more than _MAX_MEMBERS.
    """
    if program := unpacker(path):
        message = "the archive is compressed, and photos are read in place only out of uncompressed ones"
        raise FileError(message, where=path, next=f"{program} it first")
    try:
        with path.open("rb") as file:
            by_name: dict[str, TarMember] = {}
            for count, member in enumerate(_iterate_members(file)):
                if count == _MAX_MEMBERS:
                    message = f"the archive has more than {_MAX_MEMBERS:,} members"
                    raise FileError(message, where=path, next="put the photos into several archives")
                by_name[member.name] = member
            _expect_end(file)
    except (OSError, tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        raise FileError(
            f"the archive cannot be read: {error}", where=path, next="check that it is complete"
        ) from None
    return list(by_name.values())


def _iterate_members(file: io.BufferedReader) -> Iterator[TarMember]:
    """Yield the members of a tar except folders, up to its end or to a damaged header; the file then stands
    behind the last of them.
    """
    headers = _BoundedHeaders(file)
    with tarfile.open(fileobj=cast(IO[bytes], headers), mode="r:") as archive:
        while (entry := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # kept for lookups by name, of which there are none
            if not entry.isdir():
                yield TarMember(
                    entry.name.removeprefix("./"), entry.offset_data, entry.size, _why_unreadable(entry)
                )
        # tarfile takes a damaged header for the end: `_expect_end` reads on from here and tells them apart.
        file.seek(archive.offset)


def _why_unreadable(entry: tarfile.TarInfo) -> str:
    """Return why a member cannot be read; an empty text if it can."""
    if entry.issparse():
        return "a sparse member of a tar is not stored as it is"
    if entry.issym() or entry.islnk():
        return "links in a tar are not followed"
    return "" if entry.isreg() else "a device or pipe, no file"


def _expect_end(file: io.BufferedReader) -> None:
    """Expect the two blocks of zeros that end a tar, and nothing after them."""
    position = file.tell()
    rest = file.read(_MAX_PADDING)
    if len(rest) < 512:
        raise ValueError(f"it is cut off after {position:,} bytes")
    if any(rest[:512]):
        raise ValueError(f"byte {position:,} is not the beginning of a member's header")
    if any(rest):
        raise ValueError(f"it goes on after its end at byte {position:,}, as joined archives do")


class _BoundedHeaders:
    """The file as tarfile may read it: headers are bounded, and it never goes back.

    A member of negative size makes older versions of tarfile read the same headers forever (CVE-2025-8194).
    """

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._reached = 0

    def read(self, size: int) -> bytes:
        """Read a header, and note how far headers have been read."""
        if not 0 <= size <= _MAX_HEADER:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        data = self._file.read(size)
        self._reached = max(self._reached, self._file.tell())
        return data

    def seek(self, offset: int) -> int:
        if offset < self._reached - 1:  # tarfile looks at the last byte before a header
            raise tarfile.ReadError(f"a member of negative size before byte {self._reached:,}")
        return self._file.seek(offset)

    def tell(self) -> int:
        return self._file.tell()
