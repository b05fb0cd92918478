"""The output of `porter eval` for people."""

from __future__ import annotations

from collections.abc import Sequence

from porter.cli.printing import first_lines, table
from porter.evaluation.results import Accuracy, Agreement, Evaluation, OfPort

_COLUMNS = ("top-1", "top-5", "loss", "top-1 at 95 %")


def evaluation(result: Evaluation) -> list[str]:
    """Write the lines of `porter eval`."""
    path, layout = result.photos
    lines = [
        f"{path} ({layout})",
        f"  protocol   {result.protocol}",
        f"  fed        {result.fed}",
        f"  run        {result.run} on {result.device}, {result.per_second:,.1f} images/s{_limit(result)}",
        *(f"  tried      {line}" for line in _tried(result)),
        f"  images     {_images(result)}; {result.classes_present:,} classes present",
    ]
    if result.excluded:
        first = result.excluded[0]
        lines.append(f"  left out   {len(result.excluded):,}, such as {first.name}: {first.why}")
    lines += [f"  {line}" for line in _figures(result)]
    if result.source is not None:
        lines += [f"  {line}" for line in _agreement(result.source)]
    lines += first_lines("  failed     ", [f"{photo.name}: {photo.why}" for photo in result.failed])
    if not result.complete:
        lines.append(
            "  INCOMPLETE interrupted: these are the figures so far, and the port's record is unchanged"
        )
    lines.append(f"  verdict    {result.verdict}: {result.why}")
    if result.expected is not None:
        top1, tolerance = result.expected
        lines.append(f"  expected   top-1 {top1:g} within {tolerance:g}: {'met' if result.ok else 'MISSED'}")
    return [*lines, *(f"  warning    {warning}" for warning in result.warnings)]


def evaluations(results: Sequence[OfPort], asked: int) -> list[str]:
    """Write the figures of several ports over the same photos as one table; `asked` is the number of ports
    that were to be measured.
    """
    first = results[0].evaluation
    path, layout = first.photos
    protocols = list(dict.fromkeys(each.evaluation.protocol for each in results))
    columns = {
        "port": [each.port for each in results],
        "is": [each.name for each in results],
        "framework": [each.framework for each in results],
        "protocol": [str(1 + protocols.index(each.evaluation.protocol)) for each in results],
        "photos": [f"{each.evaluation.images:,}" for each in results],
        **dict(zip(_COLUMNS, zip(*(_row(each.evaluation) for each in results), strict=True), strict=True)),
        "photos/s": [f"{each.evaluation.per_second:,.1f}" for each in results],
        "verdict": [each.evaluation.verdict for each in results],
    }
    if not any(each.evaluation.has_top5 for each in results):
        del columns["top-5"]
    if first.source is not None:
        beside = [each.evaluation.source for each in results]
        columns["as the source"] = [
            "" if each is None else f"{each.agreeing:,} of {each.compared:,}" for each in beside
        ]
    lines = [f"{path} ({layout})", f"  run        {first.run} on {first.device}"]
    lines += [f"  protocol {number} {words}" for number, words in enumerate(protocols, start=1)]
    lines += [f"  {line}" for line in table(list(columns), list(zip(*columns.values(), strict=True)))]
    for each in results:
        evaluation_of_port = each.evaluation
        lines += first_lines(
            f"  failed     {each.port}: ",
            [f"{photo.name}: {photo.why}" for photo in evaluation_of_port.failed],
        )
        if evaluation_of_port.expected is not None:
            top1, tolerance = evaluation_of_port.expected
            outcome = "met" if evaluation_of_port.ok else "MISSED"
            lines.append(f"  expected   {each.port}: top-1 {top1:g} within {tolerance:g}: {outcome}")
        lines += [f"  warning    {each.port}: {warning}" for warning in evaluation_of_port.warnings]
    if len(results) < asked or not all(each.evaluation.complete for each in results):
        lines.append(
            "  INCOMPLETE interrupted: these are the figures so far; only those of whole runs are in the "
            "ports' records"
        )
    return lines


def _images(result: Evaluation) -> str:
    limited = " (--limit)" if result.limit else ""
    failed = f", of which {len(result.failed):,} failed and count as not recognised" if result.failed else ""
    return f"{result.images:,}{limited}{failed}"


def _figures(result: Evaluation) -> list[str]:
    """Write the table of accuracies: the port, what was measured beside it, and the published figure."""
    rows = [("port", *_row(result))]
    theirs = None if result.source is None else result.source.accuracy
    beside = {"in fp32": result.fp32, "source": theirs, "by ReaL": result.real}
    rows += [(name, *_row(accuracy)) for name, accuracy in beside.items() if accuracy is not None]
    if result.published is not None:
        rows.append(
            ("published", f"{result.published['top1']:.3f}", f"{result.published['top5']:.3f}", "", "")
        )
    places = [place for place, name in enumerate(("", *_COLUMNS)) if result.has_top5 or name != "top-5"]
    header, *lines = [[row[place] for place in places] for row in (("         ", *_COLUMNS), *rows)]
    return table(header, lines)


def _limit(result: Evaluation) -> str:
    """Say what a long run was limited by: the network, or what prepares the photos for it. Empty for a short
    run.
    """
    if result.network is None or result.waited is None:
        return ""
    by = (
        "the network limits it"
        # The network counts crops, the run photos.
        if result.crops * result.per_second > 0.8 * result.network
        else "preparing photos limits it"
    )
    return (
        f"; {by}: the network can take {result.network:,.0f} images/s, and waited for "
        f"photos {100 * result.waited:.0f} % of the time"
    )


def _tried(result: Evaluation) -> list[str]:
    return [
        f"{each.run.words}: {each.refused or f'{each.per_second:,.0f} images/s of made photos'}"
        for each in result.tried
    ]


def _row(accuracy: Accuracy) -> tuple[str, str, str, str]:
    low, high = accuracy.ci95
    loss = "" if accuracy.loss is None else f"{accuracy.loss:.4f}"
    return f"{accuracy.top1:.3f}", f"{accuracy.top5:.3f}", loss, f"{low:.2f} to {high:.2f}"


def _agreement(beside: Agreement) -> list[str]:
    """Write the lines on the source beside the port."""
    lines = [
        f"agreement  {beside.agreeing:,} of {beside.compared:,} photos with {beside.reference}; "
        f"logits differ by {beside.max_abs:.1e} at most, relative L2 {beside.rel_l2:.1e}"
    ]
    differing = [
        f"{photo.name}: source {photo.source}, port {photo.port}, right {', '.join(map(str, photo.labels))}"
        for photo in beside.differing
    ]
    return lines + first_lines("differs    ", differing)
