"""Reads weights that an index lists: `weight_map` has the file of each tensor
(huggingface_hub/serialization).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from porter.base.dtypes import Array
from porter.base.errors import FileError, some
from porter.filegraph.checkpoint import Checkpoint
from porter.files.regular_files import is_in_folder
from porter.formats import safetensors, torch
from porter.formats.damage import ERRORS_OF_JSON, refusing_damage
from porter.formats.format import look_at
from porter.formats.limits import MOST_NODES, read_bounded, read_json

_SHARDS = (*safetensors.FORMATS, *torch.FORMATS)
_PLAIN = re.compile(r"\w[\w.-]{0,254}", re.ASCII)
"""Names of files that lead to no other folder."""
_MOST_BYTES = 1 << 24
_MOST_SHARDS = 1024
_AGAIN = "fetch the folder again, whole"


def read_sharded(path: Path) -> Checkpoint:
    """Read the tensors of all shards, each of which holds those that the index says and no others.

    Raises:
        FileError: the index or a shard is damaged, or they contradict each other; or a shard is not in the
            index's folder.
    """
    names_by_shard = read_index(path)
    files = shards_beside(path, names_by_shard)
    tensors: dict[str, Array] = {}
    notes: dict[str, None] = {}
    kinds = set[tuple[str, str | None]]()
    for name, file in files.items():
        shard = _read(file)
        if repeated := sorted(tensors.keys() & shard.tensors.keys()):
            raise FileError(f"several of its shards hold {some(repeated)}", where=path, next=_AGAIN)
        if in_one_only := sorted(names_by_shard[name] ^ shard.tensors.keys()):
            message = (
                f"index and shard '{name}' do not hold the same tensors: only one of them has "
                f"{some(in_one_only)}"
            )
            raise FileError(message, where=path, next=_AGAIN)
        tensors |= shard.tensors
        notes |= dict.fromkeys(shard.notes)
        kinds.add((shard.format, shard.dialect))
    if len(kinds) != 1:
        raise FileError("its shards are of several formats", where=path, next=_AGAIN)
    format, dialect = kinds.pop()
    return Checkpoint(path, format, dialect, tensors, tuple(notes), files=(path, *files.values()))


def read_index(path: Path) -> dict[str, set[str]]:
    """Return the names of the tensors of each shard, whose name is of a file in the index's folder. Keras
    names groups of tensors, which may lie in several shards.

    Raises:
        FileError: it is damaged, lists more tensors or shards than any model's, or a file elsewhere.
    """
    names_by_shard: dict[str, set[str]] = {}
    with refusing_damage(path, _AGAIN, "this index is damaged", ERRORS_OF_JSON):
        for tensor, names in read_json(read_bounded(path, _MOST_BYTES))["weight_map"].items():
            for name in [names] if isinstance(names, str) else names:
                names_by_shard.setdefault(name, set()).add(tensor)
        outside = next((name for name in names_by_shard if not _PLAIN.fullmatch(name)), None)
        if outside is not None:
            raise ValueError(f"its shard '{outside:.80}' is not in its folder")
        count = sum(map(len, names_by_shard.values()))
        if not 0 < len(names_by_shard) <= _MOST_SHARDS or count > MOST_NODES:
            raise ValueError(f"it lists {count} tensors in {len(names_by_shard)} files")
    return names_by_shard


def shards_beside(path: Path, names: Iterable[str]) -> dict[str, Path]:
    """Return the files of an index's shards, by name.

    Raises:
        FileError: one is not beside it.
    """
    with refusing_damage(path, _AGAIN, "this index is damaged"):
        return {name: _shard_at(path.parent, name) for name in names}


def _shard_at(folder: Path, name: str) -> Path:
    """Return a file of the index's folder. It may be a link into the folder, or into the blobs of Hugging
    Face's cache.

    Args:
        folder: of the index.

    Raises:
        ValueError: it is elsewhere, or not there.
    """
    file = folder / name
    if not file.is_file():
        raise ValueError(f"its shard '{name:.80}' is not beside it")
    if not is_in_folder(folder, name):
        raise ValueError(f"its shard '{name:.80}' is a link to another folder")
    return file


def _read(file: Path) -> Checkpoint:
    """Return the checkpoint of one shard. Raise FileError for a format that is neither safetensors nor
    PyTorch's.
    """
    content = look_at(file)
    format = next((known for known in _SHARDS if known.matches(content)), None)
    if format is None or format.read is None:
        raise FileError("this shard holds neither safetensors nor PyTorch's tensors", where=file, next=_AGAIN)
    return format.read(file)
