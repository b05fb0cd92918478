"""The nearest valid spelling."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """`did you mean ...?` with the nearest of `known`, or all of them where none is near."""
    candidates = sorted(set(known))
    near = get_close_matches(word, candidates, n=1, cutoff=0.5)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"known: {', '.join(candidates)}" if candidates else None
