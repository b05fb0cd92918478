"""Recognises a file by its content, because suffixes lie; also formats that porter does not read, for the message."""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

from porter.errors import FileError
from porter.files.zips import DAMAGED
from porter.formats.tf_checkpoint.files import (
    TABLE_MAGIC,
    find_checkpoint,
    is_checkpoint_folder,
    is_checkpoint_part,
    table_version,
)

READABLE = (
    "keras-h5",
    "keras-weights-h5",
    "keras",
    "tf-checkpoint-v1",
    "tf-checkpoint-v2",
    "frozen-graph",
    "saved-model",
    "npz",
    "torch",
    "torch-legacy",
    "safetensors",
)
"""The formats that porter reads."""

UNREADABLE = {
    "torchscript": ("a TorchScript archive", "save torch.jit.load(FILE).state_dict() as a .pth"),
    "torch-export": ("a torch.export archive", "save torch.export.load(FILE).state_dict as a .pth"),
    "torch-tar": ("a PyTorch file from before 0.2", "load and save its state_dict in a later PyTorch"),
    "pickle": ("a Python pickle, which could run any code", "save model.state_dict() with torch.save, or a .safetensors"),
    "tf-data": ("a TensorFlow checkpoint's data without its index", "put the .index beside it"),
    "meta-graph": ("a TensorFlow .meta file, a graph without its weights", "name the checkpoint beside it"),
    "graph-text": ("a TensorFlow graph as text (.pbtxt)", "save it in binary, as .pb"),
    "saved-model-text": ("a SavedModel as text (.pbtxt)", "save it in binary, as saved_model.pb"),
    "onnx": ("an ONNX model", "porter does not read ONNX yet"),
    "caffemodel": ("a Caffe model", "porter does not read Caffe models yet"),
    "mxnet-params": ("an MXNet parameter file", "porter does not read MXNet parameters yet"),
    "hdf5": ("an HDF5 file that Keras did not write", "expected layer_names, model_weights or layers in it"),
    "npy": ("a numpy array", None),
    "wheel": ("a Python package", None),
    "zip": ("a zip archive", "unpack it, and name the weights file in it"),
    "zip-cut": ("a zip archive (.keras and .pth are zip archives) that is cut short", "fetch or copy it again"),
    "tar": ("a tar archive", "unpack it, and name the weights file in it"),
    "compressed": ("a compressed file", "unpack it, and name the weights file in it"),
    "image": ("an image", None),
    "git-lfs": ("a git-lfs pointer, not the file itself", "run git lfs pull"),
    "html": ("a web page, perhaps the error of a download", "fetch it again"),
    "text": ("a text file", None),
    "empty": ("an empty file", "fetch or copy it again"),
    "folder": ("a folder", "name the weights file in it"),
    "unknown": ("a file of a format that porter does not know", None),
}
"""The other formats that `sniff` recognises: what the file is, and what to do about it, if anything."""

_HEAD = 4096
_TORCH_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""torch.serialization.MAGIC_NUMBER, pickled: the first thing in a stream of torch < 1.6."""
_MOST_HEADER = 100_000_000
"""Safetensors' own limit on its header."""

_MAGICS = (
    (_TORCH_LEGACY, "torch-legacy"),
    (b"\x93NUMPY", "npy"),
    (struct.pack("<QQ", 0x112, 0), "mxnet-params"),
    (b"\xff\xd8\xff", "image"),
    (b"\x89PNG", "image"),
    (b"GIF8", "image"),
    (b"\x1f\x8b", "compressed"),
    (b"BZh", "compressed"),
    (b"\xfd7zXZ", "compressed"),
    (b"7z\xbc\xaf", "compressed"),
    (b"\x28\xb5\x2f\xfd", "compressed"),
    (b"version https://git-lfs", "git-lfs"),
)


def sniff(path: Path) -> str:
    """The name of a file's format: one of READABLE, or a key of UNREADABLE.

    The `.index` identifies a TensorFlow checkpoint's prefix, which is no file, and a shard of its data. The SavedModel or the
    checkpoint in a folder identifies the folder.

    Raises:
        FileError: there is no such file, it cannot be opened, or a checkpoint is incomplete.
    """
    if path.is_dir():
        return _folder(path)
    if is_checkpoint_part(path):
        return find_checkpoint(path).format
    if not path.exists():
        raise FileError("there is no such file", where=str(path), next="check the path")
    if not path.is_file():
        raise FileError("expected a file, found a device, a pipe or a socket", where=str(path))
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
            size = stream.seek(0, 2)
            stream.seek(max(0, size - 8))
            tail = stream.read(8)
    except OSError as error:
        raise FileError(f"the file cannot be read: {error.strerror}", where=str(path)) from None
    return _format(path, head, tail)


