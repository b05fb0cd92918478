"""Files that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

from porter.base.errors import FileError

NEW = ".porter-new"
"""Ends the name of a file while it is written, beside its place; the next run replaces one that a killed run
left.
"""


def expect_folder(path: Path) -> None:
    """Refuses, before a long run, a file that could not be written at its end.

    Raises:
        FileError: its folder is not there, or a folder stands in its place.
    """
    if path.is_dir():
        raise FileError("this is a folder, expected the name of a file to write", where=str(path))
    if not path.parent.is_dir():
        raise FileError(
            f"there is no folder {path.parent} to write it into",
            where=str(path),
            next="make the folder first",
        )


def write_whole(path: Path, text: str) -> None:
    """Writes `text` in UTF-8 to `path`, whose old content stands until the new one is complete.

    Raises:
        FileError: nothing can be written there.
    """
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
        raise FileError(f"cannot be written: {error.strerror}", where=str(path)) from None
