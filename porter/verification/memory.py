"""Releases memory between two large steps."""

from __future__ import annotations

import ctypes
import gc
import sys


def trim() -> None:
    """Returns released memory to the system: glibc keeps it in pieces that are too small for later maps."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def release() -> None:
    """As `trim`, and frees models that nothing uses any more: Keras's refer to themselves in circles, which Python finds late."""
    gc.collect()
    trim()
