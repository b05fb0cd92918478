"""Recognises the layout of a folder or a file by what is in it, and reads its photos."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from porter.base.errors import FileError, escaped, some
from porter.base.options import LABELS
from porter.base.package import page
from porter.data.arrow import is_saved
from porter.data.classes import Classes
from porter.data.layouts.folders import (
    list_photos,
    read_class_folders,
    read_class_tars,
    read_flat_folder,
    read_flat_tar,
)
from porter.data.layouts.photo_tables import read_parquet_photos, read_saved_photos
from porter.data.layouts.splits import expect_no_split, files_of_split
from porter.data.layouts.tfrecord import read_tfrecord_photos
from porter.data.layouts.webdataset import is_webdataset, read_webdataset
from porter.data.parquet_file import is_parquet
from porter.data.photos import (
    Failure,
    FoundPhotos,
    is_photo,
    validation_number,
)
from porter.data.tar_file import is_tar, list_members, unpacker
from porter.data.tfrecord_file import is_tfrecord

LAYOUTS_HINT = f"{page('data.md')} lists the layouts that are read"

_COMPRESSED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip")

_TFRECORD_NAME = re.compile(r"\.tfrec(?:ords?)?(?:[-_.]?\d+(?:-of-\d+)?)?$|-\d{5}-of-\d{5}$")
"""How TFRecord files are named: `x.tfrecord`, `x.tfrecord-00000-of-00128`, `train-00000-of-01024`."""
_SHARD_OF = re.compile(r"-(\d{5})-of-(\d{5})(?!\d)")


def read_folder(path: Path, split: str | None, classes: Classes) -> FoundPhotos:
    """Return the photos of a folder. The layout follows from the files that it holds."""
    listing = list_photos(path)
    if is_saved(path):
        files = [path / name for name in listing.others if name.endswith(".arrow")]
        return _read_shards(read_saved_photos, path, files_of_split(path, files, split), classes)
    if tables := [path / name for name in listing.others if name.endswith(".parquet")]:
        return _read_shards(read_parquet_photos, path, files_of_split(path, tables, split), classes)
    in_folders = sum(bool(photo.folder) for photo in listing.photos)
    numbered = sum(not photo.folder and validation_number(photo.name) is not None for photo in listing.photos)
    if classes.imagenet and numbered > in_folders:
        expect_no_split(split, path)
        return read_flat_folder(path, listing)
    if in_folders:
        expect_no_split(split, path)
        return read_class_folders(path, listing, classes)
    shards = [path / name for name in listing.others if _TFRECORD_NAME.search(name)]
    if any(map(is_tfrecord, shards)):
        return _read_shards(read_tfrecord_photos, path, files_of_split(path, shards, split), classes)
    if tars := [path / name for name in listing.others if name.endswith(".tar")]:
        return _read_shards(_read_tars, path, files_of_split(path, tars, split), classes)
    problems = [f"{len(listing.photos):,} photos lie in no class folder"] if listing.photos else []
    if listing.folders:
        problems.append(f"no photos in the folders {some(listing.folders)}")
    packed_shards = [file.name for file in shards if unpacker(file)]
    if packed := [*(name for name in listing.others if name.endswith(_COMPRESSED)), *packed_shards]:
        problems.append(f"compressed files are not read, so unpack them: {some(packed)}")
    if not_tfrecord := [file.name for file in shards if file.name not in packed_shards]:
        problems.append(f"these do not begin as TFRecord files do: {some(not_tfrecord)}")
    next = f"put those of each class into a folder, or give {LABELS.placeholder}; {LAYOUTS_HINT}"
    raise FileError(
        "; ".join(problems) or "there are no photos",
        where=path,
        next=next if listing.photos else LAYOUTS_HINT,
    )


def read_file(path: Path, split: str | None, classes: Classes) -> FoundPhotos:
    """Return the photos of a file, which is Parquet, a tar or TFRecord by its content.

    Raises:
        FileError: it is none of these.
    """
    readers = (
        (is_parquet, read_parquet_photos),
        (lambda file: is_tar(file) or unpacker(file), _read_tars),
        (is_tfrecord, read_tfrecord_photos),
    )
    for is_of_layout, read in readers:
        if is_of_layout(path):
            return read(path, files_of_split(path, [path], split), classes)
    raise FileError(
        "it is no folder, no tar, no TFRecord file and no Parquet file", where=path, next=LAYOUTS_HINT
    )


def _read_shards(
    read: Callable[[Path, Sequence[Path], Classes], FoundPhotos],
    path: Path,
    files: Sequence[Path],
    classes: Classes,
) -> FoundPhotos:
    """Return the photos in the files of a folder. Where their names say how many there are, as
    `x-00003-of-00010.tar` does, those that are not there are named among what is left out.
    """
    photos = read(path, files, classes)
    names = {file.name for file in files}
    # ten names where one is `x-00003-of-00010.tar`
    expected = set[str]()
    for name in names:
        if match := _SHARD_OF.search(name):
            start, end = name[: match.start()], name[match.end() :]
            expected |= {f"{start}-{number:05}-of-{match[2]}{end}" for number in range(int(match[2]))}
    missing = tuple(
        Failure(escaped(name), "this file of the data set is not there") for name in sorted(expected - names)
    )
    return replace(photos, excluded=(*photos.excluded, *missing))


def _read_tars(path: Path, files: Sequence[Path], classes: Classes) -> FoundPhotos:
    """Return the photos of tars: WebDataset's, ImageNet's own of the validation set, or folders within one
    tar.
    """
    shards = [(file, list_members(file)) for file in files]
    if any(is_webdataset(inside) for _, inside in shards):
        return read_webdataset(path, shards, classes)
    names = [member.name for _, inside in shards for member in inside]
    is_numbered = any(is_photo(name) and validation_number(name) is not None for name in names)
    if classes.imagenet and len(shards) == 1 and is_numbered:
        return replace(read_flat_tar(*shards[0]), path=path)
    if classified := read_class_tars(path, shards, classes):
        return classified
    raise FileError(
        "an archive without labels, neither webdataset, class folders nor ImageNet's validation set: it has "
        f"{some(names) or 'no files'}",
        where=path,
        next="unpack it into class folders",
    )
