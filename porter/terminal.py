"""The terminal: what is printed and how the command ends, whatever ends it."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import typer
from typer.exceptions import Abort, TyperException

from porter.errors import FileError, PorterError
from porter.escaping import escaped

EX_SOFTWARE = 70
"""The exit status of a fault of porter's own (sysexits.h): neither a failed check nor bad input."""
INTERRUPTED, BROKEN_PIPE = 130, 141
"""As shells report what SIGINT and SIGPIPE ended: the latter where nobody reads the output any more, as behind `| head`."""


def show(what: list[str] | dict[str, Any]) -> None:
    """Lines for people, or an object as JSON, which has an escape for all but ASCII's printable characters."""
    if isinstance(what, dict):
        write(json.dumps(what, indent=1, allow_nan=False))
    else:
        say(what)


def say(lines: Iterable[str], err: bool = False) -> None:
    """The one way to a terminal: the lines have names in them out of files and recipes, which may hold escape sequences."""
    for line in lines:
        write(escaped(line), err)


def write(text: str, err: bool = False) -> None:
    """Text of porter's own, and a line's end. Where nobody reads it any more, the command ends without a word.

    Raises:
        FileError: standard output cannot be written.
    """
    stream = sys.stderr if err else sys.stdout
    try:
        typer.echo(text, file=stream)
    except OSError as error:
        # When Python ends it writes what the stream still holds, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(BROKEN_PIPE)
        if not err:
            raise FileError(f"cannot be written: {error.strerror}", where=stream.name) from None


def _fail(code: str, message: str, where: str | None, next: str | None, status: int) -> NoReturn:
    """Reports one error, as JSON where the arguments ask for it; of torchrun's processes only the first one writes that."""
    if "--json" in sys.argv and os.environ.get("RANK", "0") == "0":
        show({"error": {"code": code, "message": message, "where": where, "next": next}})
    else:
        first, *more = PorterError(message, where=where, next=next).lines()
        say([f"error: {first}", *more], err=True)
    sys.exit(status)


@contextmanager
def noted_interrupts() -> Iterator[list[int]]:
    """Gives a list that is empty until Ctrl-C comes. Its exception does not always arrive: the compiled part of numpy raises an
    ImportError instead when it is interrupted while it is imported.
    """
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        signal.default_int_handler(number, frame)

    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # in a shell's background job it is ignored, and stays so
        signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


def end_with(error: BaseException) -> NoReturn:
    """Reports what ended the command, with the exit status that belongs to it."""
    if isinstance(error, PorterError):
        _fail(error.code, error.message, error.where, error.next, error.status)
    if isinstance(error, TyperException):
        _fail("usage", error.format_message(), None, "see porter --help", 2)
    if isinstance(error, Abort | KeyboardInterrupt):
        _fail("interrupted", "interrupted", None, None, INTERRUPTED)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        _fail("file", f"cannot be written: {error.strerror}", error.filename, None, FileError.status)
    if "PORTER_DEBUG" in os.environ:
        raise error
    _fail("internal", f"{type(error).__name__}: {error}", None, "a fault of porter's; PORTER_DEBUG=1 shows where", EX_SOFTWARE)
