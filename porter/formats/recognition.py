"""Recognises a file by its content, because suffixes lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from porter.base.errors import FileError
from porter.formats import (
    caffe,
    keras,
    msgpack,
    mxnet,
    npz,
    onnx,
    orbax,
    safetensors,
    sharded,
    tf_checkpoint,
    tf_graph,
    tfjs,
    tflite,
    torch,
    torch7,
    torch_export,
    unreadable,
)
from porter.formats.format import Content, Format, look_at

# A checkpoint's shards may begin with any bytes, so its formats, which know them by name, come first.
READABLE: tuple[Format, ...] = (
    *tf_checkpoint.FORMATS,
    *tf_graph.FORMATS,
    *keras.FORMATS,
    *torch.FORMATS,
    *torch_export.FORMATS,
    *onnx.FORMATS,
    *safetensors.FORMATS,
    *sharded.FORMATS,
    *npz.FORMATS,
    *msgpack.FORMATS,
    *orbax.FORMATS,
    *caffe.FORMATS,
    *mxnet.FORMATS,
    *tfjs.FORMATS,
    *tflite.FORMATS,
    *torch7.FORMATS,
)
FORMATS: Mapping[str, Format] = {
    format.name: format for format in (*unreadable.SHARDS, *READABLE, *unreadable.FORMATS)
}
"""Every format that porter tells apart, by its name; a file is of the first one that matches."""


def is_there(path: Path) -> bool:
    """Whether a path names a file, a folder, or a checkpoint by its prefix.

    Raises:
        FileError: the checkpoint is incomplete.
    """
    return path.exists() or any(format.matches(Content(path)) for format in READABLE)


def recognise(path: Path) -> Format:
    """The format of a file. A SavedModel or a checkpoint may also be named by its folder, and a checkpoint by
    its prefix.

    Raises:
        FileError: there is no such file, it cannot be opened, or a checkpoint is incomplete.
    """
    content = look_at(path)
    recognised = next((format for format in FORMATS.values() if format.matches(content)), None)
    if recognised is None and path.exists():
        raise FileError("expected a file, found a device, a pipe or a socket", where=path)
    if recognised is None:
        raise FileError("there is no such file", where=path, next="check the path")
    return recognised
