"""port.json: its keys."""

from porter.port import Facts, Record
from porter.port.folder import ORDER


def test_every_key_has_its_place() -> None:
    assert sorted(ORDER) == sorted(Record.model_fields) and set(Facts.model_fields) < set(ORDER)
