"""The `porter` command as a batch runs it (porter.batch): it ends with the process that began it, as every
program of a batch has to.

A batch may be killed at any moment, and what it began would go on and write where the next batch does. So
this process watches its standard input, a pipe that nobody writes to: its other end closes with the batch.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from porter.cli.app import main


def end_with_parent() -> None:
    """Begin to wait for the end of standard input, which kills this process and those that it began."""
    threading.Thread(target=_wait_for_end, daemon=True).start()


def _wait_for_end() -> None:
    """Wait for the end of standard input, then kill this process and, where the system has groups of
    processes, those that it began.
    """
    while os.read(0, 1):  # sys.stdin's lock would be missed by Python as it ends
        pass
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    end_with_parent()
    sys.argv[0] = "porter"
    main()
