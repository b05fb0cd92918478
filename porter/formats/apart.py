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
"""How many times as large as its file what is written of it may be; trained weights unpack to less than twice
their bytes.
"""


@dataclass(frozen=True)
class Limits:
    """What a process may take beside what its file's bytes allow: bytes of memory and of what it writes."""

    seconds: int = 6
    memory: int = 1 << 30
    written: int = 64 << 20


READING = Limits()


def run_apart(
    program: str, arguments: Sequence[str | Path], size: int, library: str, limits: Limits | None = None
) -> None:
    """Runs a file of Python that reads `size` bytes.

    Raises:
        ValueError: the library cannot read them, or takes more than it may.
    """
    limits = limits or READING
    seconds = limits.seconds + size // _BYTES_A_SECOND
    most = (seconds + 1, limits.memory + _EXPANSION * size, limits.written + _EXPANSION * size)
    # The system's own bound is for a process whose parent has ended. It comes later, so that the message is
    # always this one's.
    command = [sys.executable, __file__, *map(str, most), program, *map(str, arguments)]
    # A library that numpy loads takes memory for each core.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    try:
        ran = subprocess.run(
            command, capture_output=True, timeout=seconds, env=environment, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"{library} does not read it in {seconds} seconds") from None
    if ran.returncode:
        said = (ran.stderr.strip().splitlines() or ["it ended"])[-1]
        raise ValueError(f"{library} cannot read it: {shorten(said, 400, placeholder=' ...')}")


def _bound(seconds: int, memory: int, written: int) -> None:
    """Bounds what this process may take, where the system can."""
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
    _bound(*map(int, sys.argv[1:4]))
    sys.argv = sys.argv[4:]
    runpy.run_path(sys.argv[0], run_name="__main__")
