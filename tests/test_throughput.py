"""scripts/throughput runs, and shows what it promises: no slower than a plain loader at first, several times faster later."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.full
def test_the_pipeline_is_faster_than_a_plain_loader() -> None:
    command = [sys.executable, "scripts/throughput", "--generate", "256", "--workers", "2", "--rounds", "3"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    print(f"\n{done.stdout}")
    for row in ("pixels", "normalised"):
        first, cached = map(
            float, re.findall(r"x +([\d.]+)", next(line for line in done.stdout.splitlines() if line.startswith(row)))
        )
        assert first >= 1
        assert cached >= 5
