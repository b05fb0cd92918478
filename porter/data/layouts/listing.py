"""What is in a folder. Each subfolder is read once and no photo is opened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from porter.data.layouts.found import is_photo
from porter.data.photos import Failure
from porter.errors import FileError, escaped


class Photograph(NamedTuple):
    """A file that is a photo by its name.

    Attributes:
        name: the path below the listed folder.
        why: why it cannot be read, or empty.
    """

    name: str
    path: str
    why: str

    @property
    def folder(self) -> str:
        """The first folder below the listed one; empty for a photo in the listed folder itself."""
        return self.name.partition("/")[0] if "/" in self.name else ""


class Listing(NamedTuple):
    """The photos of a folder.

    Attributes:
        photos: in the order of their names.
        folders: those in it, empty ones too.
        others: files in it that are no photos.
        excluded: folders that are not entered, with the reason.
    """

    photos: list[Photograph]
    folders: list[str]
    others: list[str]
    excluded: tuple[Failure, ...]


def list_photos(folder: Path) -> Listing:
    """The photos of a folder and of the folders in it.

    Links to folders are followed only in `folder` itself, because people put class folders together so without copies; a link to
    a folder that contains `folder` is never followed.

    Raises:
        FileError: a folder cannot be read.
    """
    photos: list[Photograph] = []
    folders: list[str] = []
    others: list[str] = []
    excluded: list[Failure] = []
    waiting = [(str(folder), "")]
    while waiting:
        place, prefix = waiting.pop()
        for entry in _entries(place):
            name = prefix + entry.name
            if entry.name.startswith(".") or entry.name == "__MACOSX":
                continue
            if entry.is_dir():
                if why := _barred(entry, folder, prefix):
                    excluded.append(Failure(escaped(name), why))
                    continue
                if not prefix:
                    folders.append(name)
                waiting.append((entry.path, f"{name}/"))
            elif is_photo(name):
                photos.append(Photograph(name, entry.path, "" if entry.is_file() else "a broken link, or no regular file"))
            elif not prefix:
                others.append(name)
    photos.sort()
    return Listing(photos, sorted(folders), sorted(others), tuple(sorted(excluded, key=lambda failure: failure.name)))


def contents(folder: Path) -> tuple[list[str], list[str]]:
    """The names of the folders and of the files in a folder, sorted, without those that begin with a dot.

    Raises:
        FileError: it cannot be read.
    """
    entries = sorted((entry.name, entry.is_dir()) for entry in _entries(str(folder)) if not entry.name.startswith("."))
    return [name for name, is_folder in entries if is_folder], [name for name, is_folder in entries if not is_folder]


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise FileError(f"the folder cannot be read: {error.strerror}", where=folder) from None


def _barred(entry: os.DirEntry[str], folder: Path, prefix: str) -> str:
    if not entry.is_symlink():
        return ""
    if prefix:
        return "links to folders are followed only at the top"
    target, listed = Path(entry.path).resolve(), folder.resolve()
    return "a link to a folder that it lies in" if target in (listed, *listed.parents) else ""
