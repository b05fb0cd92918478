"""Releases memory between two large steps."""

from __future__ import annotations

import ctypes
import gc
import sys

_MANY = 1 << 23


def trim() -> None:
    """Returns released memory to the system: glibc keeps it in pieces that are too small for later maps."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def release(weights: int) -> None:
    """As `trim`, and frees models that nothing uses any more: Keras's refer to themselves in circles, which Python finds late.

    Args:
        weights: how many numbers a model has. For few, the search takes longer than the check of a small network.
    """
    if weights > _MANY:
        gc.collect()
    trim()
