"""The terminal: prints, and ends the command with its status after any error."""

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

from porter.base.errors import FileError, PorterError, RecipeError, escaped

EX_SOFTWARE = 70
"""The exit status of a fault of porter's own (sysexits.h): neither a failed check nor bad input."""
INTERRUPTED, BROKEN_PIPE = 130, 141
"""The statuses that shells report after SIGINT and SIGPIPE. SIGPIPE means that the output pipe is closed: `|
head`.
"""


def show(what: list[str] | dict[str, Any]) -> None:
    """Print what a command says: lines for people, or an object as JSON, which escapes everything but ASCII's
    printable characters.
    """
    if isinstance(what, dict):
        write(json.dumps(what, indent=1, allow_nan=False))
    else:
        say(what)


def say(lines: Iterable[str], err: bool = False) -> None:
    """Print lines, escaped: names from files and recipes may hold escape sequences."""
    for line in lines:
        write(escaped(line), err)


def write(text: str, err: bool = False) -> None:
    """Print porter's own text and a line end. If the output pipe is closed, the command ends without a
    message.

    Raises:
        FileError: standard output cannot be written.
    """
    stream = sys.stderr if err else sys.stdout
    try:
        typer.echo(text, file=stream)
    except OSError as error:
        # When Python ends, it writes the rest of the stream, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(BROKEN_PIPE)
        if not err:
            raise FileError(f"cannot be written: {error.strerror}", where=stream.name) from None


def _fail(error: PorterError, code: str, status: int) -> NoReturn:
    """Report one error, as JSON if the arguments ask for it; under torchrun only the first process writes the
    JSON.
    """
    if "--json" in sys.argv and os.environ.get("RANK", "0") == "0":
        show({"error": {**error.record(), "code": code}})
    else:
        first, *more = error.lines()
        say([f"error: {first}", *more], err=True)
    sys.exit(status)


@contextmanager
def noted_interrupts() -> Iterator[list[int]]:
    """Yield a list that is empty until Ctrl-C, which adds the signal's number. KeyboardInterrupt is not
    always raised: numpy's compiled part raises an ImportError instead if Ctrl-C interrupts its import.
    """
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        signal.default_int_handler(number, frame)

    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # a shell's background job ignores SIGINT, which does not change
        signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


def stems_from_interrupt(error: BaseException | None) -> bool:
    """Return whether Ctrl-C may have raised an error: an interrupted import ends in an ImportError, which may
    be told as a missing framework. A Ctrl-C that porter has handled raises no error that comes later.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt | ImportError):
        error = error.__cause__ or error.__context__
    return error is not None


def end_with(error: BaseException) -> NoReturn:
    """Report the error that ended the command, and exit with its status. Errors of porter are told as they
    are. Others are a wrong command line, Ctrl-C, a disk that is full or fails, a lack of memory, or a fault
    of porter's; with PORTER_DEBUG set, all but the first two and a full disk are raised.
    """
    if isinstance(error, RecipeError) and error.others:
        more = f"{len(error.others)} more: porter recipe check FILE"
        error.next = f"{error.next}; {more}" if error.next else more
    said = f": {error}" if str(error) else ""
    told: PorterError
    match error:
        case PorterError():
            told = error
        case TyperException():
            context = getattr(error, "ctx", None)
            typed = f"see {context.command_path if context else 'porter'} --help"
            _fail(PorterError(error.format_message(), next=typed), "usage", 2)
        case Abort() | KeyboardInterrupt():
            _fail(PorterError(f"interrupted{said}"), "interrupted", INTERRUPTED)
        case OSError(errno=errno.ENOSPC):
            told = FileError(f"cannot be written: {error.strerror}", where=error.filename)
        case _ if "PORTER_DEBUG" in os.environ:
            raise error
        case OSError(filename=str()):
            told = FileError(f"cannot be read or written: {error.strerror}", where=error.filename)
        case MemoryError():
            next = "close other programs, or use a machine that has more"
            told = PorterError(f"there is not enough memory{said}", next=next)
        case _:
            next = "this is a fault of porter's: report it with what PORTER_DEBUG=1 shows"
            _fail(PorterError(f"{type(error).__name__}: {error}", next=next), "internal", EX_SOFTWARE)
    _fail(told, told.code, told.status)
