"""Processes that torchrun starts, which tell each other what they found."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch import distributed


def join_processes(rank: int, world: int, timeout_s: float) -> tuple[Callable[[Any], list[Any]], Callable[[], None]]:
    """Joins a run over gloo, which needs no GPU.

    Returns what gathers an object of each process, in their order, and what leaves the run.

    Raises:
        RuntimeError, ValueError: the others cannot be reached; so does what gathers.
    """
    distributed.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=timeout_s))

    def gather(own: Any) -> list[Any]:
        found: list[Any] = [None] * world
        distributed.all_gather_object(found, own)
        return found

    return gather, distributed.destroy_process_group
