"""Recognises a file by its content, because suffixes lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from porter.base.errors import FileError
from porter.base.plugins import Plugin, plugin_of, plugins
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
"""Every format that porter itself tells apart, by its name."""


def known_format(name: str) -> Format | None:
    """Return the format of this name, porter's own or a plug-in's; None if there is none."""
    plugin = None if name in FORMATS else plugin_of("formats", name)
    return FORMATS.get(name) if plugin is None else added_format(plugin)


@cache
def added_format(plugin: Plugin) -> Format:
    """Return the format that a plug-in adds. An error that its code raises names the plug-in.

    Raises:
        PluginError: it adds something else.
    """
    added = plugin.load()
    if not isinstance(added, Format):
        raise plugin.error(f"expected a porter.formats.format.Format, got {type(added).__name__}")
    if added.name != plugin.name:
        raise plugin.error(f"expected a format called '{plugin.name}', got '{added.name}'")
    read = None if added.read is None else plugin.guarded(added.read)
    return replace(added, matches=plugin.guarded(added.matches), read=read)


def _every_format() -> Iterator[Format]:
    """Yield the formats in the order in which a file is held to them. Plug-ins come behind what porter reads
    itself, so that none changes how porter reads a file, and are imported for other files only.
    """
    yield from unreadable.SHARDS
    yield from READABLE
    yield from map(added_format, plugins("formats"))
    yield from unreadable.FORMATS


def is_there(path: Path) -> bool:
    """Return whether a path names a file, a folder, or a checkpoint by its prefix.

    Raises:
        FileError: the checkpoint is incomplete.
    """
    return path.exists() or any(format.matches(Content(path)) for format in READABLE)


def recognise(path: Path) -> Format:
    """Return the format of a file. A SavedModel or a checkpoint may also be named by its folder, and a
    checkpoint by its prefix.

    Raises:
        FileError: there is no such file, it cannot be opened, or a checkpoint is incomplete.
    """
    content = look_at(path)
    recognised = next((format for format in _every_format() if format.matches(content)), None)
    if recognised is None and path.exists():
        raise FileError("expected a file, found a device, a pipe or a socket", where=path)
    if recognised is None:
        raise FileError("there is no such file", where=path, next="check the path")
    return recognised
