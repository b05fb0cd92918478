"""scripts/throughput runs and prints its ratios; how large they are is for a person to judge, on an idle
machine.
"""

import os
import re
import subprocess
import sys

import pytest

from tests.support.checkout import ROOT


@pytest.mark.full
def test_both_rows_have_a_ratio_for_both_passes() -> None:
    command = [sys.executable, "scripts/throughput", "--generate", "64", "--workers", "2", "--rounds", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    print(f"\n{done.stdout}")
    for row in ("pixels", "normalised"):
        line = next(line for line in done.stdout.splitlines() if line.startswith(row))
        assert all(float(ratio) > 0 for ratio in re.findall(r"x +([\d.]+)", line)) and line.count(" x ") == 2
