"""Files that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

from porter.base.errors import FileError

NEW = ".porter-new"
"""Ends the name of a file while it is written, beside its place; the next run replaces one that a killed run left."""


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
