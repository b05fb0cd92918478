"""webdataset shards: tars in which `KEY.jpg` is a photo and `KEY.cls` or `KEY.json` says its class.

Tested only on generated shards, in the layouts of timm's and CLIP benchmark's uploads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from porter.data.layouts.classes import named_labels, wnid_label
from porter.data.layouts.found import Candidate, Found, is_photo
from porter.data.layouts.tars import Member
from porter.data.photos import Bytes
from porter.errors import FileError, escaped

_LABELS = ("cls", "json")
_FIELDS = ("label", "cls")
_MAX_LABEL = 1 << 20
_NAMES = "classnames.txt"

_Labels = tuple[int, ...]


def is_webdataset(members: Sequence[Member]) -> bool:
    """Whether there are labels among the photos."""
    return any(_split(member.name)[1] in _LABELS for member in members)


def webdataset(path: Path, shards: Sequence[tuple[Path, list[Member]]], imagenet: bool, classes: int) -> Found:
    """Photos in the order of the shards and of the members in each.

    A class is a number in the order of wnids, or a wnid. CLIP benchmark's sets have `classnames.txt` in the shards' folder or
    above it; where they have other than 1000 classes, the numbers are those of these names.

    Raises:
        FileError: a shard cannot be read, or see porter.data.layouts.classes.named_labels.
    """
    folder = shards[0][0].parent
    candidates: list[Candidate] = []
    try:
        names = next((file for file in (folder / _NAMES, folder.parent / _NAMES) if file.is_file()), None)
        known = named_labels(_lines(names), imagenet, classes, str(names)) if names else tuple(range(classes))
        for shard, members in shards:
            prefix = f"{shard.name}/" if shard != path else ""
            with shard.open("rb") as file:
                candidates += _in_shard(shard, file, members, prefix, known, imagenet)
    except OSError as error:
        raise FileError(f"cannot be read: {error}", where=str(path)) from None
    return Found(path, "webdataset", candidates)


def _in_shard(
    shard: Path, file: BinaryIO, members: list[Member], prefix: str, known: Sequence[int | None], imagenet: bool
) -> list[Candidate]:
    photos: dict[str, Member] = {}
    beside: dict[str, dict[str, Member]] = {}
    for member in members:
        key, suffix = _split(member.name)
        if suffix in _LABELS:
            beside.setdefault(key, {})[suffix] = member
        elif is_photo(f"photo.{suffix}") and is_photo(member.name):
            photos.setdefault(key, member)
    candidates = []
    for key, member in photos.items():
        labels, why = _label(file, beside.get(key, {}), known, imagenet)
        place = None if member.why else Bytes(shard, member.offset, member.size)
        candidates.append(Candidate(escaped(prefix + member.name), member.name, place, labels, member.why or why))
    return candidates


def _label(file: BinaryIO, beside: dict[str, Member], known: Sequence[int | None], imagenet: bool) -> tuple[_Labels, str]:
    if not beside:
        return (), "there is no .cls or .json beside it"
    for suffix in _LABELS:
        member = beside.get(suffix)
        if member is None:
            continue
        if member.why or member.size > _MAX_LABEL:
            return (), f"its .{suffix} cannot be read: {member.why or f'{member.size:,} bytes'}"
        file.seek(member.offset)
        text = file.read(member.size).decode("utf-8", "replace")
        value = text.strip() if suffix == "cls" else _field(text)
        if value is None:
            continue
        label = _of(value, known, imagenet)
        return (() if label is None else (label,)), f"its .{suffix} says '{escaped(value[:40])}', which is no class of the port"
    return (), f"its .json has no field {' or '.join(_FIELDS)}"


def _of(value: str, known: Sequence[int | None], imagenet: bool) -> int | None:
    if value.isascii() and value.isdigit() and len(value) <= 9:
        return known[int(value)] if int(value) < len(known) else None
    return wnid_label(value) if imagenet else None


def _field(text: str) -> str | None:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    found = next((fields[name] for name in _FIELDS if name in fields), None)
    return str(found) if isinstance(found, (int, str)) and not isinstance(found, bool) else None


def _split(name: str) -> tuple[str, str]:
    """Key and suffix: the suffix begins at the first dot of the file name (webdataset's base_plus_ext)."""
    folder, slash, base = name.rpartition("/")
    key, _, suffix = base.partition(".")
    return folder + slash + key, suffix.lower()


def _lines(path: Path) -> list[str]:
    with path.open("rb") as file:
        return file.read(_MAX_LABEL).decode("utf-8", "replace").splitlines()
