"""Memory between two large steps, and whether there is enough of it for one."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar
from weakref import ref

import numpy as np

from porter.base.dtypes import Array
from porter.base.errors import CheckFailed
from porter.base.options import CHECK, INPUT_SIZE
from porter.graph import Graph, shapes, tensor_shapes

K = TypeVar("K")

_MANY = 1 << 23
_LARGE, _SMALL = 1 << 30, 1 << 16
"""Bytes of the values of one side, and of a single value."""
_SHARE = 8
"""Where one part in so many of the memory is more, the values of one side may take it."""
_BYTES = 16
"""Of each number of an image's values, which are in float64 on both sides; those of one may be on the disk
(`set_aside`).
"""

_CONTAINERS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux says how many bytes a container may hold, in versions 2 and 1 of cgroups; `max` is no limit."""


def set_aside(values: dict[str, Array]) -> None:
    """Moves values that are large for this machine to the disk, where it has room, before the other side
    computes as many: a ViT-L of 512 pixels has 3.7 GB. The system takes the memory of a file that is mapped,
    when it needs it.
    """
    if sum(value.nbytes for value in values.values()) < max(_LARGE, (_held() or 0) // _SHARE):
        return
    for path, value in values.items():
        if value.nbytes < _SMALL:
            continue
        try:
            with TemporaryFile() as file:
                file.write(np.ascontiguousarray(value).data)
                file.flush()
                values[path] = np.memmap(file, value.dtype, "r", shape=value.shape)
        except OSError:  # the disk is full
            return


def trim(numbers: int) -> None:
    """Returns released memory to the system: glibc keeps it in pieces that are too small for later maps.

    Args:
        numbers: how many were released. Of few, asking for the memory again takes longer than computing them.
    """
    if numbers > _MANY and sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def release(weights: int) -> None:
    """As `trim`, and frees models that nothing uses any more: Keras's refer to themselves in circles, which
    Python finds late.

    Args:
        weights: how many numbers a model has. For few, the search takes longer than the check of a small
            network.
    """
    if weights > _MANY:
        gc.collect()
    trim(weights)


def let_go(models: dict[K, Any], keys: Iterable[K], weights: int) -> None:
    """Takes models out of their table, and `release`s those that are in circles: most are not, and the search
    looks through all of TensorFlow.
    """
    left = [ref(models.pop(key)) for key in keys]
    if any(model() is not None for model in left):
        release(weights)
    elif left:
        trim(weights)


def weights_in(graph: Graph) -> int:
    """How many numbers the tensors of a graph have."""
    return sum(math.prod(shape) for roles in tensor_shapes(graph).values() for shape in roles.values())


def expect_memory(graph: Graph, size: tuple[int, int]) -> None:
    """Expects that this machine, or its container, can hold what a comparison at a size (rows, columns)
    holds: a process that asks for more is killed.

    Raises:
        CheckFailed: it has less memory.
    """
    held = _held()
    if held is None:
        return
    values = sum(math.prod(side or 1 for side in shape) for shape in shapes(graph, size).values())
    if values * _BYTES > held:
        message = (
            f"comparing at {size[0]}x{size[1]} takes {values * _BYTES / 2**30:.0f} GiB of memory, and this "
            f"machine has {held / 2**30:.0f}"
        )
        raise CheckFailed(
            message,
            next=f"convert for a smaller {INPUT_SIZE}, or write the port without a proof: {CHECK(False)}",
        )


def _held() -> int | None:
    """The bytes of memory of this machine, or of its container; None on Windows, which refuses memory that it
    does not have.
    """
    if not hasattr(os, "sysconf"):
        return None
    limits = [file.read_text(encoding="ascii").strip() for file in _CONTAINERS if file.is_file()]
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *map(int, filter(str.isdigit, limits))])
