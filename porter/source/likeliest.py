"""Opens a file as one of the variants that it could be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from porter.base.errors import PorterError
from porter.source.by_recipe import open_candidate
from porter.source.fitting.candidate import Candidate
from porter.source.opened import Opened
from porter.source.origin import as_stated, expect_origin, origin_of
from porter.source.ranking.rank import Match
from porter.source.wishes import NONE, Wishes


def open_likeliest(
    matches: Sequence[Match], wishes: Wishes = NONE
) -> tuple[tuple[Match, Opened] | None, list[tuple[Match, PorterError]]]:
    """The match whose graph differs least from the file's, with the file opened as it, and the errors of
    matches that it is not.
    """
    opened: list[tuple[Match, Opened]] = []
    problems: list[tuple[Match, PorterError]] = []
    for match in matches:
        try:
            opened.append((match, open_as(match, wishes, (each.candidate for each in matches))))
        except PorterError as error:
            problems.append((match, error))
        if opened and not _unlike(opened[-1][1]):
            break
    return min(opened, key=lambda each: _unlike(each[1]), default=None), problems


def _unlike(opened: Opened) -> int:
    return opened.fitted.fit.differences + len(opened.fitted.fit.folded) if opened.fitted else 0


def open_as(match: Match, wishes: Wishes, others: Iterable[Candidate] = ()) -> Opened:
    """The file opened as a match; if it is stated to come from a twin of the match, opened as that, which
    may be one of `others`.

    Raises:
        UsageError: it is stated to be another network. Or as `open_candidate`.
    """
    known = origin_of(match.candidate)
    candidate = as_stated(match.candidate, known, others)
    expect_origin(candidate, known)
    wishes = replace(wishes, options={**known.options, **wishes.options})
    return open_candidate(candidate, wishes, known.origin)
