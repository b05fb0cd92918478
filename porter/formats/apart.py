"""A library of others that reads a stranger's file, in a process of its own and within limits.

Nothing of porter is imported here, because this file is also the program that the process runs.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

_BYTES_A_SECOND = 100_000_000
_EXPANSION = 4
"""The most bytes of memory and of output for each byte of the file; trained weights unpack to less than two.
"""


@dataclass(frozen=True)
class Limits:
    """What a process may take beside what its file's bytes allow: seconds, bytes of memory and bytes of what
    it writes.
    """

    seconds: int = 6
    memory: int = 1 << 30
    written: int = 64 << 20


READING = Limits()


def run_apart(
    program: str, arguments: Sequence[str | Path], size: int, library: str, limits: Limits | None = None
) -> None:
    """Run a file of Python that reads `size` bytes, in a process of its own.

    Args:
        program: the path of that Python file.
        arguments: what it is called with.
        library: the name of the library that it uses, for messages.
        limits: what it may take; `READING` where it is None.

    Raises:
        ValueError: the library cannot read them, or takes more than it may.
    """
    limits = limits or READING
    seconds = limits.seconds + size // _BYTES_A_SECOND
    bounds = (seconds + 1, limits.memory + _EXPANSION * size, limits.written + _EXPANSION * size)
    # The system's own bound is for a process whose parent has ended. It comes later, so that the message is
    # always this one's.
    command = [sys.executable, __file__, *map(str, bounds), program, *map(str, arguments)]
    # A library that numpy loads takes memory for each core.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    try:
        process = subprocess.run(
            command, capture_output=True, timeout=seconds, env=environment, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"{library} does not read it in {seconds} seconds") from None
    if process.returncode:
        # A traceback ends with the error itself.
        last_line = (process.stderr.strip().splitlines() or ["it ended"])[-1]
        raise ValueError(f"{library} cannot read it: {shorten(last_line, 400, placeholder=' ...')}")


def _limit_this_process(seconds: int, memory: int, written: int) -> None:
    """Limit the time, the memory and the files of this process; do nothing where the system has no such
    limits, as Windows.
    """
    with suppress(ImportError):
        import resource

        limits = {
            resource.RLIMIT_CPU: seconds,
            resource.RLIMIT_AS: memory,
            resource.RLIMIT_FSIZE: written,
            resource.RLIMIT_CORE: 0,
        }
        for kind, limit in limits.items():
            resource.setrlimit(kind, (limit, limit))


if __name__ == "__main__":
    # Python puts this folder there, whose modules have names of libraries.
    sys.path = [place for place in sys.path if place != str(Path(__file__).parent)]
    _limit_this_process(*map(int, sys.argv[1:4]))
    sys.argv = sys.argv[4:]
    runpy.run_path(sys.argv[0], run_name="__main__")
