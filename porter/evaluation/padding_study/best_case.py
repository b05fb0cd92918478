"""Which case of a study is best, and which others may be as good: photo by photo, because all cases see the
same photos.

A case has a loss for each photo (porter.evaluation.losses), averaged over the photo and its mirror image. It
also has ranks: the place of the true class among the logits, 0 for the largest; a photo that could not be
scored has UNSCORED, and counts as wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, exp, lgamma, log, log10, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from porter.evaluation.losses import Losses

Ranks = NDArray[np.int32]
UNSCORED = np.iinfo(np.int32).max
_TERMS = 100
"""Terms of the continued fraction; half a million photos need fewer."""
LEVEL = 0.05
"""The level of significance: the largest probability that the truly best case is counted as worse."""
POWER = 0.8
"""The share of studies in which as many photos as photos_to_decide says are enough."""
MOST_PHOTOS = 100_000


def error(ranks: Ranks, top: int) -> float:
    """Return the share of photos whose class is not among the first `top`, in percent."""
    return 100 * float((ranks >= top).mean())


@dataclass(frozen=True)
class CaseRanking:
    """The comparison of several cases by their losses.

    Attributes:
        best: the position of the case with the least mean; the first of equal ones.
        p: for each case, the probability that it looks at least so much worse than the best if it is truly no
            worse; 1 for the best.
        plausible: the positions of the best case and of those that are not significantly worse.
        photos: the number of photos that the best case has a loss for.
        needed: for each other plausible case, about how many photos would make it significantly worse
            (photos_to_decide).
    """

    best: int
    p: tuple[float, ...]
    plausible: tuple[int, ...]
    photos: int = 0
    needed: Mapping[int, int | None] = field(default_factory=dict)

    def decisive(self, positions: Collection[int]) -> int | None:
        """Return about how many photos would make all these plausible cases significantly worse; None if that
        cannot be said of one.
        """
        known = [number for position in positions if (number := self.needed.get(position)) is not None]
        return max(known) if known and len(known) == len(positions) else None


def judge(cases: Sequence[Losses]) -> CaseRanking:
    """Compare every case with the best, and return the best, each p, the cases that are plausible (not
    significantly worse), and how many photos would decide them.

    A case is worse if p is below LEVEL divided by the number of the other cases (Bonferroni). So the truly
    best case is among `plausible` in 95 of 100 studies, whichever case looks best: another case would have to
    beat it at such a p. This holds for cases that were chosen without these photos, and for the last round,
    because it joins only significant changes (rounds.helpful_changes).
    """
    best = best_of(cases)
    p = tuple(
        1.0 if position == best else p_no_worse(case, cases[best]) for position, case in enumerate(cases)
    )
    limit = significance_limit(len(cases))
    plausible = tuple(position for position in range(len(cases)) if p[position] >= limit)
    needed = {
        position: photos_to_decide(cases[position], cases[best], limit)
        for position in plausible
        if position != best
    }
    photo_count = int((~np.isnan(cases[best])).sum())
    return CaseRanking(best, p, plausible, photo_count, needed)


def undecided(cases: int) -> CaseRanking:
    """Return the comparison of so many cases of which nothing can be said."""
    return CaseRanking(0, (1.0,) * cases, tuple(range(cases)))


def significance_limit(cases: int) -> float:
    """Return the limit below which p makes one of `cases` cases worse than the best."""
    return LEVEL / max(1, cases - 1)


def best_of(cases: Sequence[Losses]) -> int:
    """Return the position of the case with the least mean; the first of equal ones."""
    means = [mean(case) for case in cases]
    return means.index(min(means))


def mean(losses: Losses) -> float:
    """Return the mean over the photos that have a loss; inf if there are none."""
    finite = losses[~np.isnan(losses)]
    return float(finite.mean()) if len(finite) else np.inf


def p_no_worse(case: Losses, best: Losses) -> float:
    """Return the one-sided p-value of the paired t-test: the probability that the mean of `case` is at least
    so far above that of `best` if it is truly no larger. 1 if fewer than two photos have both losses.
    """
    differences = _differences(case, best)
    if np.isposinf(differences).any():  # logits of `case` that are not finite
        return 0.0
    photos = len(differences)
    average = float(differences.mean()) if len(differences) else 0.0
    if photos < 2 or average <= 0:
        return 1.0
    error_of_mean = float(differences.std(ddof=1)) / sqrt(photos)
    return t_tail(average / error_of_mean, photos - 1) if error_of_mean > 0 else 0.0


def photos_to_decide(case: Losses, best: Losses, limit: float) -> int | None:
    """Return about how many photos would make `case` worse than `best` at the level `limit`, rounded up to
    two figures; None if more than MOST_PHOTOS, or if the differences tell nothing.

    It takes the mean m and the standard deviation s of the paired differences for the true ones. With n
    photos, the test's t is then about normal around m / s * sqrt(n) with a spread of 1. It exceeds the
    limit's quantile z in POWER of all such studies for n = ((z + z of POWER) * s / m)^2. m is only measured,
    and a best case that was chosen by these photos looks better than it is: so this is an order of magnitude.
    """
    differences = _differences(case, best)
    if len(differences) < 2 or not np.isfinite(differences).all():
        return None
    average = float(differences.mean())
    spread = float(differences.std(ddof=1))
    # The case is as good, or worse by the same on every photo.
    if average <= 0 or spread == 0:
        return None
    normal = NormalDist()
    quantiles = normal.inv_cdf(1 - limit) + normal.inv_cdf(POWER)
    needed = float((quantiles * spread / average) ** 2)
    if needed > MOST_PHOTOS:
        return None
    # two figures: a number of four digits is rounded up to hundreds
    step = int(10 ** max(0, int(log10(needed)) - 1))
    return step * ceil(needed / step)


def _differences(case: Losses, best: Losses) -> Losses:
    """Return how much larger the losses of a case are, for the photos that have both."""
    have_both = np.isfinite(best) & ~np.isnan(case)
    return np.asarray(case[have_both] - best[have_both])


def t_tail(t: float, freedom: int) -> float:
    """Return the probability that Student's t exceeds `t`, which is positive.

    It is half the regularised incomplete beta function of x = freedom / (freedom + t^2) with a = freedom / 2
    and b = 1/2, by its continued fraction (DLMF 8.17.22), on the side where the fraction converges fast.

    Args:
        freedom: the degrees of freedom.
    """
    x, a, b = freedom / (freedom + t * t), freedom / 2, 0.5
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x)) * sqrt(t * t / (freedom + t * t))
    if x < (a + 1) / (a + b + 2):
        return 0.5 * front / (a * _continued_fraction(x, a, b))
    return 0.5 - 0.5 * front / (b * _continued_fraction(1 - x, b, a))


def _continued_fraction(x: float, a: float, b: float) -> float:
    """Return 1 + d1 / (1 + d2 / (1 + ...)) with the d of DLMF 8.17.22, computed from the far end: after
    `_TERMS` pairs the rest is taken as 1.
    """
    value = 1.0
    for m in range(_TERMS, 0, -1):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m - 1) * (a + b + m - 1) * x / ((a + 2 * m - 2) * (a + 2 * m - 1))
        value = 1 + odd / (1 + even / value)
    return value
