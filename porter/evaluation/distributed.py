"""One evaluation in several processes, as torchrun starts them: each takes its share of the photos, all learn the whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeVar

from porter.errors import MissingFramework, PorterError, UsageError

T = TypeVar("T")

TIMEOUT_S = 1800.0
"""How long the processes wait for the slowest one."""


@dataclass(frozen=True)
class Process:
    """This process among those of a run: its number in all, how many there are, and both on this machine."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1

    @property
    def leads(self) -> bool:
        """Whether it is the one that prints and writes."""
        return self.rank == 0

    def device(self, asked: str) -> str:
        """Its own GPU, where several processes share a machine's."""
        return f"cuda:{self.local_rank}" if asked == "cuda" and self.world > 1 else asked


@dataclass(frozen=True)
class _Failed:
    why: str


def this_process(environment: Mapping[str, str] = os.environ) -> Process:
    """What torchrun says in the environment; one process alone without it.

    Raises:
        UsageError: RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE that do not fit each other.
    """
    try:
        world = int(environment.get("WORLD_SIZE", "1"))
        rank = int(environment.get("RANK", "0"))
        local_rank = int(environment.get("LOCAL_RANK", rank))
        local_world = int(environment.get("LOCAL_WORLD_SIZE", world))
    except ValueError as error:
        raise UsageError(f"torchrun's variables are whole numbers: {error}", where="RANK, WORLD_SIZE") from None
    if not (0 <= rank < world and 0 <= local_rank < local_world <= world):
        raise UsageError(f"there is no process {rank} of {world}", where="RANK, WORLD_SIZE", next="start it with torchrun")
    return Process(rank, world, local_rank, local_world)


@contextmanager
def joined(process: Process, timeout_s: float = TIMEOUT_S) -> Iterator[Callable[[T], list[T]]]:
    """Joins the processes of a run. What it gives is called once, by each of them, with what that process found; it returns what
    all of them found, in their order.

    A block that fails before says so to the others, which then fail too; a process that dies or does not answer in time is noticed.

    Raises:
        PorterError: the other processes cannot be reached, or one of them failed.
        MissingFramework: torch, over whose gloo they talk, is not installed.
    """
    if process.world == 1:
        yield lambda own: [own]
        return
    exchange, leave = _join(process, timeout_s)
    told = False

    def gather(own: T | _Failed) -> list[Any]:
        nonlocal told
        told = True
        try:
            found = exchange(own)
        except (RuntimeError, ValueError) as error:
            raise _lost(error, timeout_s) from None
        for rank, other in enumerate(found):
            if isinstance(other, _Failed) and rank != process.rank:
                raise PorterError(f"process {rank} of {process.world} failed: {other.why}")
        return found

    try:
        yield gather
    except Exception as error:
        if not told:
            with suppress(PorterError):
                gather(_Failed(str(error) or type(error).__name__))
        raise
    finally:
        leave()


def _join(process: Process, timeout_s: float) -> tuple[Callable[[Any], list[Any]], Callable[[], None]]:
    if find_spec("torch") is None:
        raise MissingFramework("several processes talk through torch, which is not installed", next="pip install torch")
    from porter.frameworks.torch.processes import join_processes

    try:
        return join_processes(process.rank, process.world, timeout_s)
    except (RuntimeError, ValueError) as error:
        raise _lost(error, timeout_s) from None


def _lost(error: Exception, timeout_s: float) -> PorterError:
    reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return PorterError(
        f"another process of this run ended, or did not answer within {timeout_s:g} s: {reason}",
        next="see what that process said; torchrun starts all of them",
    )
