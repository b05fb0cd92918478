"""Memory between two large steps, and whether there is enough of it for one."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from weakref import ref

from porter.base.errors import CheckFailed
from porter.base.options import CHECK, INPUT_SIZE
from porter.graph import Graph, Shape, shapes, tensor_shapes
from porter.graph.memory_bounds import count_numbers
from porter.padding import KnownSize

K = TypeVar("K")

_MANY = 1 << 23
"""So many numbers are worth the time that it takes to give their memory back."""
_LEAST, _SHARE = 2 << 30, 8
"""Bytes that the values take which are compared together; where one part in so many of the memory is more,
they may take that.
"""
_BYTES = 16
"""The bytes of each number of an image's values, which are in float64 on both sides."""

_CONTAINERS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux says how many bytes a container may hold, in versions 2 and 1 of cgroups; `max` is no limit."""


def in_parts(graph: Graph, stated: Mapping[str, Shape], images: int) -> list[list[str]]:
    """Split the paths of a graph's nodes into parts whose values the machine has memory for, in order; most
    networks are one part.

    Both sides compute one part's values, are compared, and begin again for the next part.

    Args:
        stated: the shape of every value of one image.
        images: how many are run together.
    """
    most = max(_LEAST, (_memory() or 0) // _SHARE)
    parts = [list[str]()]
    part_bytes = 0
    for path in (node.path for node in graph.nodes):
        size = _BYTES * images * count_numbers(stated[path])
        if parts[-1] and part_bytes + size > most:
            parts.append([])
            part_bytes = 0
        parts[-1].append(path)
        part_bytes += size
    return parts


def trim(numbers: int) -> None:
    """Return released memory to the system: glibc keeps it in pieces that are too small for later maps.

    Args:
        numbers: how many were released. Of few, asking for the memory again takes longer than computing them.
    """
    if numbers > _MANY and sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def release(weights: int) -> None:
    """Do what `trim` does, and free models that nothing uses any more: Keras's refer to themselves in
    circles, which Python finds late.

    Args:
        weights: how many numbers a model has. For few, the search takes longer than the check of a small
            network.
    """
    if weights > _MANY:
        gc.collect()
    trim(weights)


def free_importers(weights: int) -> None:
    """Free what the functions had at hand in which a framework was imported for the first time. torch's
    modules keep their own frames in circles (torch/fx/_symbolic_trace.py, `wrap`), each with those of its
    callers and all their arrays, until Python looks through what is new. ResNet50V2's check took 2.2 GiB.

    Args:
        weights: as in `release`.
    """
    if weights > _MANY:
        gc.collect(1)


def drop_models(models: dict[K, Any], keys: Iterable[K], weights: int) -> None:
    """Take the models of `keys` out of their table, and give their memory back. Python frees those at once
    that nothing refers to; only where one is still there, as Keras's are, which refer to themselves in
    circles, `release` looks for it, through all objects of TensorFlow.

    Args:
        weights: how many numbers a model has.
    """
    dropped = [ref(models.pop(key)) for key in keys]
    if any(model() is not None for model in dropped):
        release(weights)
    elif dropped:
        trim(weights)


def weights_in(graph: Graph) -> int:
    """Return how many numbers the tensors of a graph have."""
    return sum(math.prod(shape) for roles in tensor_shapes(graph).values() for shape in roles.values())


def expect_memory(graph: Graph, size: KnownSize) -> None:
    """Expect that this machine, or its container, can hold the largest value that a comparison at a size
    (rows, columns) holds on both sides: a process that asks for more is killed.

    Raises:
        CheckFailed: it has less memory.
    """
    machine = _memory()
    largest = _BYTES * max(map(count_numbers, shapes(graph, size).values()))
    if machine is not None and largest > machine:
        raise CheckFailed(
            f"comparing at {size[0]}x{size[1]} takes {largest / 2**30:.0f} GiB of memory, and this machine "
            f"has {machine / 2**30:.0f}",
            next=f"convert for a smaller {INPUT_SIZE}, or write the port without a proof: {CHECK(False)}",
        )


def _memory() -> int | None:
    """Return the bytes of memory of this machine, or of its container if that has less; None on Windows,
    which refuses memory that it does not have.
    """
    if not hasattr(os, "sysconf"):
        return None
    limits = [file.read_text(encoding="ascii").strip() for file in _CONTAINERS if file.is_file()]
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # A container without a limit says `max`.
    return min([machine, *map(int, filter(str.isdigit, limits))])
