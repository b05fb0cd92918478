"""Finds the files of a TensorFlow checkpoint from any part of it that was named. Nothing here imports
TensorFlow.

V2 (the default since 1.0) is a prefix with an `.index` and `.data-00000-of-0000N` shards; V1 is one file, or
shards named `PREFIX-00000-of-0000N`. Both indices are tables of tensorflow/core/lib/io/format.h.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from porter.base.errors import FileError, some

Version = Literal["tf-checkpoint-v1", "tf-checkpoint-v2"]
TABLE_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
"""The last eight bytes of a table."""

_SHARD = re.compile(r"(?P<prefix>.+)\.data-\d{5}-of-(?P<count>\d{5})")
_OLD_SHARD = re.compile(r"(?P<prefix>.+)-(?:\d{5}|\?{5})-of-(?P<count>\d{5})")
_LATEST_PATTERN = re.compile(r'^\s*model_checkpoint_path\s*:\s*"((?:[^"\\]|\\.)*)"', re.MULTILINE)
_STATE_FILE = "checkpoint"
_MOST_STATE_BYTES = 1 << 20
_MOST_SHARDS = 4096


@dataclass(frozen=True)
class CheckpointFiles:
    """One checkpoint.

    Attributes:
        prefix: TensorFlow's name for it; for V1 the file, or the pattern of its shards.
        files: all files that hold its tensors; for V2 the index first.
    """

    prefix: str
    format: Version
    files: tuple[Path, ...]


def table_version(head: bytes) -> Version:
    """Return the version of a table, by its first entry. The entry's key is empty in both.

    In V2 it is a BundleHeaderProto, whose first field is a number, the shards (tensor_bundle.proto); in V1
    SavedTensorSlices, whose first field is a message (saved_tensor_slice.proto).
    """
    entry = re.match(rb"\x00\x00[\x80-\xff]*[\x00-\x7f](.)", head, re.DOTALL)
    return "tf-checkpoint-v2" if entry and entry[1] == b"\x08" else "tf-checkpoint-v1"


def is_checkpoint_folder(folder: Path) -> bool:
    """Return whether a folder holds a checkpoint, a `checkpoint` state file or an `.index`, and is no
    SavedModel's.
    """
    if any(folder.glob("saved_model.pb*")):
        return False
    return _is_state(folder / _STATE_FILE) or any(_is_table(path) for path in folder.glob("*.index"))


def _is_state(file: Path) -> bool:
    """Return whether a file is TensorFlow's state file, which is text. Orbax has one of the same name, which
    begins with a map of MessagePack. Return False where there is no file.
    """
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        # Maps of MessagePack begin at this byte; no ASCII text does.
        return stream.read(1) < b"\x80"


def is_checkpoint_part(path: Path) -> bool:
    """Return whether a path that is not a table itself names a checkpoint: its prefix, a data shard of V2, or
    a V1 pattern.
    """
    if path.exists():
        return _SHARD.fullmatch(path.name) is not None
    return _with_suffix(path, ".index").is_file() or bool(_find_old_shards(path))


def find_checkpoint(path: Path) -> CheckpointFiles:
    """Find the checkpoint that `path` names: its prefix, its `.index`, a shard of it, or the folder of a
    `checkpoint` state file. Version 2 comes first where both are there.

    Raises:
        FileError: there is no such checkpoint, a shard is missing, or a folder has several and does not say
            which is meant.
    """
    # The prefix that a folder means may be the name of a folder in it too.
    return _find_by_part(_latest_checkpoint(path) if path.is_dir() else path)


def _find_by_part(path: Path) -> CheckpointFiles:
    """Find the checkpoint by its prefix, its `.index` or a shard. Raise FileError as `find_checkpoint`."""
    shard = _SHARD.fullmatch(path.name)
    if shard:
        path = path.with_name(shard["prefix"])
        if not _with_suffix(path, ".index").is_file():
            raise FileError(
                "this is a checkpoint's data without its index",
                where=path,
                next=f"put {path.name}.index beside it",
            )
    if path.suffix == ".index" and _is_table(path):
        path = path.with_name(path.name.removesuffix(".index"))
    index = _with_suffix(path, ".index")
    if index.is_file():
        if not _is_table(index):
            raise FileError(
                "the checkpoint's index is cut short or damaged",
                where=index,
                next="fetch or copy it again",
            )
        return CheckpointFiles(str(path), "tf-checkpoint-v2", (index, *_find_shards(path)))
    old = _find_old_shards(path)
    if old:
        return old
    if not path.is_file():
        raise FileError(
            "there is no such checkpoint", where=path, next="name its prefix, its .index or its folder"
        )
    return CheckpointFiles(str(path), "tf-checkpoint-v1", (path,))


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _is_table(path: Path) -> bool:
    """Return whether a file ends with the magic number of a table; False if it cannot be read."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - len(TABLE_MAGIC)))
            return stream.read() == TABLE_MAGIC
    except OSError:
        return False


