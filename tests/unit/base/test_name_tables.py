"""The order of names with numbers."""

from porter.base.name_tables import natural_order


def test_numbers_are_ordered_by_their_size_whatever_their_length() -> None:
    long = f"output_{'1' * 5_000}"
    assert sorted((long, "output_10", "output_2"), key=natural_order) == ["output_2", "output_10", long]
