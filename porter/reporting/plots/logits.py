"""The source's logits against the port's."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from markupsafe import Markup

from porter.evaluation.details import OptionalNumber
from porter.reporting.svg import AxisScale, dots, drawing, label, line, round_ticks

SIDE, LEFT, RIGHT, TOP, BOTTOM = 340, 46, 12, 12, 44
TICKS = 5


def plot_logits(pairs: Sequence[tuple[OptionalNumber, OptionalNumber]]) -> Markup:
    """Draw every pair of logits (source, port) as a dot, and the diagonal of equal functions. Pairs that are
    not finite are left out; `finite_pairs` gives the others.
    """
    known = finite_pairs(pairs)
    values = [value for pair in known for value in pair] or [0.0, 1.0]
    low, high = min(values), max(values)
    across = AxisScale(low, high, LEFT + 4, SIDE - RIGHT - 4)
    up = AxisScale(low, high, SIDE - BOTTOM - 4, TOP + 4)
    parts = [line(across(low), up(low), across(high), up(high), "diagonal")]
    for tick in round_ticks(low, high, TICKS):
        x, y = across(tick), up(tick)
        parts += [
            line(LEFT, y, SIDE - RIGHT, y, "grid"),
            line(x, TOP, x, SIDE - BOTTOM, "grid"),
            label(LEFT - 6, y + 4, f"{tick:g}", "end"),
            label(x, SIDE - BOTTOM + 16, f"{tick:g}", "middle"),
        ]
    parts += [
        dots([(across(source), up(port)) for source, port in known], "dots"),
        label((LEFT + SIDE - RIGHT) / 2, SIDE - 8, "logit of the source", "middle"),
        label(LEFT + 8, TOP + 14, "logit of the port", "start"),
    ]
    description = (
        f"{len(known)} pairs of logits; the largest distance between two is {largest_distance(pairs):.1e}."
    )
    return drawing(
        SIDE, SIDE, "Logits of the source against those of the port", description, *parts, class_="square"
    )


def finite_pairs(pairs: Sequence[tuple[OptionalNumber, OptionalNumber]]) -> list[tuple[float, float]]:
    """Return the pairs of which both numbers are finite."""
    return [
        (source, port)
        for source, port in pairs
        if source is not None and port is not None and isfinite(source + port)
    ]


def largest_distance(pairs: Sequence[tuple[OptionalNumber, OptionalNumber]]) -> float:
    """Return the largest distance in a finite pair; 0 where there is none."""
    return max((abs(source - port) for source, port in finite_pairs(pairs)), default=0.0)
