"""The errors of the same weights under each padding convention."""

from __future__ import annotations

from math import isfinite

from markupsafe import Markup

from porter.evaluation.results import Case, Study
from porter.reporting.svg import Element, Scale, drawing, element, fitted, label

NAME, BAR, GAP, TOP, RIGHT = 20, 15, 14, 4, 118


def plot_study(study: Study, width: int) -> Markup:
    """Bars of top-1 and top-5 error, and of ten-crop top-5 error where it was measured, from zero; the trained case marked."""
    rows = [(case, _errors(case)) for case in study.cases]
    largest = max((error for _, errors in rows for _, error in errors), default=0.0)
    across = Scale(0, largest, 0, width - RIGHT)
    parts: list[Element] = []
    y = float(TOP)
    for case, errors in rows:
        trained = case.name == study.trained
        mark = "  ◂ least error" if trained else ""
        parts.append(label(0, y + 13, fitted(case.name, width - 110) + mark, class_="label strong" if trained else "label"))
        y += NAME
        for name, error in errors:
            kind = ("first" if name == "top-1" else "second") + (" trained" if trained else "")
            parts.append(element("rect", x=0, y=y + 1.5, width=max(1.0, across(error)), height=BAR - 4, class_=f"bar {kind}"))
            parts.append(label(across(error) + 6, y + 11, f"{error:.2f}  {name}"))
            y += BAR
        y += GAP
    described = "; ".join(f"{case.name}: {', '.join(f'{name} {error:.2f}' for name, error in errors)}" for case, errors in rows)
    return drawing(width, max(y, 1.0), "Errors in percent of each padding convention", f"{described}.", *parts)


def _errors(case: Case) -> list[tuple[str, float]]:
    named = (("top-1", case.top1), ("top-5", case.top5), ("ten-crop top-5", case.ten_crop_top5))
    return [(name, error) for name, error in named if error is not None and isfinite(error)]
