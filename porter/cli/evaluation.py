"""The output of `porter eval` for people."""

from __future__ import annotations

from porter.cli.printing import some, table
from porter.evaluation.results import Accuracy, Agreement, Evaluation


def evaluation(result: Evaluation) -> list[str]:
    path, layout = result.photos
    lines = [
        f"{path} ({layout})",
        f"  protocol   {result.protocol}",
        f"  fed        {result.fed}",
        f"  run        {result.precision} on {result.device}, {result.per_second:,.1f} images/s",
        f"  images     {_images(result)}; {result.classes_present:,} classes present",
    ]
    if result.excluded:
        first = result.excluded[0]
        lines.append(f"  left out   {len(result.excluded):,} that the labels leave out, such as {first.name}: {first.why}")
    lines += [f"  {line}" for line in _figures(result)]
    if result.source is not None:
        lines += [f"  {line}" for line in _agreement(result.source)]
    lines += some("  failed     ", [f"{photo.name}: {photo.why}" for photo in result.failed])
    if not result.complete:
        lines.append("  INCOMPLETE interrupted: these are the figures so far, and the port's record is unchanged")
    lines.append(f"  verdict    {result.verdict}: {result.why}")
    if result.expected is not None:
        top1, tolerance = result.expected
        lines.append(f"  expected   top-1 {top1:g} within {tolerance:g}: {'met' if result.ok else 'MISSED'}")
    return [*lines, *(f"  warning    {warning}" for warning in result.warnings)]


def _images(result: Evaluation) -> str:
    limited = " (--limit)" if result.limit else ""
    failed = f", of which {len(result.failed):,} failed and count as not recognised" if result.failed else ""
    return f"{result.images:,}{limited}{failed}"


def _figures(result: Evaluation) -> list[str]:
    rows = [("port", *_row(result))]
    if result.source is not None:
        rows.append(("source", *_row(result.source.accuracy)))
    if result.published is not None:
        rows.append(("published", f"{result.published['top1']:.3f}", f"{result.published['top5']:.3f}", "", ""))
    return table(("         ", "top-1", "top-5", "loss", "top-1 at 95 %"), rows)


def _row(accuracy: Accuracy) -> tuple[str, str, str, str]:
    low, high = accuracy.ci95
    loss = "" if accuracy.loss is None else f"{accuracy.loss:.4f}"
    return f"{accuracy.top1:.3f}", f"{accuracy.top5:.3f}", loss, f"{low:.2f} to {high:.2f}"


def _agreement(beside: Agreement) -> list[str]:
    lines = [
        f"agreement  {beside.agreeing:,} of {beside.compared:,} photos with {beside.reference}; "
        f"logits differ by {beside.max_abs:.1e} at most, relative L2 {beside.rel_l2:.1e}"
    ]
    differing = [
        f"{photo.name}: source {photo.source}, port {photo.port}, right {', '.join(map(str, photo.labels))}"
        for photo in beside.differing
    ]
    return lines + some("differs    ", differing)
