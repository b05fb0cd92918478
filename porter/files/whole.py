"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from porter.base.errors import FileError

NEW = ".porter-new"
"""Ends the name of a file while it is written, beside its place; the next run replaces one that a killed run
left.
"""


def behind_links(path: Path) -> Path:
    """Return the place of a file that the user names: a link stays, and its target is replaced."""
    return Path(os.path.realpath(path))  # links may point to each other


def expect_folder(path: Path) -> None:
    """Raise, before a long run, for a file that the user names and that could not be written at its end.

    Raises:
        FileError: its folder is not there, or a folder, a device, a pipe or a socket stands in its place.
    """
    path = behind_links(path)
    if path.is_dir():
        raise FileError(
            "this is a folder, expected the name of a file to write", where=path, next="add a name to it"
        )
    _expect_no_device(path)
    if not path.parent.is_dir():
        raise FileError(
            f"there is no folder {path.parent} to write it into",
            where=path,
            next="make the folder first",
        )


def write_whole(path: Path, text: str) -> None:
    """Write `text` in UTF-8 to `path`, whose old content stands until the new one is complete. A link that
    stands there is replaced, and its target stays as it is.

    Raises:
        FileError: nothing can be written there, or a device, a pipe or a socket stands there.
    """
    _expect_no_device(path)
    fresh = path.with_name(f".{path.name}{NEW}")
    try:
        try:
            fresh.unlink(missing_ok=True)
            with fresh.open("x", encoding="utf-8") as file:  # never through a link that somebody put there
                file.write(text)
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(
            f"cannot be written: {error.strerror}", where=path, next="choose another place for it"
        ) from None


def _expect_no_device(path: Path) -> None:
    """Expect no device in the file's place, which a file would take: root's `--predictions /dev/null` would
    remove /dev/null.
    """
    try:
        kind = path.lstat().st_mode
    except OSError:
        return  # nothing stands there, or writing says why not
    if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind) or stat.S_ISDIR(kind)):
        raise FileError(
            "expected a file to replace, found a device, a pipe or a socket",
            where=path,
            next="give the name of a file",
        )
