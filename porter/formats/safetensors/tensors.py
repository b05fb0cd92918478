"""Reads and writes safetensors."""

from __future__ import annotations

import hashlib
import json
import mmap
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from porter.base.dtypes import Array, NamedArrays, storage_type
from porter.base.errors import FileError
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.damage import refusing_damage
from porter.formats.limits import read_json

_DTYPES = {
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "float32": "F32",
    "uint32": "U32",
    "int32": "I32",
    "bfloat16": "BF16",
    "float16": "F16",
    "uint16": "U16",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
"""The format's names of numpy's types, in the order in which the package writes them: wide ones first, so
that all are aligned.
"""

_LENGTH_BYTES = 8
_PIECE_BYTES = 1 << 20
_PIECES_AHEAD = 4


def read_safetensors(path: Path) -> Checkpoint:
    """Read every tensor, in the header's dtypes: pages of the file, which are copied when they are written
    to.

    Raises:
        FileError: the file is cut short or damaged, or has a dtype of less than a byte or one that numpy
            lacks.
    """
    message = "this safetensors file is cut short or damaged"
    with refusing_damage(path, "fetch or copy it again", message, (SafetensorError,)):
        # The package checks that the tensors have the bytes of their shapes, cover the file and do not
        # overlap.
        with safe_open(path, framework="numpy") as package:
            names = list(package.keys())
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            header = read_json(file.read(length))
            content = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
        data = content[_LENGTH_BYTES + length :]
        return Checkpoint(
            path, "safetensors", None, {name: _tensor(path, name, header[name], data) for name in names}
        )


def _tensor(path: Path, name: str, entry: Mapping[str, Any], data: Array) -> Array:
    """Return a tensor as the header states it, of the bytes after the header. Raise FileError for a dtype
    that numpy lacks.
    """
    dtype = next((dtype for dtype, spelling in _DTYPES.items() if spelling == entry["dtype"]), None)
    if dtype is None:
        message = f"tensor '{name}' is {entry['dtype']}, expected one of {', '.join(_DTYPES.values())}"
        raise FileError(message, where=path, next="save it as one of these")
    kind = storage_type(dtype)  # type: ignore[arg-type]
    start, end = entry["data_offsets"]
    values = data[start:end]
    # Writers other than the package may begin a tensor at any byte.
    is_aligned = (data.ctypes.data + start) % kind.itemsize == 0
    if not is_aligned:
        values = values.copy()
    return values.view(kind).reshape(entry["shape"])


def write_safetensors(path: Path, tensors: NamedArrays) -> str:
    """Write the bytes that the package's `save_file` writes, and return their sha256 in hex.

    The package takes only dense arrays, all at once, and its file would have to be read again for the digest.
    Here one piece is made dense while those before it, which the processor's cache still holds, are hashed
    and written.

    Raises:
        OSError: the disk is full, or another error of the disk.
    """
    order = list(_DTYPES)
    names = sorted(tensors, key=lambda name: (order.index(tensors[name].dtype.name), name))
    header: dict[str, object] = {}
    end = 0
    for name in names:
        start = end
        end = end + tensors[name].nbytes
        kind = _DTYPES[tensors[name].dtype.name]
        header[name] = {"dtype": kind, "shape": tensors[name].shape, "data_offsets": (start, end)}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    # The header ends at a multiple of 8 bytes.
    text += b" " * (-len(text) % 8)
    hashed = hashlib.sha256()
    # The tensors may be maps of the file that is replaced, and a map whose file is cut short ends the
    # process.
    path.unlink(missing_ok=True)
    with path.open("wb") as file, ThreadPoolExecutor(1) as beside:

        def put(piece: bytes | memoryview) -> None:
            """Hash and write a piece, in a thread beside the one that makes the next."""
            hashed.update(piece)
            file.write(piece)

        waiting: deque[Future[None]] = deque()
        dense = (_dense_bytes(piece) for name in names for piece in _pieces(tensors[name]))
        for piece in chain[bytes | memoryview]((len(text).to_bytes(8, "little"), text), dense):
            waiting.append(beside.submit(put, piece))
            if len(waiting) > _PIECES_AHEAD:
                waiting.popleft().result()
        for put_later in waiting:
            put_later.result()
    return hashed.hexdigest()


def _pieces(array: Array) -> Iterator[Array]:
    """Yield the array in parts along its first axis, of about `_PIECE_BYTES` each."""
    if array.nbytes <= _PIECE_BYTES:
        yield array
        return
    rows = max(1, _PIECE_BYTES * len(array) // array.nbytes)
    for start in range(0, len(array), rows):
        yield array[start : start + rows]


def _dense_bytes(array: Array) -> memoryview:
    """The values in the order of the axes, as bytes, because files and hashes do not take bfloat16."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
