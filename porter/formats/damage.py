"""What reading a damaged file raises, as one error."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from porter.base.errors import FileError, first_line

_ERRORS_OF_DAMAGE: tuple[type[Exception], ...] = (
    ValueError,
    TypeError,
    IndexError,
    RecursionError,
    ArithmeticError,
    OSError,
    struct.error,
)


ERRORS_OF_JSON = (AttributeError,)
"""Further errors of reading damaged JSON, whose parts may be of any type."""


@contextmanager
def refusing_damage(
    path: Path | str,
    next: str = "fetch it again",
    message: str = "the model is damaged",
    further: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Raise FileError for the errors that reading a damaged file raises, and for the `further` ones: it says
    the message, and what the error says first. porter's own errors pass.
    """
    try:
        yield
    except _ERRORS_OF_DAMAGE + further as error:
        raise FileError(f"{message}: {first_line(error)}", where=path, next=next) from None
