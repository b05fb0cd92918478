from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from porter.base.errors import UsageError
from porter.evaluation.distributed import Process, join_run, this_process
from tests.support.checkout import ROOT

PROGRAM = """
import os, sys
from porter.base.errors import PorterError, UsageError
from porter.evaluation.distributed import join_run, this_process

process = this_process()
for what, port in zip(sys.argv[1::2], sys.argv[2::2]):
    os.environ["MASTER_PORT"] = port
    try:
        with join_run(process, timeout_s=20) as gather:
            if process.rank == 1 and what == "refuses":
                raise UsageError("no such thing")
            if process.rank == 1 and what == "dies":
                os._exit(9)
            print(gather({"rank": process.rank}), flush=True)
    except PorterError as error:
        print(type(error).__name__, error, flush=True)
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def run_two(program: list[str], cwd: Path) -> list[tuple[int, str]]:
    """Two processes as torchrun starts them: exit status and output of each."""
    port = free_port()
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environment = {**os.environ, **meeting, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen(
            [sys.executable, *program],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=cwd,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in running]
    return [(process.returncode, output) for process, output in zip(running, outputs, strict=True)]


def test_one_process_without_torchrun() -> None:
    assert this_process({}) == Process() and Process().leads and Process().device("cuda") == "cuda"
    with join_run(Process()) as gather:
        assert gather("mine") == ["mine"]


def test_torchruns_variables() -> None:
    process = this_process({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"})
    assert process == Process(5, 8, 1, 4) and not process.leads
    assert process.device("cuda") == "cuda:1" and process.device("cpu") == "cpu"


@pytest.mark.parametrize(
    "variables", [{"RANK": "2", "WORLD_SIZE": "2"}, {"WORLD_SIZE": "two"}, {"WORLD_SIZE": "0"}]
)
def test_variables_that_do_not_fit(variables: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        this_process(variables)


def test_all_learn_what_each_found_and_how_one_ends(tmp_path: Path) -> None:
    """Two processes meet three times: both find something, then one refuses, and then it dies."""
    start = time.monotonic()
    meetings = (word for what in ("gathers", "refuses", "dies") for word in (what, str(free_port())))
    (status, output), (killed, other) = run_two(["-c", PROGRAM, *meetings], tmp_path)
    found, refused, ended = output.splitlines()
    assert (
        found == "[{'rank': 0}, {'rank': 1}]"
        and refused == "PorterError process 1 of 2 failed: no such thing"
    )
    assert ended.startswith("PorterError another process of this run ended")
    assert other.splitlines() == [found, "UsageError no such thing"]
    assert (status, killed) == (0, 9) and time.monotonic() - start < 200
