"""Zip archives, and what Python's reader answers damaged ones with."""

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
    """An archive to read members from; `what` it is stands in messages, such as `.npz archive`.

    Raises:
        FileError: it is damaged or encrypted; also for a member that proves to be so inside the `with`. Or a member is neither
            stored nor deflated: the readers of other codecs have errors of their own, and no framework writes these.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    message = f"'{member.filename}' in this {what} is compressed in another way than zip's own"
                    raise FileError(message, where=str(path), next="save it again")
            yield archive
    except DAMAGED as error:
        raise FileError(f"this {what} is cut short or damaged: {error}", where=str(path), next="fetch it again") from None
