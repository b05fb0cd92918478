"""The nearest valid spelling, for errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

LISTED, NODES = 20, 5
"""The most words of a list, and the most nodes: their names are long, and a graph has hundreds."""


def hint(word: str, known: Iterable[str], most: int = LISTED) -> str:
    """Advice for an unknown `word`: the nearest of `known`, otherwise a list of `most` of them."""
    words = sorted(set(known))
    key, value = word.partition(" ")[::2]
    if value and key in words:
        return f"write '{key}: {value}'"
    near = nearest(word, words)
    if near is not None:
        return f"did you mean '{near}'?"
    return f"known are {listed(words, most)}" if words else "none are declared"


def listed(words: Sequence[str], most: int = NODES) -> str:
    """The first of `words`, and how many more there are."""
    return ", ".join(words[:most]) + (f", and {len(words) - most} more" if len(words) > most else "")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` is a slip of, if it is one."""
    return next(iter(get_close_matches(word, sorted(known), 1, 0.6)), None)
