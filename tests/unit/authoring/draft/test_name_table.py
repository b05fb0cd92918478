"""Tables of layers' names."""

from __future__ import annotations

from porter.authoring.draft.name_table import draft_names


def test_a_pattern_that_names_all_of_its_paths_wrongly_is_no_rule() -> None:
    names = {"conv1": "c01", "conv2": "c02"}
    assert draft_names(names, set(names), list(names)) == names


def test_more_counted_numbers_than_letters_have_names() -> None:
    paths = ["/".join(f"x{row * place}" for place in range(1, 12)) for row in range(1, 6)]
    names = {path: path.replace("/", ".") for path in paths}
    (table,) = draft_names(names, set(names), paths).items()
    assert table[0].endswith("x{n9}/x{n10}") and table[1].endswith("x{n9}.x{n10}")


def test_numbers_of_any_length_are_read() -> None:
    long = "7" * 5_000
    names = {f"conv{number}": f"layer{long}{number}" for number in range(5)}
    assert draft_names(names, set(names), list(names)) == names
