"""Opens a file as one of the variants that it could be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from porter.base.errors import PorterError
from porter.source.by_recipe import open_match
from porter.source.opened import Opened
from porter.source.ranking.rank import Match
from porter.source.wishes import NONE, Wishes


@dataclass(frozen=True)
class Likeliest:
    """The match whose graph differs least from the file's, and the file opened as it.

    Attributes:
        match: None if the file is none of the matches.
        opened: None if `match` is.
        problems: the errors of the matches that it is not.
    """

    match: Match | None
    opened: Opened | None
    problems: Sequence[tuple[Match, PorterError]]


def open_likeliest(matches: Sequence[Match], wishes: Wishes = NONE) -> Likeliest:
    """Open the file as its matches, one after the other, until one has no difference from the file. Return
    the match with the fewest differences and the file opened as it, both None if none opens, with the errors
    of those that do not.
    """
    opened: list[tuple[Match, Opened]] = []
    problems: list[tuple[Match, PorterError]] = []
    candidates = [match.candidate for match in matches]
    for match in matches:
        try:
            opened.append((match, open_match(match, wishes, candidates)))
        except PorterError as error:
            problems.append((match, error))
        if opened and not _count_differences(opened[-1][1]):
            break
    best, opened_as_best = min(opened, key=lambda pair: _count_differences(pair[1]), default=(None, None))
    return Likeliest(best, opened_as_best, problems)


def _count_differences(opened: Opened) -> int:
    """Return the number of differences between the file's graph and the recipe's; 0 for a file without a
    graph.
    """
    return opened.fitted.fit.differences + len(opened.fitted.fit.folded) if opened.fitted else 0
