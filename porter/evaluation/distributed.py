"""One evaluation in several processes, as torchrun starts them: each scores its part of the photos, all get
the whole result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeVar

from porter.base.errors import NotInstalled, PorterError, UsageError, first_line
from porter.base.package import install

T = TypeVar("T")

TIMEOUT_S = 1800.0
"""The longest time that the processes wait for the slowest one."""


@dataclass(frozen=True)
class Process:
    """This process of a run: its number and the number of processes, in all and on this machine."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1

    @property
    def leads(self) -> bool:
        """Whether it is the process that prints and writes."""
        return self.rank == 0

    def device(self, asked: str) -> str:
        """Return the device of this process: its own GPU if there are several processes, otherwise the device
        `asked`.
        """
        return f"cuda:{self.local_rank}" if asked == "cuda" and self.world > 1 else asked


@dataclass(frozen=True)
class _Failed:
    """What a process that failed sends to the others in place of its result."""

    why: str


def this_process(environment: Mapping[str, str] = os.environ) -> Process:
    """Return this process as torchrun's environment states it; without torchrun, the only process.

    Raises:
        UsageError: RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE do not fit each other.
    """
    try:
        world = int(environment.get("WORLD_SIZE", "1"))
        rank = int(environment.get("RANK", "0"))
        local_rank = int(environment.get("LOCAL_RANK", rank))
        local_world = int(environment.get("LOCAL_WORLD_SIZE", world))
    except ValueError as error:
        raise UsageError(
            f"torchrun's variables must be whole numbers: {error}",
            where="RANK, WORLD_SIZE",
            next="start it with torchrun",
        ) from None
    if not (0 <= rank < world and 0 <= local_rank < local_world <= world):
        raise UsageError(
            f"there is no process {rank} of {world}", where="RANK, WORLD_SIZE", next="start it with torchrun"
        )
    return Process(rank, world, local_rank, local_world)


@contextmanager
def join_run(process: Process, timeout_s: float = TIMEOUT_S) -> Iterator[Callable[[T], list[T]]]:
    """Join the processes of a run, and yield a function that each process calls once with its own result, and
    that returns the results of all, in the order of the processes.

    If a block fails before that, the other processes are told and fail too. A process that dies or does not
    answer in time is noticed.

    Raises:
        PorterError: the other processes cannot be reached, or one of them failed.
        NotInstalled: torch, whose gloo joins the processes, is not installed.
    """
    if process.world == 1:
        yield lambda result: [result]
        return
    exchange, leave = _join(process, timeout_s)
    has_gathered = False

    def gather(own_result: T | _Failed) -> list[Any]:
        """Exchange this process's result for those of all, and return them in the order of the processes;
        raise if another one failed.
        """
        nonlocal has_gathered
        # Set also if it fails, because the others must not be told twice.
        has_gathered = True
        try:
            results = exchange(own_result)
        except (RuntimeError, ValueError) as error:
            raise _lost_process_error(error, timeout_s) from None
        for rank, result in enumerate(results):
            if isinstance(result, _Failed) and rank != process.rank:
                raise PorterError(f"process {rank} of {process.world} failed: {result.why}")
        return results

    try:
        yield gather
    except Exception as error:
        if not has_gathered:
            with suppress(PorterError):
                # The others wait for a result: they get the failure.
                gather(_Failed(str(error) or type(error).__name__))
        raise
    finally:
        leave()


def _join(process: Process, timeout_s: float) -> tuple[Callable[[Any], list[Any]], Callable[[], None]]:
    """Join the processes of torchrun, and return two functions: one gathers a value from all processes, the
    other leaves them.

    Raises:
        NotInstalled: torch is not installed.
        PorterError: the other processes cannot be reached.
    """
    if find_spec("torch") is None:
        raise NotInstalled("several processes need torch, which is not installed", next=install("torch"))
    from porter.frameworks.torch.processes import join_processes

    try:
        return join_processes(process.rank, process.world, timeout_s)
    except (RuntimeError, ValueError) as error:
        raise _lost_process_error(error, timeout_s) from None


def _lost_process_error(error: Exception, timeout_s: float) -> PorterError:
    """Make the error of a process that ended or did not answer."""
    reason = first_line(error)
    return PorterError(
        f"another process of this run ended, or did not answer within {timeout_s:g} s: {reason}",
        next="see that process's error; torchrun starts all of them",
    )
