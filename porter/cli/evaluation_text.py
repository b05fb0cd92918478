"""The output of `porter eval` and `porter predict` for people."""

from __future__ import annotations

from collections.abc import Sequence

from porter.cli.printing import first_lines, table
from porter.evaluation.prediction import Prediction
from porter.evaluation.results import Accuracy, Agreement, Evaluation, OfPort

_COLUMNS = ("top-1", "top-5", "loss", "top-1 at 95 %")


def evaluation(result: Evaluation) -> list[str]:
    """Return the lines of `porter eval` for one port: what was measured and how, the figures, and the verdict
    on them.
    """
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
        lines.append(f"  left out   {len(result.excluded):,}, such as {result.excluded[0]}")
    lines += [f"  {line}" for line in _figures(result)]
    if result.source is not None:
        lines += [f"  {line}" for line in _agreement(result.source)]
    lines += first_lines("  failed     ", [*map(str, result.failed)])
    if not result.complete:
        lines.append(
            "  INCOMPLETE interrupted: these are the figures so far, and the port's record is unchanged"
        )
    lines.append(f"  verdict    {result.verdict}: {result.why}")
    return [*lines, *_expected_and_warnings(result)]


def evaluations(results: Sequence[OfPort], asked: int) -> list[str]:
    """Write the figures of several ports over the same photos as one table; `asked` is the number of ports
    that were to be measured.
    """
    first = results[0].evaluation
    path, layout = first.photos
    measured = [result.evaluation for result in results]
    protocols = list(dict.fromkeys(of_port.protocol for of_port in measured))
    accuracies = zip(*map(_row, measured), strict=True)
    columns = {
        "port": [result.port for result in results],
        "is": [result.name for result in results],
        "framework": [result.framework for result in results],
        "protocol": [str(1 + protocols.index(of_port.protocol)) for of_port in measured],
        "photos": [f"{of_port.images:,}" for of_port in measured],
        **dict(zip(_COLUMNS, accuracies, strict=True)),
        "photos/s": [f"{of_port.per_second:,.1f}" for of_port in measured],
        "verdict": [of_port.verdict for of_port in measured],
    }
    if not any(of_port.has_top5 for of_port in measured):
        del columns["top-5"]
    if first.source is not None:
        agreements = [of_port.source for of_port in measured]
        columns["as the source"] = [
            "" if beside is None else f"{beside.agreeing:,} of {beside.compared:,}" for beside in agreements
        ]
    lines = [f"{path} ({layout})", f"  run        {first.run} on {first.device}"]
    lines += [f"  protocol {number} {words}" for number, words in enumerate(protocols, start=1)]
    lines += [f"  {line}" for line in table(list(columns), list(zip(*columns.values(), strict=True)))]
    for result in results:
        of_port = result.evaluation
        lines += first_lines(f"  failed     {result.port}: ", [*map(str, of_port.failed)])
        lines += _expected_and_warnings(of_port, f"{result.port}: ")
    if len(results) < asked or not all(of_port.complete for of_port in measured):
        lines.append(
            "  INCOMPLETE interrupted: these are the figures so far; only those of whole runs are in the "
            "ports' records"
        )
    return lines


def _expected_and_warnings(result: Evaluation, port: str = "") -> list[str]:
    """Return a line on the accuracy that was expected, and whether it is met, if one was; and the warnings.

    Args:
        port: begins what they say, where there are several ports.
    """
    warnings = [f"  warning    {port}{warning}" for warning in result.warnings]
    if result.expected is None:
        return warnings
    top1, tolerance = result.expected
    met = "met" if result.ok else "MISSED"
    return [f"  expected   {port}top-1 {top1:g} within {tolerance:g}: {met}", *warnings]


def _images(result: Evaluation) -> str:
    """Say how many images count: `500 (--limit), of which 2 failed and count as not recognised`."""
    limited = " (--limit)" if result.limit else ""
    failed = f", of which {len(result.failed):,} failed and count as not recognised" if result.failed else ""
    return f"{result.images:,}{limited}{failed}"


def _figures(result: Evaluation) -> list[str]:
    """Write the table of accuracies: the port, what was measured beside it, and the published figure."""
    rows = [("port", *_row(result))]
    of_source = None if result.source is None else result.source.accuracy
    beside = {"in fp32": result.fp32, "source": of_source, "by ReaL": result.real}
    rows += [(name, *_row(accuracy)) for name, accuracy in beside.items() if accuracy is not None]
    if result.published is not None:
        rows.append(
            ("published", f"{result.published['top1']:.3f}", f"{result.published['top5']:.3f}", "", "")
        )
    # The first heading is blank, and as wide as the other labels of the output.
    header = ("         ", *_COLUMNS)
    kept = [place for place, name in enumerate(header) if result.has_top5 or name != "top-5"]
    return table([header[place] for place in kept], [[row[place] for place in kept] for row in rows])


def _limit(result: Evaluation) -> str:
    """Say what a long run was limited by: the network, or what prepares the photos for it. Empty for a short
    run.
    """
    if result.network is None or result.waited is None:
        return ""
    # The network counts crops, the run photos. Near its own speed, it is the network that limits.
    is_near_own_speed = result.crops * result.per_second > 0.8 * result.network
    limit = "the network limits it" if is_near_own_speed else "preparing photos limits it"
    return (
        f"; {limit}: the network can take {result.network:,.0f} images/s, and waited for "
        f"photos {100 * result.waited:.0f} % of the time"
    )


def _tried(result: Evaluation) -> list[str]:
    """Return a line for each way of running that `--fast` tried: its speed, or why it was refused."""
    return [
        f"{way.run.words}: {way.refused or f'{way.per_second:,.0f} images/s of made photos'}"
        for way in result.tried
    ]


def _row(accuracy: Accuracy) -> tuple[str, str, str, str]:
    """Return an accuracy as the cells of `_COLUMNS`."""
    low, high = accuracy.ci95
    loss = "" if accuracy.loss is None else f"{accuracy.loss:.4f}"
    return f"{accuracy.top1:.3f}", f"{accuracy.top5:.3f}", loss, f"{low:.2f} to {high:.2f}"


def _agreement(beside: Agreement) -> list[str]:
    """Return the lines on the source beside the port: how many answers agree, and the first photos that
    differ.
    """
    lines = [
        f"agreement  {beside.agreeing:,} of {beside.compared:,} photos with {beside.reference}; "
        f"logits differ by {beside.max_abs:.1e} at most, relative L2 {beside.rel_l2:.1e}"
    ]
    differing = [
        f"{photo.name}: source {photo.source}, port {photo.port}, right {', '.join(map(str, photo.labels))}"
        for photo in beside.differing
    ]
    return lines + first_lines("differs    ", differing)


def predictions(results: Sequence[Prediction]) -> list[str]:
    """Return the lines of `porter predict`: for each photo the likeliest classes, or the one number that the
    port gives.
    """
    lines = []
    for prediction in results:
        lines.append(f"{prediction.image}, fed {prediction.fed}")
        if len(prediction.top5) == 1:
            (only,) = prediction.top5
            sigmoid = "" if only.probability is None else f", sigmoid {only.probability:.4f}"
            lines.append(f"  output {only.logit:.4f}{sigmoid}")
            continue
        lines += [
            f"  {guess.probability:7.2%}  logit {guess.logit:8.4f}  {guess.name or f'class {guess.index}'}"
            for guess in prediction.top5
        ]
    return lines
