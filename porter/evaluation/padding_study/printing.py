"""What `porter study padding` prints for people."""

from __future__ import annotations

from porter.evaluation.results import Case, Study
from porter.printing import table

SHOWN = 5
"""Photos that failed and are named."""


def study(found: Study) -> list[str]:
    path, layout = found.photos
    lines = [
        f"{found.variant} from {found.zoo}: {found.weights}",
        f"  photos    {found.images:,} of {path} ({layout}{', --limit' if found.limit else ''})",
        f"  protocol  {found.protocol}",
        f"  sites     {', '.join(found.sites) or 'none'}",
        *(f"  failed    {photo.name}: {photo.why}" for photo in found.failed[:SHOWN]),
    ]
    if len(found.failed) > SHOWN:
        lines.append(f"            and {len(found.failed) - SHOWN:,} more (--json names all)")
    lines += ["", "errors in percent:", *_table(found), ""]
    lines += [f"skipped: {name}: {why}" for name, why in found.skipped.items()]
    if not found.complete:
        lines.append("INCOMPLETE: interrupted, so that later cases are missing")
    margins = {"asymmetric or symmetric": found.switch, "of all cases": found.margin}
    texts = {what: margin.text for what, margin in margins.items() if margin}
    lines += [f"trained with: {found.trained}", *(f"  {what}: {text}" for what, text in texts.items())]
    return [*lines, *(f"  warning   {warning}" for warning in found.warnings)]


def _table(found: Study) -> list[str]:
    header, rows = ["case", "pads", "top-1", "top-5"], [_row(case) for case in found.cases]
    return table([*header, "ten-crop top-5"] if len(rows[0]) > len(header) else header, rows)


def _row(case: Case) -> list[str]:
    cells = [case.name, case.convention, f"{case.top1:.3f}", f"{case.top5:.3f}"]
    return cells if case.ten_crop_top5 is None else [*cells, f"{case.ten_crop_top5:.3f}"]