def _folder(path: Path) -> str:
    if (path / "saved_model.pb").is_file():
        return "saved-model"
    if (path / "saved_model.pbtxt").is_file():
        return "saved-model-text"
    return find_checkpoint(path).format if is_checkpoint_folder(path) else "folder"


def _format(path: Path, head: bytes, tail: bytes) -> str:
    if not head:
        return "empty"
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return _hdf5(path)
    if head.startswith(b"PK\x03\x04"):
        return _zip(path)
    for magic, name in _MAGICS:
        if head.startswith(magic):
            return name
    if head[257:262] == b"ustar":
        # torch 0.1 wrote four members: sys_info, pickle, tensors, storages (its torch/serialization.py).
        return "torch-tar" if head.startswith(b"sys_info\0") else "tar"
    if _is_safetensors(head):
        return "safetensors"
    if tail == TABLE_MAGIC:
        return table_version(head)
    if re.match(rb"\x80[\x02-\x05][\x8a\x95c}\](X]", head):
        return "pickle"
    return _protobuf(head) or _text(head) or "unknown"


def _hdf5(path: Path) -> str:
    from porter.formats.keras.hdf5 import hdf5_format, open_hdf5

    with open_hdf5(path) as file:
        return hdf5_format(file)


def _zip(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
    except DAMAGED:
        return "zip-cut"
    if "model.weights.h5" in names or {"config.json", "metadata.json"} <= names:
        return "keras"
    # torch puts everything in one folder, named after the file.
    inner = {name.split("/", 1)[1] for name in names if "/" in name}
    if "data.pkl" in inner:
        return "torchscript" if "constants.pkl" in inner else "torch"
    if "archive_format" in inner or "models/model.json" in inner:
        return "torch-export"
    if any(name.endswith(".dist-info/WHEEL") for name in names):
        return "wheel"
    return "npz" if names and all(name.endswith(".npy") for name in names) else "zip"


def _is_safetensors(head: bytes) -> bool:
    """Eight bytes of the header's length, then a JSON object. The reader checks the length."""
    return len(head) > 8 and head[8:9] == b"{" and 2 <= struct.unpack("<Q", head[:8])[0] <= _MOST_HEADER


def _text(head: bytes) -> str | None:
    try:
        # The last character may be cut in two.
        text = head.decode("utf-8") if len(head) < _HEAD else head[:-4].decode("utf-8", "ignore")
    except UnicodeDecodeError:
        return None
    if any(ord(character) < 32 and character not in "\t\n\r\f" for character in text):
        return None
    if re.match(r"\s*<(!doctype html|html)", text, re.IGNORECASE):
        return "html"
    if re.match(r"(\s*#[^\n]*\n)*\s*(node|versions|library)\s*:?\s*\{", text):
        return "graph-text"
    return "saved-model-text" if re.match(r"\s*saved_model_schema_version\s*:", text) else "text"


def _protobuf(head: bytes) -> str | None:
    """Protobuf has no magic: the first two fields and their types tell the messages apart.

    A SavedModel begins with schema version 1, then meta graphs; a MetaGraphDef with its information, whose first field is the
    ops, then the graph; an ONNX model with an IR version of 3 or more, then producer or graph; a GraphDef with a NodeDef of name
    and op; a NetParameter with a name, then old layers (field 2), inputs (3) or layers (100).
    """
    fields = list(_fields(head, 2))
    if not fields:
        return None
    number, value = fields[0]
    following = fields[1][0] if len(fields) > 1 else None
    if number == 1 and isinstance(value, int):
        if value == 1 and following == 2:
            return "saved-model"
        return "onnx" if 3 <= value <= 64 and following in (2, 3, 4, 5, 7, 8) else None
    if number == 1 and isinstance(value, bytes):
        node = list(_fields(value, 2))
        if node and node[0][0] == 2 and following in (2, None):
            return "meta-graph"
        if [field for field, _ in node] == [1, 2] and all(isinstance(part, bytes) and part.isascii() for _, part in node):
            return "frozen-graph"
        return "caffemodel" if value.isascii() and following in (2, 3, 100) else None
    return "caffemodel" if number == 100 and isinstance(value, bytes) and value[:1] == b"\n" else None


def _fields(data: bytes, count: int) -> Iterator[tuple[int, int | bytes]]:
    """The first fields of a protobuf message, as (number, value); a value longer than `data` is cut."""
    offset = 0
    for _ in range(count):
        key, offset = _varint(data, offset)
        if key >> 3 == 0 or key & 7 not in (0, 2) or offset >= len(data):
            return
        value, offset = _varint(data, offset)
        if key & 7 == 0:
            yield key >> 3, value
        else:
            yield key >> 3, data[offset : offset + value]
            offset += value


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """A varint and the offset after it; 0 if the data ends inside it."""
    value = 0
    for place, byte in enumerate(data[offset : offset + 10]):
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value, offset + place + 1
    return 0, len(data)
