"""PyTorch's .pth and .pt: a state_dict, by itself or in a training checkpoint. torch is not needed."""

from __future__ import annotations

import io
import mmap
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from porter.base.dtypes import NamedArrays
from porter.base.errors import FileError
from porter.filegraph.checkpoint import Checkpoint
from porter.files.zips import ZipMembers, open_zip
from porter.formats.pickled import unpickle
from porter.formats.torch import ARCH, LIBRARY, MAGIC
from porter.formats.torch.objects import (
    SAVE,
    Storage,
    TorchTensor,
    storage_in_archive,
    storage_in_stream,
    torch_vocabulary,
)
from porter.formats.torch.storage_values import ByteRange, Content, StorageValues
from porter.formats.torch.wrapping import TIMM_AVERAGES, unwrap

_PROTOCOL = 1001
_PICKLE = "data.pkl"
_LOCAL_HEADER = 30
_LENGTHS_IN_HEADER = slice(26, 30)
"""Bytes of a zip's header before a member, and where in it the lengths of its name and of its extra field
are.
"""


def read_archive(path: Path) -> Checkpoint:
    """Read a state_dict in the archive that torch ≥ 1.6 writes. It is mapped, not copied: the arrays are
    pages of the file.

    Raises:
        FileError: the file is damaged, a whole module or a pickle of other things than tensors, or a tensor
            is not a plain array.
    """
    with path.open("rb") as file:
        return _make_checkpoint(path, *_read_archive(path, _map_file(file.fileno())))


def read_stream(path: Path) -> Checkpoint:
    """Read a state_dict in the older stream, which torch wrote before 1.6; the arrays are pages of the file,
    but tensors that begin at odd bytes are copied.
    """
    with path.open("rb") as file:
        return _make_checkpoint(path, *_read_stream(path, _map_file(file.fileno())))


def read_mapping(path: Path, data: bytes) -> NamedArrays:
    """Return the tensors, by name, of an archive in memory that holds a mapping of names to tensors and
    nothing else, such as a part of a .pt2.

    Args:
        path: for messages.
        data: the archive's bytes.

    Raises:
        FileError: it holds something else.
    """
    mapping, values = _read_archive(path, data)
    if not isinstance(mapping, Mapping) or not all(
        isinstance(name, str) and _is_tensor(value) for name, value in mapping.items()
    ):
        raise FileError("expected a mapping of names to tensors", where=path, next=SAVE)
    return {name: values.array(name, tensor) for name, tensor in mapping.items()}


def _map_file(descriptor: int) -> mmap.mmap:
    """Return the pages of a file. Whoever writes to the arrays gets copies of their pages."""
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)


def _make_checkpoint(path: Path, saved: object, values: StorageValues) -> Checkpoint:
    """Return the checkpoint of an unpickled object: the tensors of the state_dict in it, and what it states
    of its architecture and its library.
    """
    state = unwrap(saved, _is_tensor, path)
    tensors = {name: values.array(name, tensor) for name, tensor in state.tensors.items()}
    facts = saved if isinstance(saved, Mapping) else {}
    stated = {ARCH: facts[ARCH]} if isinstance(facts.get(ARCH), str) else {}
    if TIMM_AVERAGES in facts:
        stated[LIBRARY] = "timm"
    return Checkpoint(path, "torch", "torch", tensors, state.notes, stated=stated)


def _is_tensor(value: object) -> bool:
    return isinstance(value, TorchTensor)


def _read_archive(path: Path, content: Content) -> tuple[object, StorageValues]:
    """Return the object that an archive holds, and the values of its tensors. Raise FileError if the archive
    is cut short, compressed, or has not exactly one pickle.
    """
    stream = io.BytesIO(content) if isinstance(content, bytes) else None
    with open_zip(path, "PyTorch archive", stream) as archive:
        members = ZipMembers(archive, path, len(content))
        # Of an archive that is cut short, Python's reader takes one that is inside it for the whole.
        if min((member.header_offset for member in members.by_name.values()), default=0) != 0:
            raise members.damaged("this PyTorch archive is cut short or damaged")
        folders = [
            name.removesuffix(_PICKLE)
            for name in members.by_name
            if name.count("/") == 1 and name.endswith(f"/{_PICKLE}")
        ]
        if len(folders) != 1:
            raise FileError(
                f"this archive has {len(folders)} '{_PICKLE}', expected one", where=path, next=SAVE
            )
        folder = folders[0]
        # Mapping needs uncompressed records; torch never compresses them.
        packed = [
            name for name, member in members.by_name.items() if member.compress_type != zipfile.ZIP_STORED
        ]
        if packed:
            message = f"'{packed[0]}' in this archive is compressed, which torch never writes"
            raise FileError(message, where=path, next=SAVE)
        order = members.read(f"{folder}byteorder") if f"{folder}byteorder" in members.by_name else b"little"
        pickled = members.read(folder + _PICKLE)
    if order not in (b"little", b"big"):
        raise members.damaged("the order of its bytes is neither 'little' nor 'big'")
    saved, _ = unpickle(pickled, torch_vocabulary(storage_in_archive), str(path))

    def range_of(storage: Storage) -> ByteRange | None:
        """Return where the bytes of a storage are, after its member's local header in the archive; None if
        there is no such member.
        """
        member = members.by_name.get(f"{folder}data/{storage.key}")
        if member is None:
            return None
        header = content[member.header_offset : member.header_offset + _LOCAL_HEADER]
        # These lengths are of the member's name and of an extra field, which its content stands behind.
        lengths = header[_LENGTHS_IN_HEADER]
        name_length = int.from_bytes(lengths[:2], "little")
        extra_length = int.from_bytes(lengths[2:], "little")
        start = member.header_offset + _LOCAL_HEADER + name_length + extra_length
        return ByteRange(start, member.file_size)

    return saved, StorageValues(path, content, range_of, order.decode())


def _read_stream(path: Path, content: Content) -> tuple[object, StorageValues]:
    """Return the object that a stream holds, and the values of its tensors. The stream has a magic number, a
    version, the machine's types, the object, and the names of its storages, which follow.
    """
    roots: dict[str, Storage] = {}

    def stored(identity: Any) -> Storage:
        """Return the storage of an id, and keep the first one of each key: it is whole, and later ones may be
        parts of it.
        """
        storage = storage_in_stream(identity)
        roots.setdefault(storage.key, storage)
        return storage

    vocabulary = torch_vocabulary(stored)
    position, pickles = 0, []
    # The five pickles, one after the other; then the storages.
    for _ in range(5):
        pickled, position = unpickle(content, vocabulary, str(path), position)
        pickles.append(pickled)
    magic, version, _, saved, keys = pickles
    damaged = FileError("this PyTorch file is cut short or damaged", where=path, next="fetch it again")
    if magic != MAGIC or version != _PROTOCOL or not isinstance(keys, list):
        raise damaged
    ranges: dict[str, ByteRange] = {}
    for key in keys:
        root = roots.get(str(key)) if isinstance(key, str | int) else None
        # Each storage begins with the count of its numbers, in 8 bytes.
        if root is None or int.from_bytes(content[position : position + 8], "little") != root.total:
            raise damaged
        ranges[root.key] = ByteRange(position + 8, root.total * root.item_bytes)
        position += 8 + root.total * root.item_bytes
    return saved, StorageValues(path, content, lambda storage: ranges.get(storage.key), "little")
