"""port.json: its keys, and what is no record."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from porter.base.errors import FileError
from porter.port import OWN_FOLDERS, Facts, Record, folder as port_folder, read_port, update_record
from tests.support.reporting.ports import write_port


def test_what_a_port_is_stands_first_and_what_was_measured_last() -> None:
    keys = list(Record.model_fields)
    assert keys[:5] == ["format", "architecture", "variant", "zoo", "framework"] and keys[-1] == "study"
    assert len(keys) == len(set(keys)) and set(Facts.model_fields) < set(keys)


def test_a_protocol_that_is_none_is_told_with_its_file(tmp_path: Path) -> None:
    folder = write_port(tmp_path / "port")
    record = json.loads((folder / "port.json").read_text())
    record["preprocess"]["size"] = 0
    (folder / "port.json").write_text(json.dumps(record))
    with pytest.raises(FileError, match="'size' must be from 1 to 4096, got 0 at preprocess") as refused:
        read_port(folder, verify_digests=False)
    assert refused.value.where == str(folder / "port.json")


def test_nothing_but_an_activation_is_taken_off(tmp_path: Path) -> None:
    """A proof compares what stands before it."""
    folder = write_port(tmp_path / "port")
    record = json.loads((folder / "port.json").read_text())
    record["activation"] = "concat"
    (folder / "port.json").write_text(json.dumps(record))
    with pytest.raises(FileError, match="activation"):
        read_port(folder, verify_digests=False)


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked")
def test_evaluations_that_end_together_all_stand_in_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, write = write_port(tmp_path / "port"), port_folder.write_record
    before = {path.name for path in folder.iterdir()}

    def slow(*given: Any) -> None:
        locks = {path.name for path in folder.iterdir()} - before
        assert locks and all(OWN_FOLDERS.files.fullmatch(name) for name in locks)
        time.sleep(0.05)
        write(*given)

    monkeypatch.setattr(port_folder, "write_record", slow)
    lines = [{"images": number} for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda line: update_record(folder, "evaluation", {}, line), lines))
    kept = [dict(line) for line in read_port(folder, verify_digests=False).record.evaluations]
    assert sorted(line["images"] for line in kept if line in lines) == [0, 1, 2, 3]
    assert {path.name for path in folder.iterdir()} == before
