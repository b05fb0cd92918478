"""The packages of examples/, installed as a user installs them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def install_examples(folder: Path) -> Path:
    """Install every package of examples/ into a folder of its own, which is to be on Python's path. Nothing
    is fetched: what builds them, setuptools, is there.
    """
    sources, installed = folder / "sources", folder / "installed"
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    shutil.copytree(EXAMPLES, sources, ignore=ignored)
    packages = sorted(path.parent for path in sources.glob("*/pyproject.toml"))
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", installed, *packages], check=True
    )
    return installed
