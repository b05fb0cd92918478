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
from pathlib import Path

_SECONDS, _BYTES_A_SECOND = 6, 100_000_000
_MOST_MEMORY, _MOST_WRITTEN = 1 << 30, 64 << 20
_EXPANSION = 4
"""How many times as large as its file what is written of it may be; trained weights unpack to less than twice
their bytes.
"""


def run_apart(program: str, arguments: Sequence[str | Path], size: int, library: str) -> None:
    """Runs a file of Python that reads `size` bytes.

    Raises:
        ValueError: the library cannot read them, or takes more than it may.
    """
    seconds = _SECONDS + size // _BYTES_A_SECOND
    # The system's own bound is for a process whose parent has ended. It comes later, so that the message is
    # always this one's.
    command = [sys.executable, __file__, str(size), str(seconds + 1), program, *map(str, arguments)]
    # A library that numpy loads takes memory for each core.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    try:
        ran = subprocess.run(
            command, capture_output=True, timeout=seconds, env=environment, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"{library} does not read it in {seconds} seconds") from None
    if ran.returncode:
        raise ValueError(
            f"{library} cannot read it: {(ran.stderr.strip().splitlines() or ['it ended'])[-1]:.400}"
        )


def _bound(size: int, seconds: int) -> None:
    """Bounds what this process may take, where the system can."""
    with suppress(ImportError):
        import resource

        limits = {
            resource.RLIMIT_CPU: seconds,
            resource.RLIMIT_AS: _MOST_MEMORY + _EXPANSION * size,
            resource.RLIMIT_FSIZE: _MOST_WRITTEN + _EXPANSION * size,
            resource.RLIMIT_CORE: 0,
        }
        for kind, limit in limits.items():
            resource.setrlimit(kind, (limit, limit))


if __name__ == "__main__":
    _bound(*map(int, sys.argv[1:3]))
    sys.argv = sys.argv[3:]
    runpy.run_path(sys.argv[0], run_name="__main__")
