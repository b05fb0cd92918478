"""What messages have to know of the call that runs: who reads them, and what the call was asked for. Each
thread has its own, so that two threads may call the API; the threads that porter starts have that of the
thread that starts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar

_is_program = ContextVar("_is_program", default=False)
"""Whether a program in Python reads the messages, or somebody who types commands."""
_asked: ContextVar[tuple[Mapping[str, object], ...]] = ContextVar("_asked", default=())
"""The options of the functions that run, the innermost last."""


@contextmanager
def read_by_a_program() -> Iterator[None]:
    """Let messages name options and commands as Python has them, inside this context; otherwise as they are
    typed.
    """
    before = _is_program.set(True)
    try:
        yield
    finally:
        _is_program.reset(before)


def for_a_program() -> bool:
    """Return whether a program in Python reads the messages."""
    return _is_program.get()


@contextmanager
def asked_meanwhile(values: Mapping[str, object]) -> Iterator[None]:
    """Keep what the running command was asked, so that messages can repeat it."""
    before = _asked.set((*_asked.get(), values))
    try:
        yield
    finally:
        _asked.reset(before)


def asked_for() -> Iterator[Mapping[str, object]]:
    """Yield the options of the functions that run, the innermost first."""
    return reversed(_asked.get())


class Threads(ThreadPoolExecutor):
    """Threads whose messages are for the reader of the thread that starts them."""

    def __init__(self, count: int) -> None:
        super().__init__(count, initializer=_begin, initargs=(_is_program.get(), _asked.get()))


def _begin(is_program: bool, asked: tuple[Mapping[str, object], ...]) -> None:
    """Let this thread's messages be as those of the thread that starts it."""
    _is_program.set(is_program)
    _asked.set(asked)
