"""The nearest valid spelling, for errors."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from porter.base.errors import LISTED, some


def hint(word: str, known: Iterable[str], line: str = "") -> str:
    """Return advice for an unknown `word`: the nearest of `known`, otherwise some of them. If a value follows
    a known key after a space, the colon is missing.

    Args:
        line: the command that lists all of `known`, added where there are too many to list.
    """
    words = sorted(set(known))
    key, value = word.partition(" ")[::2]
    if value and key in words:
        return f"write '{key}: {value}'"
    similar = nearest(word, words)
    if similar is not None:
        return f"did you mean '{similar}'?"
    listing = f": {line}" if line and len(words) > LISTED else ""
    return f"the choices are {some(words)}{listing}" if words else "none is declared"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` is a slip of; None if it is near none."""
    return next(iter(get_close_matches(word, sorted(known), 1, 0.6)), None)
