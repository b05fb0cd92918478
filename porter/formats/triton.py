"""Loads triton, torch's compiler for GPUs, so that it and TensorFlow can be in one process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module


@cache
def load_triton() -> None:
    """Import triton, if it is installed. Everything that imports TensorFlow calls this first, and so does
    what runs torch.

    TensorFlow's wheels for Linux, from 2.20 on, load their libraries with RTLD_GLOBAL. A triton that is
    loaded later binds to TensorFlow's LLVM instead of its own, and the process dies:
    https://github.com/tensorflow/tensorflow/issues/124205. torch loads triton late: when torchvision is
    imported, or for torch.export, torch.compile and an optimizer. If TensorFlow is there already, as in a
    notebook that imported it, triton is loaded so that it prefers its own symbols.
    """
    # Porter itself needs no triton.
    with suppress(Exception), _own_symbols_first("tensorflow" in sys.modules):
        import_module("triton")


@contextmanager
def _own_symbols_first(wanted: bool) -> Iterator[None]:
    """Let libraries that are loaded meanwhile look up their symbols in themselves and in what they depend on
    before they look in the process. Do nothing where it is not wanted, or the system has no such flag.
    """
    deep_bind = getattr(os, "RTLD_DEEPBIND", 0) if wanted else 0  # of glibc, like the wheels
    if not deep_bind:
        yield
        return
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags | deep_bind)
    try:
        yield
    finally:
        sys.setdlopenflags(flags)
