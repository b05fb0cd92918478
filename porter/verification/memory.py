"""Memory between two large steps."""

from __future__ import annotations

import ctypes
import sys


def trim() -> None:
    """Gives back to the system what has been let go of: glibc keeps it, in pieces that fit no later map."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
