"""TensorFlow's checkpoints, of both versions. The `.index` stands for a prefix, which is not a file, and for
a data shard.
"""

from __future__ import annotations

from functools import partial

from porter.formats.format import Content, Format, reader
from porter.formats.tf_checkpoint.files import (
    TABLE_MAGIC,
    find_checkpoint,
    is_checkpoint_folder,
    is_checkpoint_part,
    table_version,
)


def _format_of(content: Content) -> str | None:
    """Return the format of the checkpoint that a path names; None if it names none.

    Raises:
        FileError: the checkpoint is incomplete, or a folder has several.
    """
    path = content.path
    is_checkpoint = is_checkpoint_folder(path) if path.is_dir() else is_checkpoint_part(path)
    if is_checkpoint:
        return find_checkpoint(path).format
    # A file by itself, whose end says whether it is a table.
    if content.tail != TABLE_MAGIC:
        return None
    # The first entry of an index may be compressed.
    return "tf-checkpoint-v2" if path.suffix == ".index" else table_version(content.head)


_format = partial(
    Format,
    read=reader("porter.formats.tf_checkpoint.read", "read_tf_checkpoint"),
    framework="tf",
    whole="a frozen graph (.pb)",
)
FORMATS = (
    _format(
        "tf-checkpoint-v1",
        "a TensorFlow checkpoint of version 1",
        lambda content: _format_of(content) == "tf-checkpoint-v1",
    ),
    _format(
        "tf-checkpoint-v2",
        "a TensorFlow checkpoint",
        lambda content: _format_of(content) == "tf-checkpoint-v2",
    ),
)
