"""How often each case of a study is wrong, and how much photos say about which of two is better.

A case is an array with the place of the true class among the logits, photo by photo, 0 the largest; a photo that could not be
scored has UNSCORED, and counts as wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from porter.evaluation.results import Margin

Ranks = NDArray[np.int32]
UNSCORED = np.iinfo(np.int32).max
LEVEL = 0.05
"""Of significance."""


def error(ranks: Ranks, top: int) -> float:
    """How many photos have their class not among the first `top`, in percent."""
    return 100 * float((ranks >= top).mean())


def wrong(ranks: Ranks) -> int:
    """How many photos have another class first."""
    return int((ranks >= 1).sum())


def best_of(cases: Sequence[Ranks]) -> int:
    """The position of the case with the least top-1 error; of equal ones the first."""
    return min(range(len(cases)), key=lambda position: wrong(cases[position]))


def mcnemar(one: int, other: int) -> float:
    """The two-sided p-value of McNemar's exact test.

    Args:
        one: photos that only the first case got right.
        other: photos that only the second did. Were both as good, each of these would be a toss of a coin.
    """
    tosses = one + other
    tail = term = 1  # binomial coefficients, from that of 0 on, in whole numbers: 50,000 tosses are beyond any float
    for drawn in range(min(one, other)):
        term = term * (tosses - drawn) // (drawn + 1)
        tail += term
    return min(1.0, 2 * tail / (1 << tosses))


def margin(ranks: Mapping[str, Ranks]) -> Margin:
    """How far the best case, by name, is ahead of the next best, in photos, and whether that may be chance.

    Since the next best is picked out of all others, p has to be below LEVEL over their number (Bonferroni).
    """
    names, cases = list(ranks), list(ranks.values())
    best = best_of(cases)
    others = [position for position in range(len(cases)) if position != best]
    if not others:
        return Margin(names[best], None, 0, 1.0, False, f"'{names[best]}' is all that there is to try")
    second = others[best_of([cases[position] for position in others])]
    one, other = cases[best] < 1, cases[second] < 1
    gained, lost = int((one & ~other).sum()), int((other & ~one).sum())
    p = mcnemar(gained, lost)
    significant = p < LEVEL / len(others)
    text = _sentence(names[best], names[second], gained - lost, p, len(others), significant)
    return Margin(names[best], names[second], gained - lost, p, significant, text)


def _sentence(best: str, second: str, photos: int, p: float, others: int, significant: bool) -> str:
    if photos == 0:
        return f"'{best}' and '{second}' tie: these photos do not tell"
    ahead = f"'{best}' is {photos} photo{'s' if photos > 1 else ''} ahead of '{second}'"
    if significant:
        return f"{ahead}, p = {p:.1e}"
    among = f" / {others}" if others > 1 else ""
    return f"{ahead}, but these photos do not tell: p = {p:.2g}, not below {LEVEL}{among}"
