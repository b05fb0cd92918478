"""The errors or the entropy of the same weights under each padding convention."""

from __future__ import annotations

from math import isfinite

from markupsafe import Markup

from porter.evaluation.padding_study.study_results import Case, Study
from porter.reporting.svg import AxisScale, Element, drawing, element, label, shorten_to

NAME, BAR, GAP, TOP, RIGHT = 20, 15, 14, 4, 118


def plot_study(study: Study, width: int) -> Markup:
    """Draw bars, from zero, of top-1 and top-5 error, and of ten-crop top-5 error if it was measured; of the
    entropy if the photos have no classes. The cases that the answer names are marked.
    """
    rows = [(case, _figures(case)) for case in study.cases]
    largest = max((figure for _, figures in rows for _, figure in figures), default=0.0)
    across = AxisScale(0, largest, 0, width - RIGHT)
    parts: list[Element] = []
    y = float(TOP)
    for number, (case, figures) in enumerate(rows, 1):
        # empty for a case that the answer does not name
        note = study.note_beside(case)
        heading = shorten_to(f"{number}. {case.name}", width - 110)
        if note:
            heading += f"  ◂ {note}"
        parts.append(label(0, y + 13, heading, class_="label strong" if note else "label"))
        y += NAME
        for name, figure in figures:
            kind = "second" if "top-5" in name else "first"
            if note:
                kind += " trained"
            parts.append(
                element(
                    "rect",
                    x=0,
                    y=y + 1.5,
                    width=max(1.0, across(figure)),
                    height=BAR - 4,
                    class_=f"bar {kind}",
                )
            )
            parts.append(label(across(figure) + 6, y + 11, f"{figure:.2f}  {name}"))
            y += BAR
        y += GAP
    described = "; ".join(
        f"{case.name}: {', '.join(f'{name} {figure:.2f}' for name, figure in figures)}"
        for case, figures in rows
    )
    measure = "Errors in percent" if study.judged_by == "log_loss" else "Entropy in nats"
    return drawing(width, max(y, 1.0), f"{measure} of each padding convention", f"{described}.", *parts)


def _figures(case: Case) -> list[tuple[str, float]]:
    """Return the figures of a case that the plot shows, by name: its errors in per cent, or its entropy if
    the photos have no classes.
    """
    if case.top1_error is None:
        named = [("entropy", case.entropy)]
    else:
        named = [
            ("top-1", case.top1_error),
            ("top-5", case.top5_error),
            ("ten-crop top-5", case.ten_crop_top5_error),
        ]
    return [(name, figure) for name, figure in named if figure is not None and isfinite(figure)]
