"""webdataset shards: tars in which `KEY.jpg` is a photo and `KEY.cls` or `KEY.json` says its class.

Tested only on generated shards, in the layouts of timm's and CLIP benchmark's uploads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from porter.base.errors import FileError, escaped
from porter.data.classes import Classes, StatedClasses, number_in, stated_classes
from porter.data.photos import Bytes, FoundPhotos, PhotoCandidate, is_photo, photo_candidate
from porter.data.tar_file import TarMember

_LABEL_SUFFIXES = ("cls", "json")
_LABEL_FIELDS = ("label", "cls")
_MAX_LABEL = 1 << 20
_NAMES_FILE = "classnames.txt"


def is_webdataset(members: Sequence[TarMember]) -> bool:
    """Return whether there are labels among the photos."""
    return any(_split_name(member.name)[1] in _LABEL_SUFFIXES for member in members)


def read_webdataset(
    path: Path, shards: Sequence[tuple[Path, list[TarMember]]], classes: Classes
) -> FoundPhotos:
    """Return the photos in the order of the shards and of the members in each.

    A class is a number in the order of wnids, or a wnid. CLIP benchmark's sets have `classnames.txt` in the
    shards' folder or above it; where they have other than 1000 classes, the numbers are those of these names.

    Raises:
        FileError: a shard cannot be read, or see porter.data.classes.labels_of_names.
    """
    folder = shards[0][0].parent
    candidates: list[PhotoCandidate] = []
    try:
        names_files = (folder / _NAMES_FILE, folder.parent / _NAMES_FILE)
        names_file = next((file for file in names_files if file.is_file()), None)
        names = None if names_file is None else _read_names(names_file)
        known = stated_classes(names, classes, str(names_file))
        for shard, members in shards:
            prefix = f"{shard.name}/" if shard != path else ""
            with shard.open("rb") as file:
                candidates += _photos_of_shard(shard, file, members, prefix, known)
    except OSError as error:
        raise FileError(f"cannot be read: {error}", where=path) from None
    return FoundPhotos(path, "webdataset", candidates)


def _photos_of_shard(
    shard: Path,
    file: BinaryIO,
    members: list[TarMember],
    prefix: str,
    known: StatedClasses,
) -> list[PhotoCandidate]:
    """Return the photos of a shard of WebDataset, each with the labels of its key.

    Args:
        file: the shard, opened.
        prefix: stands before the names of its photos.
        known: what the data set's labels stand for.
    """
    photos: dict[str, TarMember] = {}
    # by key and suffix, the members that may say a photo's class
    beside: dict[str, dict[str, TarMember]] = {}
    for member in members:
        key, suffix = _split_name(member.name)
        if suffix in _LABEL_SUFFIXES:
            beside.setdefault(key, {})[suffix] = member
        elif is_photo(f"photo.{suffix}") and is_photo(member.name):
            photos.setdefault(key, member)
    candidates = []
    for key, member in photos.items():
        label, no_label = _read_label(file, beside.get(key, {}), known)
        place = None if member.why else Bytes(shard, member.offset, member.size)
        name = escaped(prefix + member.name)
        candidates.append(photo_candidate(name, member.name, place, label, member.why, no_label))
    return candidates


def _read_label(file: BinaryIO, beside: dict[str, TarMember], known: StatedClasses) -> tuple[int | None, str]:
    """Return the label of a photo, from the members beside it, and why it cannot be scored if there is none,
    or none that is a class of the port.

    Args:
        beside: by suffix, the members with the photo's key.
        known: what the data set's labels stand for.
    """
    if not beside:
        return None, "there is no .cls or .json beside it"
    for suffix in _LABEL_SUFFIXES:
        member = beside.get(suffix)
        if member is None:
            continue
        if member.why or member.size > _MAX_LABEL:
            return None, f"its .{suffix} cannot be read: {member.why or f'{member.size:,} bytes'}"
        file.seek(member.offset)
        text = file.read(member.size).decode("utf-8", "replace")
        value = text.strip() if suffix == "cls" else _label_in_json(text)
        if value is None:
            continue
        number = number_in(value)
        label = known.row_of(value if number is None else number)
        return label, f"its .{suffix} says '{escaped(value[:40])}', which is no class of the port"
    return None, f"its .json has no field {' or '.join(_LABEL_FIELDS)}"


def _label_in_json(text: str) -> str | None:
    """Return the label in the JSON beside a photo, a number or a text in `label` or `cls`, as text; None if
    it has none.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    label = next((fields[name] for name in _LABEL_FIELDS if name in fields), None)
    return str(label) if isinstance(label, (int, str)) and not isinstance(label, bool) else None


def _split_name(name: str) -> tuple[str, str]:
    """Return the key and the suffix of a member's name, `a/0001` and `seg.png` of `a/0001.seg.png`: the
    suffix begins at the first dot of the file name (webdataset's base_plus_ext).
    """
    folder, slash, base = name.rpartition("/")
    key, _, suffix = base.partition(".")
    return folder + slash + key, suffix.lower()


def _read_names(path: Path) -> list[str]:
    """Return the lines of a file of names, of which a bounded part is read."""
    with path.open("rb") as file:
        return file.read(_MAX_LABEL).decode("utf-8", "replace").splitlines()
