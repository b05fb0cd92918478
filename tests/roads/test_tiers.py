"""How the suite runs itself: the quick tier, and the order by what was recorded."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support import durations
from tests.support.durations import Recorder, longest_first
from tests.support.quick import NoFrameworks, NoPython

PARITY, ROOMS, TIERS = "tests/roads/test_parity.py", "tests/unit/test_rooms.py", "tests/roads/test_tiers.py"


def test_a_test_that_imports_a_framework_or_starts_another_python_is_skipped() -> None:
    finder = NoFrameworks()
    spec = finder.find_spec("torch", None)
    assert (
        spec
        and spec.loader is finder
        and not finder.find_spec("torchaudio", None)
        and not finder.find_spec("porter", None)
    )
    with pytest.raises(pytest.skip.Exception, match="no torch"):
        finder.exec_module(ModuleType("torch"))
    with pytest.raises(pytest.skip.Exception, match="no other Python"):
        NoPython([sys.executable, "-c", "pass"])
    with NoPython(["true"]) as other:
        assert other.wait() == 0


def test_what_a_run_took_is_recorded_and_orders_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(durations, "FILE", tmp_path / "durations.json")
    durations.FILE.write_text(json.dumps({PARITY: None, "tests/gone.py": 9.0, ROOMS: 5.0}))
    run: Any = Recorder()
    for nodeid, seconds in ((f"{TIERS}::one", 3.21), (f"{TIERS}::two[a::b]", 4.0), (f"{ROOMS}::one", 0.5)):
        run.pytest_runtest_logreport(SimpleNamespace(nodeid=nodeid, duration=seconds))
    run.pytest_sessionfinish()
    assert list(json.loads(durations.FILE.read_text()).items()) == [(PARITY, None), (TIERS, 7.2)]
    items: list[Any] = [SimpleNamespace(nodeid=f"{file}::one") for file in (ROOMS, TIERS, PARITY)]
    longest_first(items)
    assert [item.nodeid for item in items] == [f"{file}::one" for file in (PARITY, TIERS, ROOMS)]
