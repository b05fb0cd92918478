"""The one family of errors that porter raises on bad input, and text from files as a terminal or a report may
show it.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Self
from unicodedata import category

from porter.base.options import MAP

_ESCAPED = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's categories of characters that control a terminal or the order of its text, break a line, or are
not text.
"""
LISTED = 5
"""The most items of a list in a message."""
_MOST_LETTERS = 2000
"""The most letters of a message, because it may name what a stranger called something."""
_MOST_OF_OTHERS = 200
"""Letters of what another library says."""
_JOINERS = "\u200c\u200d"
"""Harmless characters of category Cf: Persian words and composed emoji have them."""


def escaped(text: str) -> str:
    r"""Return `text` with control characters, bidi overrides, line breaks and bytes that are not text (lone
    surrogates) written as \x1b.

    Everything else stays, such as letters of every script and text that is already escaped.
    """
    return text if text.isprintable() else "".join(map(_escape, text))


def _escape(character: str) -> str:
    """Return a character as `escaped` writes it: as it is, unless it acts on the terminal or the text."""
    acts = category(character) in _ESCAPED and character not in _JOINERS
    return character.encode("unicode_escape").decode() if acts else character


def first_line(error: BaseException) -> str:
    """Return what another library's error says first, to be a part of a message; its type if it says
    nothing.
    """
    lines = str(getattr(error, "message", error)).strip().splitlines() or [type(error).__name__]
    return shortened(lines[0])


def shortened(text: str) -> str:
    """Shorten what another library says, to be a part of a message: it ends after a word where it is too
    long.
    """
    if len(text) <= _MOST_OF_OTHERS:
        return text
    return f"{text[:_MOST_OF_OTHERS].rsplit(maxsplit=1)[0]} ..."


def signal_name(number: int) -> str:
    """Return what the system calls a signal, such as `SIGKILL`; `signal 35` for one that has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def some(items: Sequence[str]) -> str:
    """List the first items in a message, and how many more there are."""
    more = [f"and {len(items) - LISTED:,} more"] if len(items) > LISTED else []
    return ", ".join([*items[:LISTED], *more])


class PorterError(Exception):
    """What is wrong, where, and what to do next.

    Args:
        message: what is wrong, with expected against got, on one line.
        where: `file:line:column` of a recipe, a tensor, a node or a file, by its text.
        next: what the reader can do about it, on one line or on several.
    """

    code = "error"
    status = 2

    def __init__(self, message: str, *, where: object = None, next: str | None = None) -> None:
        if len(message) > _MOST_LETTERS:
            message = f"{message[: _MOST_LETTERS // 2]} ... {message[-_MOST_LETTERS // 2 :]}"
        super().__init__(message)
        self.message = message
        self.where = None if where is None else str(where)
        self.next = next

    def at(self, where: str | None, next: str | None = None) -> Self:
        """Set the error's place, which only the caller of its raiser knows, and if one is given the next
        step; return the error, to be raised again.
        """
        self.where, self.next = where, next or self.next
        return self

    def record(self) -> dict[str, str | None]:
        """Return the error in JSON."""
        return {"code": self.code, "message": self.message, "where": self.where, "next": self.next}

    def lines(self) -> list[str]:
        """Return the error as people read it: one line, and one for each line of a `next` that has
        several.
        """
        text = f"{self.where}: {self.message}" if self.where else self.message
        if not self.next:
            return [text]
        steps = self.next.split("\n")
        if len(steps) > 1:
            return [text, *(f"  {step}" for step in steps)]
        return [f"{text} ({self.next})"]

    def __str__(self) -> str:
        return "\n".join(self.lines())


class UsageError(PorterError):
    """An argument names something that does not exist or cannot be combined."""

    code = "usage"


def refuse_first(*rows: tuple[bool, object, str, str | None]) -> None:
    """Refuse the first of some arguments that is wrong, or contradicts another.

    Args:
        rows: whether it is, where, why, and what to do.

    Raises:
        UsageError: one is.
    """
    for wrong, where, message, next in rows:
        if wrong:
            raise UsageError(message, where=where, next=next)


class RecipeError(PorterError):
    """A recipe that is incomplete or wrong.

    Args:
        key: of the section whose value is wrong, where `where` is not known yet.

    Attributes:
        others: further errors of the recipe, none of which follows from this one.
    """

    code = "recipe"

    def __init__(
        self, message: str, *, where: object = None, next: str | None = None, key: str | None = None
    ) -> None:
        super().__init__(message, where=where, next=next)
        self.key = key
        self.others: tuple[RecipeError, ...] = ()


class FileError(PorterError):
    """A file is missing, truncated, of another type, or cannot be written."""

    code = "file"


class ChecksumError(FileError):
    """A file's digest is not the pinned one."""

    code = "checksum"
    status = 1


class DownloadError(FileError):
    """A file could not be obtained from where the recipe says it is."""

    code = "download"


class MappingError(PorterError):
    """Source tensors and graph do not cover each other.

    Args:
        maps: settings of MAP, each of which settles it; where there are any, `next` lists them.
    """

    code = "mapping"

    def __init__(
        self, message: str, *, where: object = None, next: str | None = None, maps: Sequence[str] = ()
    ) -> None:
        # Each setting that would settle it stands as an option to add, in place of the next step.
        typed = [MAP([escaped(setting)]) for setting in maps]
        super().__init__(
            message, where=where, next="\n".join(["add one of these:", *typed]) if typed else next
        )
        self.maps = tuple(maps)


class GraphError(PorterError):
    """A graph whose shapes do not fit, or whose record cannot be read."""

    code = "graph"


class OverflowsError(PorterError):
    """A value does not fit into the chosen storage type."""

    code = "overflow"


class PaddingError(PorterError):
    """A convention that the destination cannot realise exactly."""

    code = "padding"


class NotInstalled(PorterError):
    """A package is needed and cannot be imported; `next` says what to install. A check that needs it may be
    skipped.
    """

    code = "framework"


class PluginError(PorterError):
    """A package that adds something to porter does not do what porter expects of it."""

    code = "plugin"


class CannotRun(PorterError):
    """An implementation, which is installed, does not run this model, or not here. The next reference is
    tried in its place.
    """

    code = "cannot_run"


class Contradiction(PorterError):
    """What porter reads differs from itself: two readings of a file, a file and its witness, or two programs
    that run it, by more than each one's own rounding. It never ends in a port.
    """

    code = "contradiction"
    status = 1

    def __init__(
        self,
        message: str,
        *,
        where: object = None,
        next: str = "this is a mistake of porter's reader: report it, with the file",
    ) -> None:
        super().__init__(message, where=where, next=next)


class CheckFailed(PorterError):
    """The ported model does not compute the same function."""

    code = "check"
    status = 1
