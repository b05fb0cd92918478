"""Work ahead: in order, bounded, and its errors arrive where the item would have."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from porter.data.pipeline.ahead import map_ahead, take_ahead


def test_a_function_is_applied_in_order_and_no_further_ahead_than_told() -> None:
    begun: list[int] = []
    with ThreadPoolExecutor(4) as executor:
        results = map_ahead(executor, lambda item: begun.append(item) or item * item, range(20), 3)
        found = []
        for position, result in enumerate(results):
            found.append(result)
            assert max(begun) <= position + 3
    assert found == [item * item for item in range(20)]


def test_items_are_taken_in_order_and_no_further_ahead_than_told() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(20):
            taken.append(item)
            yield item

    with ThreadPoolExecutor(1) as executor:
        found = []
        for position, item in enumerate(take_ahead(executor, items(), 2)):
            found.append(item)
            assert max(taken) <= position + 2
    assert found == list(range(20))


def test_the_next_item_is_made_while_the_last_is_used() -> None:
    second = Event()

    def items() -> Iterator[int]:
        yield 1
        second.set()
        yield 2

    with ThreadPoolExecutor(1) as executor:
        ahead = take_ahead(executor, items(), 1)
        assert next(ahead) == 1
        assert second.wait(10)


def test_an_error_arrives_in_its_turn() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("two")

    with ThreadPoolExecutor(1) as executor:
        ahead = take_ahead(executor, items(), 2)
        assert next(ahead) == 1
        with pytest.raises(ValueError, match="two"):
            next(ahead)
        mapped = map_ahead(executor, lambda item: 1 // item, [1, 0], 1)
        assert next(mapped) == 1
        with pytest.raises(ZeroDivisionError):
            next(mapped)
