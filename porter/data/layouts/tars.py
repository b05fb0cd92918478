"""Where the members of a tar are, so that they can be read in place. Nothing is unpacked, and no name in it is used as a path."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

from porter.errors import FileError

_MAGICS = {b"\x1f\x8b": "gunzip", b"BZh": "bunzip2", b"\xfd7zXZ\x00": "unxz", b"\x28\xb5\x2f\xfd": "unzstd", b"PK\x03\x04": "unzip"}
_MAX_MEMBERS = 5_000_000
"""Of one archive, kept in memory: 1.3 million photos with a `.cls` and a `.json` each are 3.9 million."""
_MAX_HEADER = 1 << 20
_MAX_PADDING = 1 << 20  # GNU tar fills the last record with zeros: 10 KiB unless told otherwise


class Member(NamedTuple):
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
    """By content; an empty tar is one too."""
    with path.open("rb") as file:
        head = file.read(512)
    return head[257:262] == b"ustar" or (len(head) == 512 and not any(head))


def unpacker(path: Path) -> str | None:
    """The program that unpacks a compressed file; None for any other."""
    with path.open("rb") as file:
        head = file.read(6)
    return next((program for magic, program in _MAGICS.items() if head.startswith(magic)), None)


def members(path: Path) -> list[Member]:
    """All members except folders, in the order of the archive. Of several with one name it is the last, as after unpacking.

    Raises:
        FileError: it is no tar, compressed, cut off, joined from several, or has more than _MAX_MEMBERS.
    """
    if program := unpacker(path):
        message = "the archive is compressed, and photos are read in place only out of uncompressed ones"
        raise FileError(message, where=str(path), next=f"{program} it first")
    try:
        with path.open("rb") as file:
            found: dict[str, Member] = {}
            for count, member in enumerate(_members(file)):
                if count == _MAX_MEMBERS:
                    message = f"the archive has more than {_MAX_MEMBERS:,} members"
                    raise FileError(message, where=str(path), next="put the photos into several archives")
                found[member.name] = member
            _require_end(file)
    except (OSError, tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        raise FileError(f"the archive cannot be read: {error}", where=str(path), next="check that it is complete") from None
    return list(found.values())


def _members(file: io.BufferedReader) -> Iterator[Member]:
    headers = _Headers(file)
    with tarfile.open(fileobj=cast(IO[bytes], headers), mode="r:") as archive:
        while (entry := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # kept for lookups by name, of which there are none
            if not entry.isdir():
                yield Member(entry.name.removeprefix("./"), entry.offset_data, entry.size, _unreadable(entry))
        # tarfile treats a damaged header as the end.
        file.seek(archive.offset)


def _unreadable(entry: tarfile.TarInfo) -> str:
    if entry.issparse():
        return "a sparse member of a tar is not stored as it is"
    if entry.issym() or entry.islnk():
        return "links in a tar are not followed"
    return "" if entry.isreg() else "a device or pipe, no file"


def _require_end(file: io.BufferedReader) -> None:
    position = file.tell()
    rest = file.read(_MAX_PADDING)
    if len(rest) < 512:
        raise ValueError(f"it is cut off after {position:,} bytes")
    if any(rest[:512]):
        raise ValueError(f"byte {position:,} is not the beginning of a member's header")
    if any(rest):
        raise ValueError(f"it goes on after its end at byte {position:,}, as joined archives do")


class _Headers:
    """The file as tarfile may read it: headers are bounded, and it never goes back.

    A member of negative size makes older versions of tarfile read the same headers forever (CVE-2025-8194).
    """

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._reached = 0

    def read(self, size: int) -> bytes:
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
