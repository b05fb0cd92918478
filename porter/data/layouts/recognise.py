"""Which layout a path has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from porter.data.layouts.classes import listed
from porter.data.layouts.folders import class_folders, flat_folder, flat_tar
from porter.data.layouts.found import Found, is_photo, validation_number
from porter.data.layouts.listing import contents, list_photos
from porter.data.layouts.parquet import parquet
from porter.data.layouts.shards import VALIDATION_NAMES, of_one_split
from porter.data.layouts.tars import is_tar, members, unpacker
from porter.data.layouts.webdataset import is_webdataset, webdataset
from porter.data.parquet import is_parquet
from porter.errors import FileError

NEXT = "docs/data.md lists the layouts that are read"

_SHARDS = (".parquet", ".tar")
_COMPRESSED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip")


def find(path: Path, imagenet: bool, classes: int) -> Found:
    """The photos of a folder or file, at least one, with what it says of their classes.

    Raises:
        PorterError: see porter.data.layouts.open_photos.
    """
    try:
        if not path.exists():
            raise FileError("there is no such file or folder", where=str(path))
        found = _in_folder(_inner(path), imagenet, classes) if path.is_dir() else _in_file(path, imagenet, classes)
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if not found.candidates:
        raise FileError("there are no photos", where=str(found.path), next=NEXT)
    return found


def _inner(path: Path) -> Path:
    """The folder of the validation photos, where `path` holds that one: `val` beside `train`, or Hugging Face's `data`."""
    folders, files = contents(path)
    for name in VALIDATION_NAMES:
        if name in folders:
            return path / name
    if "data" not in folders or any(name.endswith(_SHARDS) for name in files):
        return path
    return path / "data" if any(name.endswith(_SHARDS) for name in contents(path / "data")[1]) else path


def _in_folder(path: Path, imagenet: bool, classes: int) -> Found:
    listing = list_photos(path)
    if tables := [path / name for name in listing.others if name.endswith(".parquet")]:
        return parquet(path, of_one_split(tables), imagenet, classes)
    in_folders = sum(bool(photo.folder) for photo in listing.photos)
    numbered = sum(not photo.folder and validation_number(photo.name) is not None for photo in listing.photos)
    if imagenet and numbered > in_folders:
        return flat_folder(path, listing)
    if in_folders:
        return class_folders(path, listing, imagenet, classes)
    if tars := [path / name for name in listing.others if name.endswith(".tar")]:
        return _in_tars(path, of_one_split(tars), imagenet, classes)
    seen = [f"{len(listing.photos):,} photos lie in no class folder"] if listing.photos else []
    if listing.folders:
        seen.append(f"no photos in the folders {listed(listing.folders)}")
    if packed := [name for name in listing.others if name.endswith(_COMPRESSED)]:
        seen.append(f"compressed files are not read: {listed(packed)}")
    raise FileError("; ".join(seen) or "there are no photos", where=str(path), next=NEXT)


def _in_file(path: Path, imagenet: bool, classes: int) -> Found:
    if is_parquet(path):
        return parquet(path, [path], imagenet, classes)
    if is_tar(path) or unpacker(path):
        return _in_tars(path, [path], imagenet, classes)
    raise FileError("it is no folder, no tar and no Parquet file", where=str(path), next=NEXT)


def _in_tars(path: Path, files: Sequence[Path], imagenet: bool, classes: int) -> Found:
    shards = [(file, members(file)) for file in files]
    if any(is_webdataset(inside) for _, inside in shards):
        return webdataset(path, shards, imagenet, classes)
    names = [member.name for _, inside in shards for member in inside]
    if imagenet and len(shards) == 1 and any(is_photo(name) and validation_number(name) is not None for name in names):
        return replace(flat_tar(*shards[0]), path=path)
    raise FileError(
        f"an archive without labels, neither webdataset nor ImageNet's validation set: it has {listed(names) or 'no files'}",
        where=str(path),
        next="unpack it into class folders",
    )
