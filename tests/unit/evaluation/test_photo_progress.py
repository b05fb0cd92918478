from __future__ import annotations

import io
import sys
import time

import pytest

from porter.evaluation.photo_progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stderr", "shown", "seen"),
    [(Terminal(), True, True), (Terminal(), False, False), (io.StringIO(), True, False)],
)
def test_a_bar_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, shown: bool, seen: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    with Progress(8, shown) as progress:
        progress.advance(4, 3)
        time.sleep(0.2)  # a bar is drawn ten times a second at most
        progress.advance(4, 1)
    text = stderr.getvalue()
    assert bool(text) == seen
    if seen:
        assert "8/8" in text and "images/s" in text and "top-1 50.00%" in text
