"""A run of scripts/parity that is killed goes on, and every row stands once."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import date
from pathlib import Path

from tests.support.checkout import ROOT, commit
from tests.support.parity_rows import read_rows

SLIM, TIMM = "mobilenet_v1_0.25/slim", "resnet18/timm"
CHOSEN = [f"{SLIM}/torch", f"{SLIM}/onnx", f"{TIMM}/torch", f"{TIMM}/mlx", f"{TIMM}/caffe"]
FIGURES = {"reference": "standin", "used": 3, "float64_worst": 2e-15, "float32_logits": 3e-7}
PROGRAM = f"""
import os, pathlib, signal, sys, time
from unittest.mock import Mock
sys.modules["tests.support.weights_files"] = Mock()  # which imports torch
from tests.support import parity_rows

def compare(weights, source, framework, out):
    name = f"{{sys.argv[3]}}/{{sys.argv[5]}}/{{framework}}"
    with pathlib.Path(sys.argv[1]).with_name("begun.txt").open("a+") as begun:
        print(name, file=begun, flush=True)
        begun.seek(0)
        if framework == "onnx" and begun.read().split().count(name) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.3)
    if framework == "caffe":
        raise parity_rows.PaddingError("no such pads", where="stem/conv")
    return {{"ok": True, **{FIGURES}}}

parity_rows.zoos_source = Mock()
parity_rows._compare = compare
parity_rows.main()
"""
"""The program of the jobs, with figures that nobody measured. It is killed at the row for ONNX, once."""
SCRIPT = """
import pathlib, runpy, sys
folder = pathlib.Path(sys.argv.pop(1))
main = runpy.run_path("scripts/parity")["main"]
files = {"RECORDS": folder / "rows.jsonl", "PAGE": folder / "page.md", "PROOFS": folder / "proofs.json"}
main.__globals__.update(files, PROGRAM=(sys.executable, str(folder / "program.py")))
main()
"""
"""The script, which writes into a folder."""


def begin(folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "scripts")))}
    command = [sys.executable, "-c", SCRIPT, str(folder), "--workers", "1", *CHOSEN]
    return subprocess.Popen(command, cwd=ROOT, env=environment)


def test_kills_of_a_worker_and_of_the_whole_leave_the_rows_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "rows.jsonl").touch()
    first = begin(tmp_path)
    while len(stood := read_rows(tmp_path / "rows.jsonl")) < 3:
        time.sleep(0.02)
        assert first.poll() is None
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert len(stood) < len(CHOSEN) and begin(tmp_path).wait() == 0

    rows = [row | {"seconds": 0} for row in read_rows(tmp_path / "rows.jsonl").values()]
    usual = {"seconds": 0, "date": date.today().isoformat(), "commit": commit()}
    refused = {"ok": False, "refused": True, "error": "stem/conv: no such pads"}
    assert rows == [
        {"row": name, **(refused if name.endswith("caffe") else {"ok": True, **FIGURES}), **usual}
        for name in CHOSEN
    ]
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == len(CHOSEN)
    page = runpy.run_path(str(ROOT / "scripts" / "parity"))["page"]
    assert (tmp_path / "page.md").read_text() == page({row["row"]: row for row in rows})
    begun = Counter((tmp_path / "begun.txt").read_text().split())
    assert {name: begun[name] for name in stood} == dict.fromkeys(stood, 1) | {f"{SLIM}/onnx": 2}
