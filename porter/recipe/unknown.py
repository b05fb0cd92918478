"""Words that nothing declares, with the declaration of their nearest spelling."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from porter.errors import RecipeError
from porter.recipe.patterns import match_path
from porter.recipe.source import Location
from porter.recipe.spelling import NODES, hint, nearest

_CAPTURE = re.compile(r"\{\w+\}")


class Unknown(RecipeError):
    """A word that nothing declares.

    Attributes:
        word: as it is used.
        declared: where its nearest spelling is declared in the recipe; None if nothing is like it.
    """

    def __init__(self, message: str, word: str, declared: Location | None, next: str) -> None:
        super().__init__(message, next=next)
        self.word = word
        self.declared = declared


def unknown(message: str, word: str, known: Iterable[str], table: Location) -> Unknown:
    """The error of a word that is none of `known`, which the recipe declares in `table`, if it does."""
    listed = tuple(known)
    near = nearest(word, listed) if table else None
    return Unknown(message, word, (*table, near) if near else None, hint(word, listed))


def unmatched(message: str, pattern: str, steps: Mapping[str, Location], others: Sequence[str]) -> Unknown:
    """The error of a pattern that matches none of the paths of `steps`; a path that one of `others` matches is not misspelt."""
    likely = _CAPTURE.sub("1", pattern)
    free = [path for path in steps if not any(match_path(other, path) is not None for other in others)]
    near = nearest(likely, free)
    return Unknown(
        message, pattern, steps[_apart(near, pattern, steps)] if near else None, hint(likely, [near] if near else steps, NODES)
    )


def unnamed(message: str, path: str, patterns: Iterable[str], steps: Mapping[str, Location]) -> Unknown:
    """The error of a node that none of `patterns` matches."""
    likely = {_CAPTURE.sub("1", pattern): pattern for pattern in patterns}
    near = nearest(path, likely)
    declared = steps[_apart(path, likely[near], steps)] if near else None
    return Unknown(message, near or path, declared, f"add a line, such as {path}: NAME")


def _apart(path: str, pattern: str, steps: Mapping[str, Location]) -> str:
    """The first step on the way to a node that the pattern does not match."""
    parts, wanted = path.split("/"), pattern.split("/")
    for end in range(1, len(parts)):
        here = "/".join(parts[:end])
        if here in steps and match_path("/".join(wanted[:end]), here) is None:
            return here
    return path
