"""Tars of photos, read in place: where their members are, and webdataset shards.

Nothing is unpacked, and no name in a tar is used as a path. In webdataset shards `KEY.jpg` is a photo and
`KEY.cls` or `KEY.json` says its class; this was tested only on generated shards, in the layouts of timm's and
CLIP benchmark's uploads.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple, cast

from porter.base.errors import FileError, escaped
from porter.data.classes import Classes, StatedClasses, number_in, stated_classes
from porter.data.photos import Bytes, FoundPhotos, PhotoCandidate, is_photo, photo_candidate

_UNPACKERS = {
    b"\x1f\x8b": "gunzip",
    b"BZh": "bunzip2",
    b"\xfd7zXZ\x00": "unxz",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"PK\x03\x04": "unzip",
}
_MAX_MEMBERS = 5_000_000
"""The most members of one archive, which are kept in memory: 1.3 million photos with a `.cls` and a `.json`
each are 3.9 million.
"""
_MAX_HEADER = 1 << 20
_MAX_PADDING = 1 << 20  # GNU tar fills the last record with zeros: 10 KiB unless told otherwise
_LABEL_SUFFIXES = ("cls", "json")
_LABEL_FIELDS = ("label", "cls")
_MAX_LABEL = 1 << 20
_NAMES_FILE = "classnames.txt"


class TarMember(NamedTuple):
    """A member of a tar.

    Attributes:
        offset, size: its bytes within the archive.
        why: why it cannot be read in place, or empty.
    """

    name: str
    offset: int
    size: int
    why: str


def is_tar(path: Path) -> bool:
    """Return whether the content of a file is a tar's; an empty tar is one too."""
    with path.open("rb") as file:
        header = file.read(512)
    is_end = len(header) == 512 and not any(header)  # a block of zeros ends a tar
    return header[257:262] == b"ustar" or is_end


def unpacker(path: Path) -> str | None:
    """Return the program that unpacks a compressed file; None for any other file."""
    with path.open("rb") as file:
        head = file.read(6)
    return next((program for magic, program in _UNPACKERS.items() if head.startswith(magic)), None)


def list_members(path: Path) -> list[TarMember]:
    """Return all members except folders, in the order of the archive. Of several with one name it has the
    last, as after unpacking.

    Raises:
        FileError: it is no tar, compressed, cut off, joined from several, or has more than _MAX_MEMBERS.
    """
    if program := unpacker(path):
        message = "the archive is compressed, and photos are read in place only out of uncompressed ones"
        raise FileError(message, where=path, next=f"{program} it first")
    try:
        with path.open("rb") as file:
            by_name: dict[str, TarMember] = {}
            for count, member in enumerate(_iterate_members(file)):
                if count == _MAX_MEMBERS:
                    message = f"the archive has more than {_MAX_MEMBERS:,} members"
                    raise FileError(message, where=path, next="put the photos into several archives")
                by_name[member.name] = member
            _expect_end(file)
    except (OSError, tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        raise FileError(
            f"the archive cannot be read: {error}", where=path, next="check that it is complete"
        ) from None
    return list(by_name.values())


def _iterate_members(file: io.BufferedReader) -> Iterator[TarMember]:
    """Yield the members of a tar except folders, up to its end or to a damaged header; the file then stands
    behind the last of them.
    """
    headers = _BoundedHeaders(file)
    with tarfile.open(fileobj=cast(IO[bytes], headers), mode="r:") as archive:
        while (entry := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # kept for lookups by name, of which there are none
            if not entry.isdir():
                yield TarMember(
                    entry.name.removeprefix("./"), entry.offset_data, entry.size, _why_unreadable(entry)
                )
        # tarfile takes a damaged header for the end: `_expect_end` reads on from here and tells them apart.
        file.seek(archive.offset)


def _why_unreadable(entry: tarfile.TarInfo) -> str:
    """Return why a member cannot be read; an empty text if it can."""
    if entry.issparse():
        return "a sparse member of a tar is not stored as it is"
    if entry.issym() or entry.islnk():
        return "links in a tar are not followed"
    return "" if entry.isreg() else "a device or pipe, no file"


def _expect_end(file: io.BufferedReader) -> None:
    """Expect the two blocks of zeros that end a tar, and nothing after them."""
    position = file.tell()
    rest = file.read(_MAX_PADDING)
    if len(rest) < 512:
        raise ValueError(f"it is cut off after {position:,} bytes")
    if any(rest[:512]):
        raise ValueError(f"byte {position:,} is not the beginning of a member's header")
    if any(rest):
        raise ValueError(f"it goes on after its end at byte {position:,}, as joined archives do")


class _BoundedHeaders:
    """The file as tarfile may read it: headers are bounded, and it never goes back.

    A member of negative size makes older versions of tarfile read the same headers forever (CVE-2025-8194).
    """

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._reached = 0

    def read(self, size: int) -> bytes:
        """Read a header, and note how far headers have been read."""
        if not 0 <= size <= _MAX_HEADER:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        data = self._file.read(size)
        self._reached = max(self._reached, self._file.tell())
        return data

    def seek(self, offset: int) -> int:
        if offset < self._reached - 1:  # tarfile looks at the last byte before a header
            raise tarfile.ReadError(f"a member of negative size before byte {self._reached:,}")
        return self._file.seek(offset)

    def tell(self) -> int:
        return self._file.tell()


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
