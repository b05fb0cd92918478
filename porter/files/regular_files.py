"""Plain files: no links, pipes or devices, which a folder from a stranger may have under a file's name; and
the links of the Hub's cache, which are followed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from porter.base.errors import FileError


def is_plain(path: Path) -> bool:
    """Return whether a file stands at `path` itself, and no link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def expect_plain(path: Path) -> None:
    """Raise for what is not a plain file, before it is read.

    Raises:
        FileError: nothing, a link, a pipe, a device or a folder stands there.
    """
    if not os.path.lexists(path):
        raise FileError("there is no such file", where=path, next="check the path")
    if not is_plain(path):
        raise FileError(
            "this is not a plain file", where=path, next="put the file itself there, not a link to it"
        )


def is_hub_blob(file: Path, folder: Path) -> bool:
    """Return whether a file, whose links are resolved, is one to which a folder of the Hub's cache has links:
    `snapshots` has links to the files in `blobs` of the same repository
    (huggingface_hub/file_download.py, `_create_symlink`).

    Args:
        folder: a snapshot or a folder in one, whose links are resolved.
    """
    snapshots = next((parent for parent in folder.parents if parent.name == "snapshots"), None)
    return snapshots is not None and file.parent == snapshots.parent / "blobs"
