"""The output of the commands for people: plain text as lines, which the command line escapes and joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeGuard

from porter.base.errors import LISTED

if TYPE_CHECKING:
    from porter.batch.batch import BatchOutcome
    from porter.comparison.comparison_result import Comparison
    from porter.conversion.pad_table import PadTable
    from porter.evaluation.prediction import Prediction
    from porter.port import Origin, Record, TensorLists
    from porter.recipe import Proof
    from porter.reporting.write_page import Report
    from porter.source.inspection import Inspection


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: a header and rows of as many cells, in left-aligned columns, two spaces
    apart.
    """
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def first_lines(
    label: str, items: Sequence[str], most: int = LISTED, others: str = " (--json names all)"
) -> list[str]:
    """Return a line for each of the first items, after a label, and one that says how many more there are and
    what names these `others`: `failed  a.jpg: ...`.
    """
    lines = [f"{label}{item}" for item in items[:most]]
    if len(items) > most:
        lines.append(f"{' ' * len(label)}and {len(items) - most:,} more{others}")
    return lines


_REASONS = 20
"""So many ports that do not stand are named."""


def batch(made: BatchOutcome) -> list[str]:
    """Return the lines on what became of a list of ports: how many there are of each state, and why some do
    not stand.
    """
    counts = ", ".join(f"{count} {state}" for state, count in made.counts.items() if count)
    skipped = f"; {made.skipped} of them had ended before" if made.skipped else ""
    reasons = [
        f"{result.state}  {result.name}: {result.message}"
        for result in made.results
        if result.message is not None
    ]
    return [f"{counts}{skipped}", *first_lines("  ", reasons, _REASONS, ""), f"table: {made.table}"]


def tells(origin: Origin | None) -> TypeGuard[Origin]:
    """Return whether an origin says more than that the file carries its graph."""
    return origin is not None and origin.by != "graph"


def tensors_words(lists: TensorLists) -> str:
    """Say how many tensors of the file are used, and how many are not, by the reason."""
    ignored = [f"{count} ignored: {reason}" for reason, count in lists.reasons.items()]
    return "; ".join((f"{len(lists.used)} used", *ignored))


def classes_words(facts: Record | Inspection) -> str:
    """Return the number of classes, and of the file's where it differs. One class is one number for each
    image, as under a sigmoid.
    """
    count = "1 (one number for each image)" if facts.classes == 1 else str(facts.classes or "none")
    if facts.classes == facts.source_classes:
        return count
    return f"{count} of the file's {facts.source_classes}"


def comparison(found: Comparison, layers: bool) -> list[str]:
    """Return the lines of `porter compare`: the verdict and what differs, how far the outputs are apart, how
    many layers are paired, and notes. With `layers`, add a table of the layers.
    """
    lines = found.lines()
    if found.parity is not None:
        top = {None: "", True: ", argmax equal", False: ", argmax differs"}[found.parity.argmax_equal]
        lines.append(f"outputs: relative L2 {found.parity.rel_l2:.1e} at {found.size}{top}")
    if found.layers:
        paired = sum(layer.a is not None and layer.b is not None for layer in found.layers)
        unpaired = ""
        if found.only_a or found.only_b:
            unpaired = f", {len(found.only_a)} only in A, {len(found.only_b)} only in B"
        lines.append(f"layers: {paired} paired{unpaired}")
    # There may be no proofs.
    proofs = zip(("A", "B"), (found.a, found.b), found.proofs, strict=False)
    lines += [f"{side}: {name}: {proof.words}" for side, name, proof in proofs]
    lines += [f"note: {note}" for note in found.notes]
    if layers:
        rows = [
            (layer.a or "-", layer.b or "-", layer.kind, "" if layer.apart is None else f"{layer.apart:.1e}")
            for layer in found.layers
        ]
        lines += ["", *table(("A", "B", "kind", "apart for the same numbers"), rows)]
    return lines


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


def pads(found: PadTable, all_sites: bool) -> list[str]:
    """Return the lines of `porter pads`: a table of the sites, with a row for training pads below a site's
    own, then what the destination refuses, and what is known of the port.

    Args:
        all_sites: the sites without padding are shown too.
    """
    shown = [site for site in found.sites if all_sites or site.telling]
    rows = []
    for site in shown:
        rows.append((site.shipped.site, site.shipped.source, site.shipped.realised, site.shipped.why))
        if site.trained is not None:
            rows.append(("  as trained", site.trained.source, site.trained.realised, site.trained.why))
    hidden = len(found.sites) - len(shown)
    more = [f"{hidden} more, without padding: --all shows them"] if hidden else []
    known = [] if found.proof is None or found.refused else [f"this port: {_proof(found.proof)}"]
    return [*table(("site", "source", "destination", "why"), rows), *more, *_refused(found), *known]


def _refused(found: PadTable) -> list[str]:
    """Return a table of the ops that the destination refuses, and a line for each thing to do about them;
    nothing if it refuses none.
    """
    if not found.refused:
        return []
    lines = table(("refused", "why"), [(error.where or "", error.message) for error in found.refused])
    return [
        "",
        *lines,
        *(f"next: {next}" for next in dict.fromkeys(error.next for error in found.refused if error.next)),
    ]


def _proof(proof: Proof) -> str:
    """Say what is known of a port from porter's own measurements: `exact (...)`, `refused (...)` or that it
    is unproven; see porter.recipe.proofs.
    """
    match proof.outcome:
        case "exact":
            worst = "bit for bit" if proof.float64 == 0 else f"worst node {proof.float64:.1e}"
            return f"{of_subject(proof.of)}exact ({worst} in float64 beside {proof.reference}, {proof.date})"
        case "refused":
            return f"refused ({proof.reason})"
        case _:
            return "unproven until porter convert compares it"


def report(written: Report) -> list[str]:
    """Return the lines of `porter report`: where the page is, and which sections it lacks, with the commands
    that make them.
    """
    missing = [f"  not in it  {section}: {command}" for section, command in written.missing.items()]
    return [str(written.path), *missing]


def of_subject(subject: str | None) -> str:
    """Return what a proof is of, where that is not the port's file, and a space; otherwise nothing."""
    return f"{subject} " if subject else ""
