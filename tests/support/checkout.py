"""Where porter's own files stand, and of which commit they are."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PHOTO = ROOT / "scripts" / "photos" / "chelsea.png"


def commit() -> str:
    """What is checked out; nothing where the files are no checkout."""
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
