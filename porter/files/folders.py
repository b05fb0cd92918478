"""Folders that appear complete or not at all."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from porter.base.errors import FileError, UsageError
from porter.base.options import OUT, OVERWRITE
from porter.files.locks import locked

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
"""What fails where a file is written that is open already: the error names no file then."""
_NUMPYS_WRITE_ERROR = re.compile(r"\d+ requested and \d+ written")
"""What ndarray.tofile says of a full disk, without a number of the error."""


@dataclass(frozen=True)
class Replaceable:
    """The folders that a new one may replace.

    Attributes:
        records: they have one of these files, or are empty.
        files: the names of all that they may hold.
    """

    records: tuple[str, ...]
    files: re.Pattern[str]


@contextmanager
def new_folder(target: Path, replaceable: Replaceable | None = None) -> Iterator[Path]:
    """Yield an empty folder to fill, which takes the place of `target` when the block ends without an
    exception. Without `replaceable`, nothing may stand there.

    It is filled beside its place and exchanged into it, so after a failure or a kill either the old port or
    the new one is there, complete. The next run removes what a killed one left. Nothing is synced to the
    disk, so a power cut can still lose a port.

    Raises:
        UsageError: before any work: `target` exists, and is none that may be replaced.
        FileError: nothing can be written there, the disk is full, or another process is writing to the same
            target.
    """
    target = _resolve(target)  # through a link: the folder is exchanged, the link stays
    _expect_replaceable(target, replaceable)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable_error(target, error) from None
    fresh = _beside(target, "new")
    with locked(_beside(target, "lock"), wait=False):
        try:
            _recover(target)
            _expect_replaceable(target, replaceable)
            _remove(fresh)
            fresh.mkdir()
        except OSError as error:
            raise _unwritable_error(target, error) from None
        try:
            yield fresh
            _expect_replaceable(target, replaceable)  # another program may have made a folder there meanwhile
            _put_in_place(fresh, target)
        except OSError as error:  # the block's too: the disk is full
            is_of_writing = error.errno in _WRITE_ERRORS or _NUMPYS_WRITE_ERROR.match(str(error))
            if error.filename is None and not is_of_writing:
                raise
            raise _error_in_target(target, fresh, error) from None
        finally:
            shutil.rmtree(fresh, ignore_errors=True)  # after an exchange this is the old folder


def recover_folder(target: Path) -> None:
    """Put back the folder that a killed `new_folder` had moved aside, where folders cannot be exchanged in
    one step.

    Readers call it when `target` is missing; it does nothing where there is nothing to put back.

    Raises:
        FileError: another process is writing to the same target.
    """
    target = _resolve(target)
    if not target.exists() and _beside(target, "old").exists():
        with locked(_beside(target, "lock"), wait=False):
            _recover(target)


def _resolve(target: Path) -> Path:
    """Return the path without links."""
    try:
        resolved = target.resolve()
    except RuntimeError:  # before Python 3.13, which gives such a link itself
        resolved = target
    if resolved.is_symlink():
        raise FileError("links point to each other here", where=target, next="give a folder")
    return resolved


def _beside(target: Path, role: str) -> Path:
    return target.with_name(f".{target.name}.porter-{role}")


def _expect_replaceable(target: Path, replaceable: Replaceable | None) -> None:
    """Expect a target that may be replaced: no folder, or one that is replaceable."""
    if not target.exists():
        return
    if not target.is_dir():
        raise UsageError(
            "a file stands where the folder should go", where=target, next=f"choose another {OUT}"
        )
    if replaceable is None:
        raise UsageError("the folder exists", where=target, next=f"give {OVERWRITE()}, or another {OUT}")
    try:
        is_free = any((target / name).is_file() for name in replaceable.records) or not any(target.iterdir())
    except OSError as error:
        raise _unwritable_error(target, error) from None
    if not is_free:
        raise UsageError(
            f"the folder is not a port (it has neither {' nor '.join(replaceable.records)}) and is never "
            "replaced",
            where=target,
            next=f"choose another {OUT}, or move it away",
        )
    foreign = sorted(entry.name for entry in target.iterdir() if not replaceable.files.fullmatch(entry.name))
    if foreign:
        raise UsageError(
            f"the folder holds files that porter did not write: {', '.join(foreign[:3])}",
            where=target,
            next=f"choose another {OUT}, or move them away",
        )


def _put_in_place(fresh: Path, target: Path) -> None:
    """Put a folder in its place. The old one leaves it in the same step where the system can exchange them;
    otherwise it is moved aside first, and removed.
    """
    if not target.exists():
        fresh.rename(target)
    elif not _exchange(fresh, target):
        old = _beside(target, "old")
        target.rename(old)
        # If this process is killed before this line, the next run puts the old folder back.
        fresh.rename(target)
        _remove(old)


def _recover(target: Path) -> None:
    """Put back, or remove, the old folder that a killed process left beside its place."""
    old = _beside(target, "old")
    if target.exists():
        _remove(old)
    elif old.exists():
        old.rename(target)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two folders in one step (renameat2(2)); return False where the system, its C library or the file
    system cannot.
    """
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # glibc before 2.28
        return False
    if renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), str(second))


def _error_in_target(target: Path, fresh: Path, error: OSError) -> FileError:
    """Make the error of what fills `fresh`, about the file that it names: by the name that the file would
    have had in `target`.
    """
    if not isinstance(error.filename, str):
        return _unwritable_error(target, error)
    file = Path(error.filename)
    for folder in (target, fresh):
        if file.is_relative_to(folder):
            return _unwritable_error(target / file.relative_to(folder), error)
    return FileError(f"cannot be read or written: {error.strerror}", where=file)


def _unwritable_error(target: Path, error: OSError) -> FileError:
    return FileError(
        f"cannot be written: {error.strerror or error}", where=target, next=f"choose another {OUT}"
    )
