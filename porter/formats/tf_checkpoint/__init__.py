"""TensorFlow's checkpoints, of both versions. The `.index` stands for a prefix, which is no file, and for a shard of the data."""

from __future__ import annotations

from porter.formats.format import Content, Format, reader
from porter.formats.tf_checkpoint.files import TABLE_MAGIC, find_checkpoint, is_checkpoint_folder, is_checkpoint_part, table_version

_READ = reader("porter.formats.tf_checkpoint.read", "read_tf_checkpoint")
_WHOLE = "a frozen graph (.pb)"


def _version(content: Content) -> str | None:
    """The format of the checkpoint that a path names; None if it names none.

    Raises:
        FileError: the checkpoint is incomplete, or a folder has several.
    """
    path = content.path
    if is_checkpoint_folder(path) if path.is_dir() else is_checkpoint_part(path):
        return find_checkpoint(path).format
    return table_version(content.head) if content.tail == TABLE_MAGIC else None


FORMATS = (
    Format(
        "tf-checkpoint-v1",
        "a TensorFlow checkpoint of version 1",
        lambda content: _version(content) == "tf-checkpoint-v1",
        _READ,
        framework="tf",
        whole=_WHOLE,
    ),
    Format(
        "tf-checkpoint-v2",
        "a TensorFlow checkpoint",
        lambda content: _version(content) == "tf-checkpoint-v2",
        _READ,
        framework="tf",
        whole=_WHOLE,
    ),
)
