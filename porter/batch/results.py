"""What became of the jobs of a batch, one file each, and the tables of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from porter.base.errors import DownloadError, NotInstalled, PluginError
from porter.base.package import __version__
from porter.batch.jobs import Job
from porter.files import write_whole
from porter.port import RECORD
from porter.reporting.batch_page import batch_page

State = Literal["done", "refused", "failed", "waiting"]
"""What may become of a job, in the order in which it is told."""
STATES: tuple[State, ...] = get_args(State)
PORTS, RESULTS, LOGS = "ports", "results", "logs"
"""The folders of a batch."""
_TABLE = "table"
_PASSING = NotInstalled.code, DownloadError.code, PluginError.code
"""The codes of refusals that end when a package is installed or a server answers."""
_LISTED = (
    "name", "subject", "source", "to", "state", "check", "architecture", "variant", "zoo", "classes",
    "distance", "limit", "port", "code", "message",
)  # fmt: skip
"""The columns of the tables. Times and memory, which differ from run to run, stand in the results only."""


@dataclass(frozen=True)
class JobResult:
    """What became of a job.

    Attributes:
        name, subject, source, to: see porter.batch.jobs.Job.
        digest: of the job as it was run.
        state: `done` where the port stands, or the program ended well without one; `refused` where porter
            gives a reason, `failed` where the process was killed or took too much time or memory, `waiting`
            where it has not run.
        check: what became of the check, as `porter convert --json` says.
        distance: the largest relative L2 distance of a node in the number type that decides.
        limit: of that distance.
        port: the folder, from that of the batch; None where there is none.
        code, message: of the refusal, or what ended the process.
        seconds: how long the last attempt took.
        peak: the most bytes of memory that it was seen to have; None where nobody measured.
        attempts: how often it was begun.
        porter: the version of porter that ran it; None where it has not run.
    """

    name: str
    subject: str
    source: str | None
    to: str
    digest: str
    state: State
    check: str | None = None
    architecture: str | None = None
    variant: str | None = None
    zoo: str | None = None
    classes: int | None = None
    distance: float | None = None
    limit: float | None = None
    port: str | None = None
    code: str | None = None
    message: str | None = None
    seconds: float | None = None
    peak: int | None = None
    attempts: int = 0
    porter: str | None = None

    @classmethod
    def of(cls, job: Job, state: State, **known: Any) -> JobResult:
        """Return the result of a job that this version of porter ran, or that waits.

        Args:
            known: further fields.
        """
        version = None if state == "waiting" else __version__
        return cls(job.name, job.subject, job.source, job.to, job.digest, state, porter=version, **known)

    @classmethod
    def of_record(cls, job: Job, record: Mapping[str, Any], **known: Any) -> JobResult:
        """Return the result of a job that is done, from what its program prints: that of
        `porter convert --json`, or less of it.
        """
        parity = record.get("parity") or {}
        distances = [node["rel_l2"] for node in parity.get("nodes", ())]
        facts = {name: record.get(name) for name in ("check", "architecture", "variant", "zoo", "classes")}
        worst = max(distances, default=None)
        where = f"{PORTS}/{job.name}" if "port" in record else None
        return cls.of(job, "done", distance=worst, limit=parity.get("limit"), port=where, **facts, **known)

    @property
    def is_final(self) -> bool:
        """Whether another run is not needed, as long as the line and its files are the same. What another
        version of porter refused, this one may port.
        """
        is_refused = self.state == "refused" and self.porter == __version__
        return self.state == "done" or (is_refused and self.code not in _PASSING)

    @property
    def row(self) -> dict[str, Any]:
        """The result as a line of the tables."""
        return {name: getattr(self, name) for name in _LISTED}


def result_file(folder: Path, job: Job) -> Path:
    """Return the file of a job's result."""
    return folder / RESULTS / f"{job.name}.json"


def write_result(folder: Path, job: Job, result: JobResult) -> None:
    """Write the result of a job, whole or not at all."""
    write_whole(result_file(folder, job), json.dumps(asdict(result), indent=1))


def read_result(folder: Path, job: Job) -> JobResult:
    """Return what became of a job; `waiting` if it did not end, if the line or its files have changed since,
    or if its port is gone.
    """
    waiting = JobResult.of(job, "waiting")
    try:
        stated = json.loads(result_file(folder, job).read_bytes())
        result = JobResult(**stated)
    except (OSError, ValueError, TypeError):  # it is not there, or of another porter
        return waiting
    stands = result.port is None or (folder / result.port / RECORD).is_file()
    return result if result.digest == job.digest and stands else waiting


def write_tables(folder: Path, jobs: Sequence[Job]) -> tuple[Path, tuple[JobResult, ...]]:
    """Write what became of all jobs of a list, in its order, as CSV, JSON and a page.

    Returns:
        The path of the CSV, and the results.
    """
    results = tuple(read_result(folder, job) for job in jobs)
    rows = [result.row for result in results]
    text = io.StringIO()
    writer = csv.DictWriter(text, _LISTED, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    table = folder / f"{_TABLE}.csv"
    write_whole(table, text.getvalue())
    write_whole(folder / f"{_TABLE}.json", json.dumps(rows, indent=1))
    write_whole(folder / f"{_TABLE}.html", batch_page(rows, STATES))
    return table, results
