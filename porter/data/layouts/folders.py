"""Photos in folders, one per class, or ImageNet's validation photos in a single folder or in the tar they
come in.

Class folders were tested with real photos, single folders and the tar with generated files of the same
layout, and their labels with the real devkit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from porter.base.errors import FileError, escaped
from porter.data.classes import Classes, folder_labels, why_no_class, wnid_label
from porter.data.photos import (
    Bytes,
    Failure,
    FoundPhotos,
    PhotoCandidate,
    is_photo,
    photo_candidate,
    why_unread,
)
from porter.data.tar_file import TarMember

_WITH_WNID = re.compile(r"ILSVRC2012_val_\d{8}_(n\d{8})\.")


class ListedPhoto(NamedTuple):
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
        return _class_of(self.name)

    @property
    def place(self) -> Bytes | None:
        return None if self.why else Bytes(Path(self.path))


class Listing(NamedTuple):
    """The photos of a folder.

    Attributes:
        photos: in the order of their names.
        folders: those in it, empty ones too.
        others: files in it that are no photos.
        excluded: folders that are not entered, with the reason.
    """

    photos: list[ListedPhoto]
    folders: list[str]
    others: list[str]
    excluded: tuple[Failure, ...]


def list_photos(folder: Path) -> Listing:
    """Return the photos of a folder and of the folders in it.

    Links to folders are followed only in `folder` itself, because people put class folders together so
    without copies; a link to a folder that contains `folder` is never followed.

    Raises:
        FileError: a folder cannot be read.
    """
    photos: list[ListedPhoto] = []
    folders: list[str] = []
    others: list[str] = []
    excluded: list[Failure] = []
    # folders to be listed, each with what stands before its photos' names: `n01440764/`
    waiting = [(str(folder), "")]
    while waiting:
        place, prefix = waiting.pop()
        for entry in _entries(place):
            name = prefix + entry.name
            if entry.name.startswith(".") or entry.name == "__MACOSX":  # of a system
                continue
            if _holds(entry.is_dir):
                if why := _why_not_entered(entry, folder, prefix):
                    excluded.append(Failure(escaped(name), why))
                    continue
                if not prefix:
                    folders.append(name)
                waiting.append((entry.path, f"{name}/"))
            elif is_photo(name):
                why = why_unread(name) if _holds(entry.is_file) else "a broken link, or no regular file"
                photos.append(ListedPhoto(name, entry.path, why))
            elif not prefix:
                others.append(name)
    photos.sort()
    return Listing(
        photos, sorted(folders), sorted(others), tuple(sorted(excluded, key=lambda failure: failure.name))
    )


def names_in_folder(folder: Path) -> tuple[list[str], list[str]]:
    """Return the names of the folders and of the files in a folder, sorted, without those that begin with a
    dot.

    Raises:
        FileError: it cannot be read.
    """
    visible = (entry for entry in _entries(str(folder)) if not entry.name.startswith("."))
    entries = sorted((entry.name, _holds(entry.is_dir)) for entry in visible)
    folders = [name for name, is_folder in entries if is_folder]
    files = [name for name, is_folder in entries if not is_folder]
    return folders, files


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """Return what is in a folder, unsorted.

    Raises:
        FileError: it cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise FileError(f"the folder cannot be read: {error.strerror}", where=folder) from None


def _holds(kind: Callable[[], bool]) -> bool:
    """Return what `is_dir` or `is_file` of an entry says; False for a link that cannot be followed, such as
    one to itself.
    """
    try:
        return kind()
    except OSError:
        return False


def _why_not_entered(entry: os.DirEntry[str], folder: Path, prefix: str) -> str:
    """Return why a link to a folder is not followed; an empty text for a folder that is entered.

    Args:
        folder: the one that is listed.
        prefix: empty for an entry of that folder itself.
    """
    if not entry.is_symlink():
        return ""
    if prefix:
        return "links to folders are followed only at the top"
    target = Path(entry.path).resolve()
    listed = folder.resolve()
    return "a link to a folder that it lies in" if target in (listed, *listed.parents) else ""


