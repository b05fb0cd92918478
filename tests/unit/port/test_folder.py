"""port.json: its keys, and what is no record."""

import json
from pathlib import Path

import pytest

from porter.base.errors import FileError
from porter.port import Facts, Record, read_port
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
