"""The processes that decode.

They are plain processes, not multiprocessing's: those run the caller's main module again, which breaks a
script without a `__name__` guard and would import torch into every worker.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import LifoQueue
from subprocess import PIPE
from typing import Any

from porter.base.errors import FileError, signal_name
from porter.base.options import CACHE, WORKERS
from porter.data.photos import Photo
from porter.data.pipeline.making import make_chunk
from porter.data.pipeline.worker import make_job
from porter.data.preprocess import Preprocess

_Process = subprocess.Popen[bytes]
_MAIN = "from porter.data.pipeline.worker import main; main()"


class WorkerEnded(FileError):
    """A worker was ended by the system or by a fault of a decoder, while it had the photos that `where`
    names.
    """


class Workers:
    """Up to `count` processes, started when there is something to decode; if `count` is 0, the calling thread
    decodes.
    """

    def __init__(self, count: int, geometry: Preprocess) -> None:
        self._count, self._geometry = count, geometry
        self._running: list[_Process] = []
        self._stopped = False
        # The last one used is taken first, so that few are started.
        self._free: LifoQueue[_Process | None] = LifoQueue()
        for _ in range(count):
            self._free.put(None)

    def make(self, photos: Sequence[Photo], path: Path) -> None:
        """Make the chunk of these photos, as `make_chunk` does, when a worker is free. Called from any number
        of threads.

        Raises:
            WorkerEnded: another worker takes its place.
            FileError: `path` cannot be written.
        """
        if self._count:
            failure = self._ask(photos, path)
        else:
            failure = make_chunk([photo.place for photo in photos], self._geometry, path)
        if failure is not None:
            raise FileError(
                f"resized photos cannot be written: {failure}",
                where=path.parent,
                next=f"free some space, or choose another {CACHE}",
            )

    def _ask(self, photos: Sequence[Photo], path: Path) -> str | None:
        """Let a free worker make a chunk, and return why the chunk could not be written; None if it was.

        Raises:
            WorkerEnded: the worker ended meanwhile; a new one will be started in its place.
        """
        process = self._free.get()
        try:
            if self._stopped:
                raise FileError("decoding was stopped")
            process = process or self._start()
            answer = _send(process, make_job([photo.place for photo in photos], path))
            if not answer:
                ended, process = process, None
                raise _ended_error(ended, photos)
        finally:
            self._free.put(process)
        failure: str | None = json.loads(answer)
        return failure

    def stop(self) -> None:
        """End the processes. Their unfinished chunks are lost, and `make` fails from now on."""
        self._stopped = True
        for process in self._running:
            process.terminate()
            process.wait()

    def close(self) -> None:
        """Stop the processes for good, once no thread asks any more."""
        self.stop()
        for process in self._running:
            _close_pipes(process)

    def _start(self) -> _Process:
        """Start a process that decodes, the program of porter.data.pipeline.worker."""
        # -P and the same path: a worker imports what this process would import, and nothing from the current
        # folder. Workers multiply no matrices, and OpenBLAS would start a thread per core in each. They have
        # a session of their own: Ctrl-C reaches only this process, which then stops them.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-P", "-c", _MAIN, json.dumps(asdict(self._geometry))]
        try:
            process = subprocess.Popen(
                command, stdin=PIPE, stdout=PIPE, env=environment, start_new_session=True
            )
        except OSError as error:
            raise FileError(
                f"no process that decodes can be started: {error.strerror}", next=f"use fewer {WORKERS}"
            ) from None
        self._running.append(process)
        return process


def _send(process: _Process, message: Any) -> bytes:
    """Send a message to a process, and return its answer, a line; empty if the process has ended."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
    except OSError:
        return b""
    return process.stdout.readline()


def _close_pipes(process: _Process) -> None:
    """Close the input and the output of a process that has ended."""
    for pipe in filter(None, (process.stdin, process.stdout)):
        with suppress(OSError):  # a job that nobody read
            pipe.close()


def _ended_error(process: _Process, photos: Sequence[Photo]) -> WorkerEnded:
    """Return the error that a worker was ended while it had these photos, with the signal or the status."""
    status = process.wait()
    _close_pipes(process)
    how = f"by the system ({signal_name(-status)})" if status < 0 else f"with status {status}"
    return WorkerEnded(
        f"a process that decodes photos was ended {how}",
        where=f"{photos[0].name} to {photos[-1].name}",
        next=f"use fewer {WORKERS} if memory ran out; otherwise these photos crash the decoder",
    )