def read_class_folders(path: Path, listing: Listing, classes: Classes) -> FoundPhotos:
    """Return the photos of `val/n01440764/*.JPEG`: the first folder below `path` is the class of every photo
    in it, at any depth.

    Raises:
        UsageError: see porter.data.classes.folder_labels.
    """
    class_names = {photo.folder for photo in listing.photos if photo.folder}
    labels = folder_labels(class_names if classes.imagenet else listing.folders, classes, str(path))
    candidates = [_candidate_in_class(photo.name, photo.place, photo.why, labels) for photo in listing.photos]
    return FoundPhotos(path, "class folders", candidates, listing.excluded)


def read_class_tars(
    path: Path, archives: Sequence[tuple[Path, list[TarMember]]], classes: Classes
) -> FoundPhotos | None:
    """Return the photos of class folders in tars, at the top or in one folder that holds all of them; None if
    there are none.

    Raises:
        UsageError: see porter.data.classes.folder_labels.
    """
    photos = [(file, member) for file, inside in archives for member in inside if is_photo(member.name)]
    names = [member.name for _, member in photos]
    above = _folder_above(names)
    folders = {folder for name in names if (folder := _class_of(name.removeprefix(above)))}
    if not folders:
        return None
    labels = folder_labels(folders, classes, str(path))
    candidates = [
        _candidate_in_class(
            member.name.removeprefix(above),
            None if member.why else Bytes(file, member.offset, member.size),
            member.why or why_unread(member.name),
            labels,
        )
        for file, member in sorted(photos, key=lambda photo: photo[1].name)
    ]
    return FoundPhotos(path, "class folders in a tar", candidates)


def _folder_above(names: Sequence[str]) -> str:
    """Return the folder, with its slash, that holds the class folders, which all names begin with: `val/` of
    `val/cat/1.jpg` and `val/dog/2.jpg`. It is empty if the class folders are at the top.
    """
    # the folders of each path, without the class folder
    parents = [name.split("/")[:-2] for name in names]
    if not parents:
        return ""
    first = parents[0]
    depth = 0
    while all(len(folders) > depth and folders[depth] == first[depth] for folders in parents):
        depth += 1
    return "".join(f"{folder}/" for folder in first[:depth])


def _candidate_in_class(
    name: str, place: Bytes | None, why: str, labels_of_folders: Mapping[str, int | None]
) -> PhotoCandidate:
    """Return a photo with the class of the folder that it lies in, or with the reason why it has none.

    Args:
        name: its path from the folder of the classes on, such as `n01440764/a.JPEG`.
        place: where its bytes are; None if it cannot be read.
        why: the reason for that, or empty.
    """
    folder = _class_of(name)
    label = labels_of_folders.get(folder)
    why_no_label = why_no_class(folder) if folder else "it lies in no class folder"
    return photo_candidate(escaped(name), name, place, label, why, why_no_label)


def _class_of(name: str) -> str:
    """Return the first folder of a photo's path; an empty text for a photo in no folder."""
    return name.partition("/")[0] if "/" in name else ""


def read_flat_folder(path: Path, listing: Listing) -> FoundPhotos:
    """Return the photos `ILSVRC2012_val_00000001.JPEG` to `..._00050000.JPEG` in one folder, with the devkit
    in it or beside it.
    """
    candidates = [_flat_candidate(photo.name, photo.place, photo.why) for photo in listing.photos]
    return FoundPhotos(path, "flat folder", candidates, listing.excluded, beside=(path, path.parent))


def read_flat_tar(path: Path, members: list[TarMember]) -> FoundPhotos:
    """Return the photos of the official ILSVRC2012_img_val.tar, read in place, with the devkit beside it."""
    photos = sorted(member for member in members if is_photo(member.name))
    candidates = [
        _flat_candidate(name, None if why else Bytes(path, offset, size), why)
        for name, offset, size, why in photos
    ]
    return FoundPhotos(path, "flat tar", candidates, beside=(path.parent,))


def _flat_candidate(name: str, place: Bytes | None, why: str) -> PhotoCandidate:
    """Return a photo in a folder without classes. Its class is in its name, if that is one of Hugging Face's
    val_images.tar.gz: `ILSVRC2012_val_00000293_n01440764.JPEG`; otherwise a file of labels has it.
    """
    match = _WITH_WNID.match(name.rpartition("/")[2])
    label = wnid_label(match[1]) if match else None
    return photo_candidate(escaped(name), name, place, label, why, "its name tells no class")
