"""Tables of layers' names."""

from __future__ import annotations

from porter.authoring.draft.name_table import draft_names


def test_a_pattern_that_names_all_of_its_paths_wrongly_is_no_rule() -> None:
    names = {"conv1": "c01", "conv2": "c02"}
    assert draft_names(names, set(names), list(names)) == names
