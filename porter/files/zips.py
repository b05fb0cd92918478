"""Zip archives, and the errors of Python's reader for damaged ones."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from porter.base.errors import FileError, first_line

DAMAGED = (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError)
"""Raised for an archive or a member of it that is cut short, damaged or encrypted."""


@contextmanager
def open_zip(path: Path, what: str, stream: IO[bytes] | None = None) -> Iterator[zipfile.ZipFile]:
    """Open an archive to read members from; messages call it `what`, such as `.npz archive`.

    Args:
        stream: the archive, if it is in memory; `path` is then for messages.

    Raises:
        FileError: the archive, or a member read inside the `with`, is damaged or encrypted; or a member is
            neither stored nor deflated: no framework writes other codecs, and their readers have errors of
            their own.
    """
    try:
        with zipfile.ZipFile(stream or path) as archive:
            for member in archive.infolist():
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    message = f"'{member.filename}' in this {what} is neither stored nor deflated"
                    raise FileError(message, where=path, next="save it again")
            yield archive
    except DAMAGED as error:
        message = f"this {what} is cut short or damaged: {first_line(error)}"
        raise FileError(message, where=path, next="fetch it again") from None


class ZipMembers:
    """The members of an archive, read within a budget: sizes are compared before anything is unpacked.

    Attributes:
        left: bytes that may still be read.
        by_name: the entries, under what `name` makes of their names in the archive.

    Raises:
        FileError: two members have one name.
    """

    def __init__(
        self, archive: zipfile.ZipFile, path: Path, budget: int, name: Callable[[str], str] = str
    ) -> None:
        self._archive, self.path, self.left = archive, path, budget
        self.by_name: dict[str, zipfile.ZipInfo] = {}
        for member in archive.infolist():
            # Two members of one name would hide what is read.
            member_name = name(member.filename)
            if member_name in self.by_name:
                raise self.damaged(f"two members of this archive are called '{member_name}'")
            self.by_name[member_name] = member

    def read(self, name: str, limit: int | None = None) -> bytes:
        """Return the bytes of a member.

        Raises:
            FileError: there is none of this name, or it unpacks to more bytes than `limit`, or than are left.
        """
        member = self.by_name.get(name)
        if member is None:
            raise self.damaged(f"this archive lacks '{name}'")
        most = self.left if limit is None else min(limit, self.left)
        if member.file_size > most:
            raise self.damaged(
                f"'{name}' declares {member.file_size} bytes, more than the {most} it can have"
            )
        self.left -= member.file_size
        return self._archive.read(member)  # zipfile stops at the declared size and checks the CRC

    def damaged(self, message: str) -> FileError:
        return FileError(message, where=self.path, next="fetch or export it again")
