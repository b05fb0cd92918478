"""Making the ports of a list: which are left to make, where they run, and the tables at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

from porter.base.commands import BatchOptions
from porter.base.errors import NotInstalled, UsageError
from porter.base.options import MEMORY, ON, SHARD, TIMEOUT, WORKERS
from porter.base.package import install
from porter.base.progress import progress_bar
from porter.batch.attempts import JobLimits, JobRunner, import_psutil
from porter.batch.jobs import Job, read_jobs
from porter.batch.results import LOGS, PORTS, RESULTS, STATES, JobResult, read_result, write_tables
from porter.files.locks import locked

LOCAL, RAY = "local", "ray"
_MOST_LOST = 10
"""So often Ray begins a job again whose worker or node is lost."""
_MOST_DIGITS = 9
"""The most digits of a number of shards."""
_CORES_OF_WORKER = 2
"""Processors for each worker, if nobody says how many workers there are."""


@dataclass(frozen=True)
class BatchOutcome:
    """What a batch made.

    Attributes:
        results: of all jobs of the list, in its order.
        skipped: how many of them an earlier run had ended.
        table: the CSV of all jobs.
    """

    results: tuple[JobResult, ...]
    skipped: int
    table: Path

    @property
    def ok(self) -> bool:
        """Whether every port of the list stands; what other shards make may be waiting."""
        return not self.counts["refused"] and not self.counts["failed"]

    @property
    def counts(self) -> dict[str, int]:
        """How many jobs there are in each state."""
        return {state: sum(result.state == state for result in self.results) for state in STATES}

    def record(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {"ok": self.ok, **self.counts, "skipped": self.skipped, "table": str(self.table)}


def batch(asked: BatchOptions, program: Sequence[str]) -> BatchOutcome:
    """Make the ports of a list that do not stand yet, each in a process of its own.

    A job whose process is killed is begun again, at most three times. After a kill of this process the next
    one goes on: the ports that stand are kept, and their jobs are not run again unless their lines or files
    have changed.

    Args:
        program: see porter.batch.attempts.JobRunner.

    Raises:
        UsageError: a limit, the shard or a line of the list is wrong.
        FileError: the list cannot be read, or another batch makes this shard.
        NotInstalled: ray or psutil is asked for, and is not installed.
    """
    folder = Path(asked.out)
    jobs = read_jobs(Path(asked.list))
    shard, shards = _shard(asked.shard)
    _expect_options(asked)
    for name in (PORTS, RESULTS, LOGS):
        (folder / name).mkdir(parents=True, exist_ok=True)
    with locked(folder / f".shard-{shard}-of-{shards}.lock", wait=False):
        # every `shards`-th job, so that jobs of one kind are spread
        jobs_of_shard = jobs[shard - 1 :: shards]
        to_make = [job for job in jobs_of_shard if not read_result(folder, job).is_final]
        skipped = len(jobs_of_shard) - len(to_make)
        runner = JobRunner(
            folder.resolve(), Path.cwd(), tuple(program), JobLimits(asked.timeout, asked.memory)
        )
        results_so_far = (
            _on_ray(to_make, runner) if asked.on == RAY else _here(to_make, runner, asked.workers)
        )
        with progress_bar(total=len(jobs_of_shard), initial=skipped, unit="port") as bar:
            for result in results_so_far:
                bar.set_postfix_str(result.name)
                bar.update()
        with locked(folder / ".table.lock"):
            table, results = write_tables(folder, jobs)
    return BatchOutcome(results, skipped, table)


def _shard(text: str | None) -> tuple[int, int]:
    """Return which part of how many a text `I/N` names, both from 1: (2, 4) of `2/4`, and (1, 1) without a
    text.

    Raises:
        UsageError: it has another form, or I is more than N.
    """
    if text is None:
        return 1, 1
    part, _, parts = text.partition("/")
    are_numbers = all(word.isdecimal() and len(word) <= _MOST_DIGITS for word in (part, parts))
    if not are_numbers or not 1 <= int(part) <= int(parts):
        next_step = f"the first of four parts is {SHARD('1/4')}"
        raise UsageError(f"expected I/N, got '{text}'", where=SHARD, next=next_step)
    return int(part), int(parts)


def _expect_options(asked: BatchOptions) -> None:
    """Expect options that a batch can run with.

    Raises:
        UsageError: a number is not above 0, or the machine to run on is unknown.
        NotInstalled: memory is limited, and psutil is not there to measure it.
    """
    for option, value in ((TIMEOUT, asked.timeout), (MEMORY, asked.memory), (WORKERS, asked.workers)):
        if value is not None and not value > 0:
            raise UsageError(f"expected a number above 0, got {value}", where=option)
    if asked.on not in (LOCAL, RAY):
        raise UsageError(f"expected {LOCAL} or {RAY}, got '{asked.on}'", where=ON)
    if asked.memory is not None and asked.on == LOCAL:
        import_psutil()  # before a job begins


def _here(jobs: Sequence[Job], runner: JobRunner, workers: int | None) -> Iterator[JobResult]:
    """Run jobs on this machine, several at a time, and yield each result when it is there.

    Args:
        workers: how many at a time; None for as many as the cores allow.
    """
    cores = os.cpu_count() or 1
    count = workers or max(1, cores // _CORES_OF_WORKER)
    stopped = Event()
    runner = replace(runner, threads=max(1, cores // count))
    with ThreadPoolExecutor(count) as pool:
        waiting: set[Future[JobResult]] = set()
        try:
            for job in jobs:
                if len(waiting) == count:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
                waiting.add(pool.submit(runner.run, job, stopped))
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        finally:  # after Ctrl-C the jobs that run are killed, and no other begins
            stopped.set()
            pool.shutdown(cancel_futures=True)


def _on_ray(jobs: Sequence[Job], runner: JobRunner) -> Iterator[JobResult]:
    """Run jobs on the nodes of a running Ray cluster, which see the same folders, and yield each result when
    it is there. Ray begins a job again if its worker or node is lost.

    Raises:
        NotInstalled: ray is not installed.
        UsageError: there is no cluster.
    """
    try:
        import ray
    except ImportError:
        raise NotInstalled("ray is needed", where=ON(RAY), next=install("ray")) from None
    if not ray.is_initialized():
        try:
            ray.init(address="auto", log_to_driver=False)
        except ConnectionError:
            next_step = "begin one: ray start --head"
            raise UsageError("there is no Ray cluster here", where=ON(RAY), next=next_step) from None

    def run_on_node(job: Job) -> JobResult:
        """Run a job where Ray calls this."""
        return runner.run(job)

    task = ray.remote(num_cpus=1, max_retries=_MOST_LOST)(run_on_node)
    waiting = [task.remote(job) for job in jobs]
    while waiting:
        done, waiting = ray.wait(waiting)
        yield from ray.get(done)
