"""Opens a file as one of the variants that it could be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from porter.base.errors import PorterError
from porter.source.by_recipe import open_candidate
from porter.source.fitting.candidate import Candidate
from porter.source.opened import Opened
from porter.source.origin import Provenance, as_stated, expect_origin, origin_of
from porter.source.ranking.rank import Match
from porter.source.wishes import NONE, Wishes


@dataclass(frozen=True)
class Likeliest:
    """The match whose graph differs least from the file's, and the file opened as it.

    Attributes:
        match, opened: None if the file is none of the matches.
        problems: the errors of the matches that it is not.
    """

    match: Match | None
    opened: Opened | None
    problems: Sequence[tuple[Match, PorterError]]


def open_likeliest(matches: Sequence[Match], wishes: Wishes = NONE) -> Likeliest:
    """The file opened as the likeliest of its matches, which are tried one after the other."""
    opened: list[tuple[Match, Opened]] = []
    problems: list[tuple[Match, PorterError]] = []
    for each in matches:
        try:
            opened.append((each, open_as(each, wishes, (other.candidate for other in matches))))
        except PorterError as error:
            problems.append((each, error))
        if opened and not _unlike(opened[-1][1]):
            break
    match, best = min(opened, key=lambda each: _unlike(each[1]), default=(None, None))
    return Likeliest(match, best, problems)


def _unlike(opened: Opened) -> int:
    return opened.fitted.fit.differences + len(opened.fitted.fit.folded) if opened.fitted else 0


def open_as(match: Match, wishes: Wishes, others: Iterable[Candidate] = ()) -> Opened:
    """The file opened as a match; if it is stated to come from a twin of the match, opened as that, which
    may be one of `others`.

    Raises:
        UsageError: it is stated to be another network. Or as `open_candidate`.
    """
    known = origin_of(match.candidate)
    return open_known(as_stated(match.candidate, known, others), known, wishes)


def open_known(candidate: Candidate, known: Provenance, wishes: Wishes) -> Opened:
    """The file opened as a variant, with the options of the recipe that its origin sets.

    Raises:
        UsageError: it is stated to be another network. Or as `open_candidate`.
    """
    expect_origin(candidate, known)
    wishes = replace(wishes, options={**known.options, **wishes.options})
    return open_candidate(candidate, wishes, known.origin)
