"""Readers return what a node gives, and the driver of porter.filegraph.walk keeps it."""

from __future__ import annotations

import re
from pathlib import Path

import porter

FOLDER = Path(porter.__file__).parent


def test_no_reader_writes_what_the_driver_keeps() -> None:
    writes = re.compile(
        r"\b(walk|flow)\.\w+(\[[^]]*\])?(, [\w.]+)* ?[-|+]?= |\.(found|blank|repeated|computed|evaluated|exact)\.(update|pop)\("
    )
    drivers = {FOLDER / "filegraph" / name for name in ("walk.py", "dataflow.py")}
    for file in {*(FOLDER / "filegraph").rglob("*.py"), *(FOLDER / "formats").rglob("*.py")} - drivers:
        assert not writes.search(file.read_text()), file
