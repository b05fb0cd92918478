"""The processes that torchrun starts exchange their results."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch import distributed


def join_processes(
    rank: int, world: int, timeout_s: float
) -> tuple[Callable[[Any], list[Any]], Callable[[], None]]:
    """Join a run over gloo, which needs no GPU.

    Returns a function that gathers an object from each process, in their order, and one that leaves the run.

    Raises:
        RuntimeError, ValueError: the others cannot be reached. The gathering function raises them too.
    """
    distributed.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=timeout_s))

    def gather(own: Any) -> list[Any]:
        gathered: list[Any] = [None] * world
        distributed.all_gather_object(gathered, own)
        return gathered

    return gather, distributed.destroy_process_group
