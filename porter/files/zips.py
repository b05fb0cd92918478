"""Zip archives, and the errors of Python's reader for damaged ones."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from porter.errors import FileError

DAMAGED = (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError)
"""Raised for an archive or a member of it that is cut short, damaged or encrypted."""


@contextmanager
def open_zip(path: Path, what: str) -> Iterator[zipfile.ZipFile]:
    """An archive to read members from; messages call it `what`, such as `.npz archive`.

    Raises:
        FileError: the archive, or a member read inside the `with`, is damaged or encrypted; or a member is neither stored nor
            deflated: no framework writes other codecs, and their readers have errors of their own.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    message = f"'{member.filename}' in this {what} is neither stored nor deflated"
                    raise FileError(message, where=str(path), next="save it again")
            yield archive
    except DAMAGED as error:
        raise FileError(f"this {what} is cut short or damaged: {error}", where=str(path), next="fetch it again") from None
