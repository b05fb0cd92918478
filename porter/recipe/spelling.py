"""The nearest valid spelling, for errors."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LISTED = 20


def hint(word: str, known: Iterable[str]) -> str:
    """Advice for an unknown `word`: the nearest of `known`, otherwise a list of them."""
    words = sorted(set(known))
    nearest = get_close_matches(word, words, 1, 0.6)
    if nearest:
        return f"did you mean '{nearest[0]}'?"
    more = f", and {len(words) - LISTED} more" if len(words) > LISTED else ""
    return f"known are {', '.join(words[:LISTED])}{more}" if words else "none are declared"
