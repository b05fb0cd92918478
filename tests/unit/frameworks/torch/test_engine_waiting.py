"""How torch's threads wait."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("own", [None, "ACTIVE"])
def test_threads_of_torch_sleep_while_they_wait_unless_the_user_says_otherwise(own: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if own is not None:
        environment["OMP_WAIT_POLICY"] = own
    code = "import porter.frameworks.torch.engine, os; print(os.environ['OMP_WAIT_POLICY'])"
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == (own or "PASSIVE")
