"""What the C library does with memory that torch frees."""

from __future__ import annotations

import ctypes
import weakref

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""glibc's numbers of these settings (malloc.h)."""
_KEPT_BYTES = 1 << 30
"""Bytes: blocks below it are taken from what was kept, and less than so many at the end of it stay."""
_RAISED_BYTES = 32 << 20
"""Bytes to which glibc raises the second threshold by itself, with the first one twice as large
(mallopt(3)).
"""

_users: set[int] = set()


def keep_freed(user: object) -> None:
    """Keep memory that is freed for what comes next while `user` lives; with the last user it goes back to
    the system.

    A batch's maps have many megabytes each, which glibc otherwise gives back and takes anew, and the system
    fills with zeros each time: a third of MobileNetV2's processor time. Other C libraries stay as they are.
    """
    try:
        library = ctypes.CDLL(None)
        _set_thresholds(library, _KEPT_BYTES, _KEPT_BYTES)
    except (AttributeError, OSError, TypeError):
        return
    _users.add(id(user))
    weakref.finalize(user, _release, library, id(user))


def _set_thresholds(library: ctypes.CDLL, trim: int, mmap: int) -> None:
    """Set how much free memory at the end of the heap glibc keeps, and from which size on it takes a block
    from the system for itself, both in bytes.
    """
    library.mallopt(_TRIM_THRESHOLD, trim)
    library.mallopt(_MMAP_THRESHOLD, mmap)


def _release(library: ctypes.CDLL, user: int) -> None:
    """Forget a user, and give freed memory back to the system if it was the last one."""
    _users.discard(user)
    if not _users:
        # What glibc would have come to by itself.
        _set_thresholds(library, 2 * _RAISED_BYTES, _RAISED_BYTES)
        library.malloc_trim(0)
