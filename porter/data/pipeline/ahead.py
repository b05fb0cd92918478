"""Work that is done before its result is asked for, in order and at most a given number of items ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def mapped_ahead(
    executor: Executor, function: Callable[[T], R], items: Iterable[T], depth: int
) -> Iterator[R]:
    """What `function` makes of each item, computed at most `depth` items ahead."""
    waiting: deque[Future[R]] = deque()
    for item in items:
        waiting.append(executor.submit(function, item))
        if len(waiting) > depth:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def taken_ahead(executor: Executor, items: Iterator[T], depth: int) -> Iterator[T]:
    """The items, which `executor` takes at most `depth` ahead, in several threads only where `depth` is 1."""
    waiting = deque(executor.submit(_next, items) for _ in range(depth))
    while item := waiting.popleft().result():
        waiting.append(executor.submit(_next, items))
        yield from item


def _next(items: Iterator[T]) -> list[T]:
    """The next item, or none."""
    return list(islice(items, 1))
