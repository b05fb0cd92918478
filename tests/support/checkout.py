"""Where porter's own files stand."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PHOTO = ROOT / "scripts" / "photos" / "chelsea.png"
