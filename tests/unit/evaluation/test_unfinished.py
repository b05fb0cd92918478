"""What is kept of runs that were ended, and for how long."""

import os
from pathlib import Path

import numpy as np
import pytest

from porter.evaluation import unfinished
from porter.evaluation.distributed import Process
from porter.evaluation.measuring import Measured
from porter.evaluation.photo_options import Options
from porter.evaluation.scoring import Scored

PART = [Measured(Scored({}, np.array([True, False]), {}, False, 1.0))]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path))


def file_of(rank: int, batch_size: int = 1) -> Path:
    return unfinished.file_of_pass([], [], Options(batch_size=batch_size), Process(rank, 12))


def test_every_process_of_a_run_keeps_its_part() -> None:
    files = [file_of(rank) for rank in range(12)]
    assert len({*files}) == 12 and all(unfinished.keep(file, PART) for file in files)
    assert all(unfinished.read_kept(file, 2) for file in files)


def test_the_oldest_pass_goes_with_the_parts_of_all_its_processes() -> None:
    for number in range(1, 11):
        for rank in range(3):
            file = file_of(rank, number)
            assert unfinished.keep(file, PART)
            os.utime(file, (number, number))  # what is written next is never the oldest
    left = [number for number in range(1, 11) for rank in range(3) if file_of(rank, number).exists()]
    assert left == [number for number in range(3, 11) for _ in range(3)]


def test_a_pass_is_kept_though_another_process_removes_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 9):
        assert unfinished.keep(file_of(0, number), PART)
    unlink = Path.unlink

    def twice(file: Path, missing_ok: bool = False) -> None:
        if file.suffix == ".json":
            unlink(file)
        unlink(file, missing_ok)

    monkeypatch.setattr(Path, "unlink", twice)
    assert unfinished.keep(file_of(0, 9), PART) and unfinished.read_kept(file_of(0, 9), 2)


@pytest.mark.parametrize("text", ["{", "[1]", "[[]]", '[{"at": [], "models": []}]', "[" * 100_000])
def test_what_was_damaged_is_not_gone_on_with(text: str) -> None:
    file_of(0).parent.mkdir(parents=True)
    file_of(0).write_text(text)
    assert unfinished.read_kept(file_of(0), 2) is None
