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


def is_in_folder(folder: Path, name: str) -> bool:
    """Return whether a file that a model names is in the model's folder, wherever links lead: within it, or
    among the blobs to which the Hub's cache has links in it.

    Args:
        folder: of the model.
        name: of a file, from the folder on.
    """
    real_folder = folder.resolve()
    file = (folder / name).resolve()
    is_named_within = not Path(name).is_absolute() and ".." not in Path(name).parts
    return file.is_relative_to(real_folder) or (is_named_within and _is_hub_blob(file, real_folder))


def _is_hub_blob(file: Path, folder: Path) -> bool:
    """Return whether a file, whose links are resolved, is one to which a folder of the Hub's cache has links:
    `snapshots` has links to the files in `blobs` of the same repository
    (huggingface_hub/file_download.py, `_create_symlink`).

    Args:
        folder: a snapshot or a folder in one, whose links are resolved.
    """
    snapshots = next((parent for parent in folder.parents if parent.name == "snapshots"), None)
    return snapshots is not None and file.parent == snapshots.parent / "blobs"
