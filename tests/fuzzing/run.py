"""Many inputs of one reader, read in a child with limits of memory and of time, so that none of them ends the
run.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.fuzzing.more_seeds import MORE
from tests.fuzzing.seeds import Seed, seed_in, seeds_of
from tests.fuzzing.trial import FIND, READ, REFUSED, Place, mutant, tried

MOST_SECONDS = 20.0
MOST_MEGABYTES = 300
"""Beside three times the bytes of the tensors."""
_ADDRESSES = 8 << 30
"""Bytes of addresses that a child may take beside those that it has: what protects the machine, not what is
measured.
"""
_FORK = multiprocessing.get_context("fork")
_FRESH: Any = multiprocessing.get_context("spawn")
Read = Callable[[Path], int]


@dataclass(frozen=True)
class Find:
    """An input that was neither read nor refused, with what happened."""

    index: int
    what: str


@dataclass
class Tally:
    """What became of the inputs of a reader. Seconds and megabytes are the largest of one input."""

    reader: str
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys((READ, REFUSED, FIND), 0))
    finds: list[Find] = field(default_factory=list)
    seconds: float = 0.0
    megabytes: int = 0

    def note(self, index: int, state: str, what: str, seconds: float, megabytes: int) -> None:
        self.counts[state] += 1
        self.seconds, self.megabytes = max(self.seconds, seconds), max(self.megabytes, megabytes)
        if state == FIND:
            self.finds.append(Find(index, what))

    @property
    def inputs(self) -> int:
        return sum(self.counts.values())

    def row(self) -> str:
        shown = (self.inputs, *self.counts.values(), f"{self.seconds:.2f} s", f"{self.megabytes} MB")
        return " | ".join((self.reader.ljust(12), *(str(each).rjust(9) for each in shown)))


HEADER = " | ".join(
    (
        "reader".ljust(12),
        *(word.rjust(9) for word in ("inputs", READ, REFUSED, "finds", "slowest", "memory")),
    )
)


def made_seeds(reader: str) -> list[Seed]:
    """The seeds of a reader, and those of every op, made in a process of their own: frameworks that have run
    survive no fork.
    """
    with _FRESH.Pool(1) as pool, tempfile.TemporaryDirectory() as folder:
        found: list[Seed] = pool.apply(_made, (reader, folder))
    return found


def _made(reader: str, folder: str) -> list[Seed]:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what frameworks say of themselves
    place = Path(folder)
    more = MORE[reader](place / "more") if reader in MORE else ()
    return [*seeds_of(reader, place / "few"), *(seed_in(path.parent, path) for path in more)]


def run(reader: str, seeds: Sequence[Seed], seed: int, indices: range, read: Read, until: float) -> Tally:
    """Reads the inputs of these numbers, until a time of `time.monotonic`."""
    tally, at = Tally(reader), indices.start
    while at < indices.stop and time.monotonic() < until:
        at = _in_a_child(tally, seeds, seed, range(at, indices.stop), read, until) + 1
    return tally


def _in_a_child(
    tally: Tally, seeds: Sequence[Seed], seed: int, indices: range, read: Read, until: float
) -> int:
    """The number of the last input that the child took; it is ended where one takes too long."""
    ours, theirs = _FORK.Pipe(duplex=False)
    child = _FORK.Process(target=_child, args=(theirs, tally.reader, seeds, seed, indices, read, until))
    child.start()
    theirs.close()
    at, started = indices.start, time.monotonic()
    try:
        while True:
            # The first one imports.
            if not ours.poll(MOST_SECONDS if at > indices.start else 6 * MOST_SECONDS):
                tally.note(at, FIND, f"not ended after {MOST_SECONDS:.0f} s", time.monotonic() - started, 0)
                break
            index, *result = ours.recv()
            if result:
                tally.note(index, *result)
            at, started = index, time.monotonic()
    except EOFError:
        child.join()
        if child.exitcode:
            killed = (
                signal.Signals(-child.exitcode).name
                if child.exitcode < 0
                else f"exit status {child.exitcode}"
            )
            tally.note(at, FIND, f"the process ended: {killed}", time.monotonic() - started, 0)
        else:
            at = indices.stop
    finally:
        child.kill()
        child.join()
    return at


def _child(
    out: Connection, reader: str, seeds: Sequence[Seed], seed: int, indices: range, read: Read, until: float
) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with scratch() as folder:
        place = Place(folder, seeds)
        for path in place.paths:
            tried(read, path)  # imports, and the memory that they take
        resource.setrlimit(resource.RLIMIT_AS, (_taken(0) + _ADDRESSES, resource.RLIM_INFINITY))
        for index in indices:
            if time.monotonic() >= until:
                break
            out.send((index,))
            with place.holding(*mutant(reader, seeds, seed, index)) as path:
                before, begun, least = _peak(), time.monotonic(), _taken(1)
                state, what, stored = tried(read, path)
                seconds, after = time.monotonic() - begun, _peak()
            grown = (after - least) >> 20 if after > before else 0
            if grown > MOST_MEGABYTES + (3 * stored >> 20) and state != FIND:
                state, what = FIND, f"it took {grown} MB for {stored} bytes of tensors"
            out.send((index, state, what if state == FIND else "", seconds, grown))
    out.close()
    os._exit(0)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory, where the system has one."""
    within = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=within if within.is_dir() else None) as folder:
        yield Path(folder)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _taken(which: int) -> int:
    """Bytes of addresses (0), or of memory (1), of this process."""
    return int(Path("/proc/self/statm").read_text().split()[which]) * resource.getpagesize()
