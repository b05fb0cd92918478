"""One job in a process of its own, with limits of time and of measured memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

from porter.base.errors import NotInstalled, escaped, signal_name
from porter.base.options import JSON, OUT, OVERWRITE
from porter.base.package import install
from porter.batch.jobs import Job
from porter.batch.results import LOGS, PORTS, JobResult, State, write_result

_MOST_ATTEMPTS = 3
"""A process that somebody else kills is begun again so often in all: memory may be short for a while."""
_THREADS = "OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"
"""The environment variables that say how many threads the libraries that compute have."""
_REFUSALS = 1, 2
"""The statuses of a program that gives a reason, as `porter convert` does; a fault of its own has another."""
_BETWEEN_LOOKS = 0.1
"""Seconds between two looks at a process: whether it has ended, its time and its memory."""
_LAST_LETTERS = 300
"""So many letters of a failed process's stderr, its last ones, are its message."""
_PER_GB = 1e9


@dataclass(frozen=True)
class JobLimits:
    """What the process of a job may take.

    Attributes:
        seconds: until it is killed; None for any time.
        gigabytes: of memory, its own and that of what it began, as the system reports it; None for any. It
            is measured, because an address space that is limited would stop frameworks that reserve more
            than they use.
    """

    seconds: float | None = None
    gigabytes: float | None = None


@dataclass(frozen=True)
class JobRunner:
    """What runs the jobs of a batch.

    Attributes:
        folder: of the batch.
        cwd: where the paths of the list begin.
        program: the words before those of a job, such as `porter convert` with an interpreter that runs it.
            The program takes `--out`, `--overwrite` and `--json` too, prints one JSON object, and ends with
            this process (porter.cli.supervised).
        threads: for each of the libraries that compute, unless the environment says so; None leaves it to
            them.
    """

    folder: Path
    cwd: Path
    program: Sequence[str]
    limits: JobLimits
    threads: int | None = None

    def run(self, job: Job, stopped: Event | None = None) -> JobResult:
        """Run a job to its end, write its result into the folder of the batch, unless it was stopped, and
        return it. A job that the system kills is begun again.

        Args:
            stopped: kills the job when it is set.

        Raises:
            NotInstalled: memory is limited, and psutil is not there to measure it.
        """
        stopped = stopped or Event()
        for attempt in range(1, _MOST_ATTEMPTS + 1):
            result = replace(self._attempt(job, stopped), attempts=attempt)
            if result.code != "killed" or stopped.is_set():
                break
        if not stopped.is_set():
            write_result(self.folder, job, result)
        return result

    def _attempt(self, job: Job, stopped: Event) -> JobResult:
        """Run one job as a process of its own and return what became of it. Its output goes to the job's
        logs, `.json` for stdout and `.txt` for stderr. A process that breaks a limit, or is running when
        `stopped` is set, is killed, and the job has failed.
        """
        logs = self.folder / LOGS
        out = self.folder / PORTS / job.name
        command = [*self.program, *job.words, *OUT.words(out), *OVERWRITE.words(True), *JSON.words(True)]
        begun = time.monotonic()
        # what a program writes need not be UTF-8
        with (
            (logs / f"{job.name}.json").open("w+", encoding="utf-8", errors="backslashreplace") as printed,
            (logs / f"{job.name}.txt").open("w+", encoding="utf-8", errors="backslashreplace") as said,
        ):
            process = subprocess.Popen(
                command,
                cwd=self.cwd,
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=said,
                env=self._environment,
                start_new_session=True,
            )
            try:
                broken_limit, peak = _watch(process, self.limits, stopped)
            finally:
                _kill(process)
            took = {"seconds": round(time.monotonic() - begun, 1), "peak": peak}
            if broken_limit is not None:
                return JobResult.of(job, "failed", code="limit", message=broken_limit, **took)
            printed.seek(0)
            said.seek(0)
            return _result(job, process.returncode, printed.read(), said.read(), took)

    @property
    def _environment(self) -> dict[str, str]:
        """The environment of a job: this process's, and `threads` where it says nothing of them."""
        limited = {} if self.threads is None else dict.fromkeys(_THREADS, str(self.threads))
        return {**limited, **os.environ}


def _watch(
    process: subprocess.Popen[bytes], limits: JobLimits, stopped: Event
) -> tuple[str | None, int | None]:
    """Wait for the end of a process, or until it exceeds a limit or is stopped.

    Returns:
        What it exceeded, in words, and the most bytes of memory that it had; None where it was not measured.
    """
    memory = _Memory(process.pid) if limits.gigabytes is not None else None
    begun = time.monotonic()
    peak = None
    while True:
        with suppress(subprocess.TimeoutExpired):
            # It raises TimeoutExpired, which is suppressed, while the process runs.
            process.wait(_BETWEEN_LOOKS)
            return None, peak
        if stopped.is_set():
            return "it was stopped", peak
        if limits.seconds is not None and time.monotonic() - begun > limits.seconds:
            return f"it took longer than {limits.seconds:g} s", peak
        if memory is not None and limits.gigabytes is not None:
            peak = max(peak or 0, memory.measure())
            if peak > limits.gigabytes * _PER_GB:
                return f"it took {peak / _PER_GB:.1f} GB of memory, more than {limits.gigabytes:g}", peak


def import_psutil() -> Any:
    """Return psutil, which measures memory.

    Raises:
        NotInstalled: it is not installed.
    """
    try:
        import psutil
    except ImportError:
        raise NotInstalled("psutil is needed to measure memory", next=install("batch")) from None
    return psutil


class _Memory:
    """The memory of a process and of those that it began.

    Raises:
        NotInstalled: psutil is not installed.
    """

    def __init__(self, process: int) -> None:
        self._psutil, self._process = import_psutil(), process

    def measure(self) -> int:
        """Return the bytes that all of them have; 0 once they have ended."""
        with suppress(self._psutil.NoSuchProcess):
            top = self._psutil.Process(self._process)
            return sum(map(self._of_one, (top, *top.children(recursive=True))))
        return 0

    def _of_one(self, running: Any) -> int:
        """Return the bytes of one process; 0 once it has ended."""
        with suppress(self._psutil.Error):
            return int(running.memory_info().rss)
        return 0


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it began."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _result(job: Job, status: int, printed: str, said: str, took: Mapping[str, Any]) -> JobResult:
    """Return the result of a process that ended by itself, or was killed by somebody else: done, refused with
    porter's own error, or failed.

    Args:
        status: minus the number of the signal that killed it, otherwise its exit status.
        printed: its stdout, one JSON object unless it failed.
        said: its stderr.
        took: its time and memory.
    """
    if status < 0:
        message = f"the process was killed by signal {-status} ({signal_name(-status)})"
        return JobResult.of(job, "failed", code="killed", message=message, **took)
    # It may end before it prints a whole object, or badly after it has printed that it is done; another
    # program may print other JSON.
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        record = json.loads(printed)
        if status == 0:
            return JobResult.of_record(job, record, **took)
        error = record["error"]
        message = f"{error['where']}: {error['message']}" if error["where"] else error["message"]
        state: State = "refused" if status in _REFUSALS else "failed"
        return JobResult.of(job, state, code=error["code"], message=escaped(message), **took)
    last = said[-_LAST_LETTERS:].strip()
    return JobResult.of(job, "failed", code="error", message=f"status {status}: {last}", **took)
