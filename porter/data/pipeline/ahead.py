"""Work that is done before its result is asked for, in order and at most a given number of items ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_ahead(executor: Executor, function: Callable[[T], R], items: Iterable[T], depth: int) -> Iterator[R]:
    """Yield the results of `function` for the items, in order. `executor` computes at most `depth` of them
    ahead of the one that is asked for.
    """
    waiting: deque[Future[R]] = deque()
    for item in items:
        waiting.append(executor.submit(function, item))
        if len(waiting) > depth:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def take_ahead(executor: Executor, items: Iterator[T], depth: int) -> Iterator[T]:
    """Yield the items of an iterator; `executor` takes at most `depth` of them ahead, because making one may
    take long. An executor of several threads needs a depth of 1, because two threads must not take from
    `items` at once.
    """
    waiting = deque(executor.submit(_next_or_none, items) for _ in range(depth))
    while item := waiting.popleft().result():
        waiting.append(executor.submit(_next_or_none, items))
        yield from item


def _next_or_none(items: Iterator[T]) -> list[T]:
    """Return a list with the next item, or an empty list after the last."""
    return list(islice(items, 1))
