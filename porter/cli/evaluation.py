"""The output of `porter eval` for people."""

from __future__ import annotations

from collections.abc import Sequence

from porter.cli.printing import table
from porter.data.photos import Failure
from porter.evaluation.results import Accuracy, Agreement, Evaluation

SHOWN = 5
"""Photos of each kind that are named."""


def evaluation(found: Evaluation) -> list[str]:
    path, layout = found.photos
    lines = [
        f"{path} ({layout})",
        f"  protocol   {found.protocol}",
        f"  fed        {found.fed}",
        f"  run        {found.precision} on {found.device}, {found.per_second:,.1f} images/s",
        f"  images     {_images(found)}; {found.classes_present:,} classes present",
    ]
    if found.excluded:
        lines.append(f"  left out   {len(found.excluded):,} that the labels leave out, such as {_named(found.excluded[:1])}")
    lines += [f"  {line}" for line in _figures(found)]
    if found.source is not None:
        lines += [f"  {line}" for line in _agreement(found.source)]
    lines += [f"  failed     {_named([photo])}" for photo in found.failed[:SHOWN]]
    if len(found.failed) > SHOWN:
        lines.append(f"             and {len(found.failed) - SHOWN:,} more (--json names all)")
    if not found.complete:
        lines.append("  INCOMPLETE interrupted: these are the figures so far, and the port's record is unchanged")
    lines.append(f"  verdict    {found.verdict}: {found.why}")
    if found.expected is not None:
        top1, tolerance = found.expected
        lines.append(f"  expected   top-1 {top1:g} within {tolerance:g}: {'met' if found.ok else 'MISSED'}")
    return [*lines, *(f"  warning    {warning}" for warning in found.warnings)]


def _images(found: Evaluation) -> str:
    limited = " (--limit)" if found.limit else ""
    failed = f", of which {len(found.failed):,} failed and count as not recognised" if found.failed else ""
    return f"{found.images:,}{limited}{failed}"


def _figures(found: Evaluation) -> list[str]:
    rows = [("port", *_row(found))]
    if found.source is not None:
        rows.append(("source", *_row(found.source.accuracy)))
    if found.published is not None:
        rows.append(("published", f"{found.published['top1']:.3f}", f"{found.published['top5']:.3f}", ""))
    return table(("         ", "top-1", "top-5", "top-1 at 95 %"), rows)


def _row(accuracy: Accuracy) -> tuple[str, str, str]:
    low, high = accuracy.ci95
    return f"{accuracy.top1:.3f}", f"{accuracy.top5:.3f}", f"{low:.2f} to {high:.2f}"


def _agreement(beside: Agreement) -> list[str]:
    lines = [
        f"agreement  {beside.agreeing:,} of {beside.compared:,} photos with {beside.reference}; "
        f"logits differ by {beside.max_abs:.1e} at most, relative L2 {beside.rel_l2:.1e}"
    ]
    for photo in beside.differing[:SHOWN]:
        right = ", ".join(map(str, photo.labels))
        lines.append(f"differs    {photo.name}: source {photo.source}, port {photo.port}, right {right}")
    if len(beside.differing) > SHOWN:
        lines.append(f"           and {len(beside.differing) - SHOWN:,} more (--json names all)")
    return lines


def _named(photos: Sequence[Failure]) -> str:
    return ", ".join(f"{photo.name}: {photo.why}" for photo in photos)
