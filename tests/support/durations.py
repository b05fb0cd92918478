"""How long each file of tests takes, as the suite measured it: what takes longest starts first, and the quick
tier lacks it.

`scripts/test --record-durations` writes durations.json anew for the files that it runs.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict

import pytest

from tests.support.checkout import ROOT

FILE = ROOT / "tests" / "durations.json"
"""Seconds by file, of those that take a second or more; null is long, and not measured yet."""


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def recorded() -> dict[str, float]:
    known = json.loads(FILE.read_text(encoding="utf-8"))
    return {file: math.inf if seconds is None else seconds for file, seconds in known.items()}


def longest_first(items: list[pytest.Item]) -> None:
    """So that no worker is still in a long file when the others have done the rest."""
    seconds = recorded()
    items.sort(key=lambda item: -seconds.get(file_of(item.nodeid), 0.0))


class Recorder:
    """A plugin of the process that hears of every test, whichever worker ran it."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[file_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        seconds = recorded() | {file: round(total, 1) for file, total in self.seconds.items()}
        longest = sorted(
            (file for file in seconds if (ROOT / file).is_file() and seconds[file] >= 1),
            key=lambda file: -seconds[file],
        )
        kept = {file: None if math.isinf(seconds[file]) else seconds[file] for file in longest}
        FILE.write_text(json.dumps(kept, indent=0) + "\n", encoding="utf-8")
