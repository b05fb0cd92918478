"""port.json: its keys."""

from porter.port import Facts, Record


def test_what_a_port_is_stands_first_and_what_was_measured_last() -> None:
    keys = list(Record.model_fields)
    assert keys[:5] == ["format", "architecture", "variant", "zoo", "framework"] and keys[-1] == "study"
    assert len(keys) == len(set(keys)) and set(Facts.model_fields) < set(keys)
