"""One writer at a time, between processes and threads."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from porter.base.errors import FileError

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""What a file system without locks answers, such as one of a network."""


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock file `path`, which exists only as long as it is held; if its holder is killed, the system
    releases it.

    Without fcntl (Windows), or in a file system without locks, nothing is locked, and two writers can disturb
    each other.

    Raises:
        FileError: the file cannot be made, or another holds it and `wait` is false.
    """
    if sys.platform == "win32":
        yield
        return
    descriptor = _acquire(path, wait)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(path: Path, wait: bool) -> int:
    """Open a file and lock it if its file system can; return its descriptor."""
    import fcntl

    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise FileError(f"cannot be written: {error.strerror}", where=path.parent) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before may have removed the file between our open and our lock: then that lock guards
            # nothing.
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        # The file was removed meanwhile: try again.
        except FileNotFoundError:
            pass
        except BlockingIOError:
            os.close(descriptor)
            raise FileError(
                "another process is writing here", where=path.parent, next="wait for it to end"
            ) from None
        except BaseException as error:
            if isinstance(error, OSError) and error.errno in _NO_LOCKS:
                return descriptor
            os.close(descriptor)
            raise
        os.close(descriptor)
