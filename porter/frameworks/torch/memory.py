"""What the C library does with memory that torch frees."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""glibc's numbers of these settings (malloc.h)."""
_KEPT = 1 << 30
"""Bytes: blocks below it are taken from what was kept, and less than so many at the end of it stay."""


def keep_freed() -> None:
    """Keeps freed memory for the next batch. A batch's maps have many megabytes each, which glibc otherwise gives back and takes
    anew, and the system fills with zeros each time: half of MobileNetV2's processor time. Other C libraries stay as they are.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    set_option(_MMAP_THRESHOLD, _KEPT)
    set_option(_TRIM_THRESHOLD, _KEPT)
