"""A batch on a Ray cluster of two nodes of this machine, one of whose workers is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

pytest.importorskip("ray", reason="ray is not installed: pip install 'ray>=2.40'")
pytestmark = pytest.mark.full
PORT = 6399
ADDRESS = f"127.0.0.1:{PORT}"
PATHS = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
ENVIRONMENT = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_ADDRESS": ADDRESS, "PYTHONPATH": PATHS}
STANDIN = """
import json, pathlib, sys, time
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
time.sleep(2)
out.mkdir(exist_ok=True)
(out / "port.json").write_text("{}")
facts = dict.fromkeys(("architecture", "variant", "zoo", "classes"))
print(json.dumps({"parity": None, "check": "passed", "port": str(out), **facts}))
"""
BATCH = """
import sys
from porter.base.commands import BatchOptions
from porter.batch.batch import batch
made = batch(BatchOptions("list.csv", sys.argv[1], on=sys.argv[2]), (sys.executable, "standin.py"))
assert made.ok and made.counts["done"] == 8, made
"""


def ray(*words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "ray.scripts.scripts", *words],
        env={name: value for name, value in ENVIRONMENT.items() if name != "RAY_ADDRESS"},
        check=True,
        capture_output=True,
    )


@pytest.fixture
def cluster() -> Iterator[None]:
    usual = ("--num-cpus", "1", "--object-store-memory", "100000000", "--disable-usage-stats")
    ray("start", "--head", "--port", str(PORT), *usual)
    try:
        ray("start", "--address", ADDRESS, *usual)
        yield
    finally:
        ray("stop", "--force")


@pytest.mark.usefixtures("cluster")
def test_two_nodes_give_the_table_of_one_process_though_a_worker_is_killed(tmp_path: Path) -> None:
    (tmp_path / "standin.py").write_text(STANDIN)
    (tmp_path / "list.csv").write_text("\n".join(("subject", *(f"m{n}.onnx" for n in range(8)))))
    command = [sys.executable, "-c", BATCH]
    begun = subprocess.Popen([*command, "ray", "ray"], cwd=tmp_path, env=ENVIRONMENT)
    while len([*(tmp_path / "ray" / "logs").glob("*.txt")]) < 3:
        time.sleep(0.1)
        assert begun.poll() is None
    workers = subprocess.run(["pgrep", "-f", "ray::run_on_node"], capture_output=True, text=True).stdout
    os.kill(int(workers.split()[0]), signal.SIGKILL)
    assert begun.wait(300) == 0
    subprocess.run([*command, "local", "local"], cwd=tmp_path, env=ENVIRONMENT, check=True)
    tables = {(tmp_path / where / "table.csv").read_text() for where in ("ray", "local")}
    assert len(tables) == 1
