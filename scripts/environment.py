"""Goes on in an environment that has porter: the one that runs the script, otherwise the one that
scripts/environment makes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def enter() -> None:
    """Makes porter and the tests' functions importable, if need be by starting the script again in .venv."""
    try:
        distribution("zoo-porter")
    except PackageNotFoundError:
        subprocess.run([ROOT / "scripts" / "environment"], check=True, stdout=sys.stderr)
        python = ROOT / ".venv" / "bin" / "python"
        os.execv(python, [str(python), *sys.argv])
    sys.path.insert(0, str(ROOT))
