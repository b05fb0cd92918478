"""Top-1 of source and port with their intervals, beside the published figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from markupsafe import Markup

from porter.reporting.svg import AxisScale, Element, drawing, element, label, line, round_ticks

LEFT, RIGHT, TOP, ROW, BOTTOM = 78, 58, 10, 34, 42
TICKS = 5
"""The axis has at most one more label than this, and at least two."""


@dataclass(frozen=True)
class AccuracyRow:
    """A row: accuracies in percent, and the mean cross-entropy; top-1 has a 95 % interval where it was
    measured here.
    """

    name: str
    top1: float
    interval: tuple[float, float] | None
    top5: float | None = None
    loss: float | None = None


def plot_accuracy(rows: Sequence[AccuracyRow], width: int) -> Markup:
    """Draw one row for each: a dot with its interval, or a diamond for a figure without an interval."""
    height = TOP + ROW * len(rows) + BOTTOM
    shown = [row for row in rows if isfinite(row.top1)]
    points = [point for row in shown for point in (row.top1, *(row.interval or ()))]
    values = [value for value in points if isfinite(value)] or [0.0, 100.0]
    # a tenth of what is shown on either side, within 0 and 100
    margin = max(0.5, (max(values) - min(values)) * 0.1)
    low = max(0.0, min(values) - margin)
    high = min(100.0, max(values) + margin)
    across = AxisScale(low, high, LEFT, width - RIGHT)
    base = height - BOTTOM
    parts: list[Element] = []
    for tick in round_ticks(low, high, TICKS):
        parts += [
            line(across(tick), TOP, across(tick), base, "grid"),
            label(across(tick), base + 16, f"{tick:g}", "middle"),
        ]
    parts.append(label((LEFT + width - RIGHT) / 2, height - 6, "top-1 accuracy, %", "middle"))
    for index, row in enumerate(shown):
        parts += _row(row, across, TOP + ROW * (index + 0.5), width)
    described = "; ".join(f"{row.name} {row.top1:.2f}{_interval_words(row)}" for row in shown)
    return drawing(width, height, "Top-1 accuracy in percent", f"{described}.", *parts)


def _row(row: AccuracyRow, across: AxisScale, y: float, width: int) -> list[Element]:
    """Draw a row of the plot: a point with its interval, or a diamond where none is known."""
    x = across(row.top1)
    parts = [
        label(LEFT - 12, y + 4, row.name, "end"),
        label(width - RIGHT + 12, y + 4, f"{row.top1:.2f}", "start", "label strong"),
    ]
    if row.interval is None or not all(map(isfinite, row.interval)):
        return [*parts, element("path", d=f"M{x:.2f} {y - 7:.2f}l6 7l-6 7l-6 -7z", class_="diamond")]
    low, high = across(row.interval[0]), across(row.interval[1])
    ends = [line(end, y - 5, end, y + 5, "interval") for end in (low, high)]
    return [
        *parts,
        line(low, y, high, y, "interval"),
        *ends,
        element("circle", cx=x, cy=y, r=4.5, class_="dot"),
    ]


def _interval_words(row: AccuracyRow) -> str:
    """Say a row's interval, after its accuracy; nothing where it has none."""
    return "" if row.interval is None else f", 95 % interval {row.interval[0]:.2f} to {row.interval[1]:.2f}"