def _find_shards(prefix: Path) -> tuple[Path, ...]:
    """Return the data files of V2. If a save with another number of shards left some files, the only complete
    set counts. Raise FileError if there is none, or several.
    """
    counts = {
        match["count"]
        for path in _siblings(prefix)
        if (match := _SHARD.fullmatch(path.name)) and match["prefix"] == prefix.name
    }
    missing: list[str] = []
    complete = []
    for count in sorted(counts):
        files = _shard_paths(prefix, ".data-", int(count))
        absent = [path.name for path in files if not path.is_file()]
        missing += absent
        if not absent:
            complete.append(files)
    if len(complete) == 1:
        return complete[0]
    if complete:
        raise FileError(
            "the data files of several saves are here",
            where=prefix,
            next="remove those of the older one",
        )
    expected = some(missing) or f"{prefix.name}.data-00000-of-00001"
    raise FileError(
        f"the checkpoint's data is missing: expected {expected}",
        where=prefix,
        next="put it beside the .index",
    )


def _find_old_shards(path: Path) -> CheckpointFiles | None:
    """Find V1 in shards by one of them, by the pattern in a state file, or by the prefix; return None where
    there is no such. Return None too where shards of several saves are there; raise FileError if one is
    missing.
    """
    shard = _OLD_SHARD.fullmatch(path.name)
    prefix = path.with_name(shard["prefix"]) if shard else path
    matches = [
        match
        for sibling in _siblings(prefix)
        if (match := _OLD_SHARD.fullmatch(sibling.name)) and match["prefix"] == prefix.name
    ]
    counts = {match["count"] for match in matches if shard is None or match["count"] == shard["count"]}
    if len(counts) != 1:
        return None
    count = counts.pop()
    files = _shard_paths(prefix, "-", int(count))
    absent = [file.name for file in files if not file.is_file()]
    if absent:
        raise FileError(
            f"the checkpoint's data is missing: expected {absent[0]}",
            where=prefix,
            next="put it beside the others",
        )
    return CheckpointFiles(f"{prefix}-?????-of-{count}", "tf-checkpoint-v1", files)


def _shard_paths(prefix: Path, before: str, count: int) -> tuple[Path, ...]:
    """Return the paths of so many shards: the prefix, `before`, and their numbers."""
    if not 0 < count <= _MOST_SHARDS:
        next = f"save it in at most {_MOST_SHARDS} data files"
        raise FileError(f"a checkpoint of {count} data files is not read", where=prefix, next=next)
    return tuple(_with_suffix(prefix, f"{before}{number:05}-of-{count:05}") for number in range(count))


def _siblings(path: Path) -> list[Path]:
    """Return all that is in the folder of a path, sorted; nothing where there is no folder."""
    return sorted(path.parent.iterdir()) if path.parent.is_dir() else []


def _latest_checkpoint(folder: Path) -> Path:
    """Return the path of the checkpoint that a folder's state file calls the latest, or of the folder's only
    one. Raise FileError where neither says which is meant, or the latest is not there.
    """
    state = folder / _STATE_FILE
    names_of_indices = (path.name.removesuffix(".index") for path in folder.glob("*.index"))
    checkpoints = sorted(name for name in names_of_indices if name)
    listed = some(checkpoints) or "none"
    if not state.is_file():
        if len(checkpoints) == 1:
            return folder / checkpoints[0]
        if not checkpoints:  # what TensorFlow writes to the prefix `FOLDER/`
            next = "write a name before its .index and .data-..., such as model.index"
            raise FileError("this folder holds a checkpoint without a name", where=folder, next=next)
        raise FileError(
            f"this folder holds several checkpoints: {listed}", where=folder, next="name one of them"
        )
    with state.open("rb") as stream:
        names = _LATEST_PATTERN.findall(stream.read(_MOST_STATE_BYTES).decode("utf-8", "replace"))
    if len(set(names)) != 1:
        raise FileError(
            f"the state file names {len(set(names))} latest checkpoints, the folder holds {listed}",
            where=state,
            next="name one of them",
        )
    # The path may be of the machine that trained, so only its last part counts.
    name = PurePosixPath(names[0]).name
    path = folder / name
    # Without a name the path is the folder itself, beside which its index may stand.
    if not (name and (_with_suffix(path, ".index").is_file() or path.is_file() or _find_old_shards(path))):
        raise FileError(
            f"the state file calls '{name}' the latest, which is not there; the folder holds {listed}",
            where=state,
            next="name one of them",
        )
    return path
