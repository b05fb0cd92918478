"""What reading a damaged file raises, as one error."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from porter.base.errors import FileError, first_line

_DAMAGED: tuple[type[Exception], ...] = (
    ValueError,
    TypeError,
    IndexError,
    RecursionError,
    ArithmeticError,
    OSError,
    struct.error,
)


OF_JSON = (AttributeError,)
"""Further errors of what is read from JSON, whose parts may be of any type."""


@contextmanager
def refusing_damage(
    path: Path,
    next: str = "fetch it again",
    what: str = "the model",
    further: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Raises FileError for what reading a damaged file raises, and for the `further` errors. porter's own
    pass.
    """
    try:
        yield
    except _DAMAGED + further as error:
        raise FileError(f"{what} is damaged: {first_line(error)}", where=path, next=next) from None
