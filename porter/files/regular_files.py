"""Plain files: no links, pipes or devices, which a folder from a stranger may have under a file's name."""

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
