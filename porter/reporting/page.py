"""The report as one HTML page. It needs no network and no script, and everything from a record is escaped by
the template.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from importlib.resources import files
from math import isfinite
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from porter.base.errors import some
from porter.evaluation.protocol import own_protocol
from porter.evaluation.results import Accuracy, Evaluation
from porter.graph.pads import PadDecision
from porter.port import Record
from porter.reporting import command_lines
from porter.reporting.blocks import blocks_of
from porter.reporting.plots.accuracy import AccuracyRow, plot_accuracy
from porter.reporting.plots.logits import finite_pairs, largest_distance, plot_logits
from porter.reporting.plots.node_distances import plot_nodes
from porter.reporting.plots.study import plot_study
from porter.reporting.records import Contents
from porter.reporting.sample_photos import label_name, logit_name, show
from porter.reporting.sentences import conclude, distance_text, facts, steps, warn
from porter.reporting.two_ports import compare_contents

WIDE, NARROW = 700, 340
"""Widths of drawings in px: the column, and the column on a phone."""
HEADINGS = {
    "what": "What was ported",
    "errors": "Error of every node",
    "pads": "Padding",
    "graph": "The graph",
    "logits": "Logits of source and port",
    "accuracy": "Accuracy",
    "study": "Padding study",
    "photos": "Sample photos",
    "preprocessing": "Preprocessing",
    "again": "How to reproduce it",
}
"""The parts of the page by their ids, in their order."""
_MOST_PHOTOS = 20
"""How many photos that failed or differ are named."""


def page(contents: Contents) -> str:
    """Write the whole page, the same for the same contents."""
    return _environment(contents.record).get_template("page.html").render(_template_values(contents))


def page_of_two(one: Contents, other: Contents) -> str:
    """Write the page of two ports side by side."""
    return _environment(one.record).get_template("beside.html").render(compare_contents(one, other))


def sections(contents: Contents) -> dict[str, bool]:
    """Say for each section that a report can have whether these contents have it."""
    details = contents.details
    return {
        "errors": contents.comparison is not None,
        "pads": bool(contents.record.pads),
        "logits": bool(details.pairs),
        "accuracy": contents.evaluation is not None,
        "study": contents.study is not None,
        "photos": bool(details.photos),
        "preprocessing": contents.record.preprocess is not None,
    }


def missing_sections(contents: Contents, folder: str) -> list[tuple[str, str]]:
    """Name the sections that a report could have and has not, each with the command that makes it.

    Args:
        folder: the port's, as the commands name it.
    """
    record = contents.record
    makers = {"errors": ("The error of every node", command_lines.convert(record, folder, again=True))}
    if own_protocol(record) is not None:
        evaluate = command_lines.evaluate(record, folder, None)
        makers |= {
            "logits": ("The logits of source and port over photos", evaluate),
            "accuracy": ("The accuracy", evaluate),
            "photos": ("Sample photos with what both frameworks see", evaluate),
        }
    if own_protocol(record) is not None and record.variant is not None and record.zoo is not None:
        makers["study"] = ("The padding study", command_lines.study(record, folder, None))
    present = sections(contents)
    return [maker for section, maker in makers.items() if not present[section]]


def page_environment() -> Environment:
    """Make what every page is made with: the templates, escaping, the style and words for distances."""
    environment = Environment(
        loader=PackageLoader("porter.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = Markup(files("porter.reporting").joinpath("templates/style.css").read_text(encoding="utf-8"))
    digest = b64encode(sha256(style.encode()).digest()).decode("ascii")
    environment.globals |= {"style": style, "style_digest": digest, "headings": HEADINGS}
    environment.filters |= {"distance": distance_text, "some": some}
    return environment


def _environment(record: Record) -> Environment:
    """Make the environment of a port's page: every page's, with filters that name the port's classes."""
    environment = page_environment()
    environment.filters |= {
        "percent": partial(_format_figure, digits=2),
        "nats": partial(_format_figure, digits=4),
        "label_name": partial(label_name, record=record),
        "logit_name": partial(logit_name, record=record),
    }
    return environment


def _template_values(contents: Contents) -> dict[str, Any]:
    """Return what the template of the page shows, by its names. Plots are drawn in two widths, and parts that
    were never made are None or empty.
    """
    record, details = contents.record, contents.details
    comparison, evaluation = contents.comparison, contents.evaluation
    pairs = details.pairs or ()
    name = contents.folder.resolve().name
    present = sections(contents)
    return {
        "record": record,
        "conclusion": conclude(contents),
        "warnings": warn(contents),
        "facts": facts(record),
        "ignored": dict(record.tensors.reasons),
        "comparison": comparison,
        "node_plots": comparison
        and _draw_twice(lambda width: plot_nodes(comparison.nodes, comparison.worst, width)),
        "contents": {section: heading for section, heading in HEADINGS.items() if present.get(section, True)},
        "pads": _group_pads(pad for pad in record.pads if not _pads_nothing(pad)),
        "blocks": blocks_of(record),
        "trivial_pads": [pad.site for pad in record.pads if _pads_nothing(pad)],
        "pairs": len(finite_pairs(pairs)),
        "largest_distance": largest_distance(pairs),
        "logit_plot": plot_logits(pairs) if pairs else None,
        "evaluation": evaluation,
        "runs": contents.runs,
        "published": evaluation and _published(evaluation),
        "accuracies": evaluation and _rows(evaluation),
        "accuracy_plots": evaluation and _draw_twice(lambda width: plot_accuracy(_rows(evaluation), width)),
        "study": contents.study,
        "study_plots": contents.study and _draw_twice(partial(plot_study, contents.study)),
        "photos": [show(photo, record) for photo in details.photos or ()],
        "steps": steps(record),
        "commands": command_lines.reproduce(contents, name),
        "missing": missing_sections(contents, name),
        "listed": _MOST_PHOTOS,
    }


def _draw_twice(draw: Callable[[int], Markup]) -> dict[str, Markup]:
    """Draw for a wide screen and for a phone; the style sheet shows the one that fits."""
    return {"wide": draw(WIDE), "narrow": draw(NARROW)}


def _pads_nothing(pad: PadDecision) -> bool:
    """Return whether a site pads nothing in either framework, which needs no explanation."""
    return pad.is_native and pad.source == pad.realised == "valid"


def _group_pads(pads: Iterable[PadDecision]) -> list[tuple[PadDecision, list[str]]]:
    """Return the decisions on pads, those that differ in their sites only as one, each with its sites."""
    sites: dict[PadDecision, list[str]] = {}
    for pad in pads:
        sites.setdefault(pad.model_copy(update={"site": ""}), []).append(pad.site)
    return list(sites.items())


def _rows(evaluation: Evaluation) -> list[AccuracyRow]:
    """Return the rows of the accuracy plot: of the source if it ran, of the port, and of the published figure
    if there is one.
    """
    rows = [_row("port", evaluation)]
    if evaluation.source is not None:
        rows.insert(0, _row("source", evaluation.source.accuracy))
    published = _published(evaluation)
    if "top1" in published:
        rows.append(AccuracyRow("published", published["top1"], None, published.get("top5")))
    return rows


def _row(name: str, accuracy: Accuracy) -> AccuracyRow:
    return AccuracyRow(name, accuracy.top1, accuracy.ci95, accuracy.top5, accuracy.loss)


def _published(evaluation: Evaluation) -> dict[str, float]:
    """Return the published accuracies that are numbers, by `top1` and `top5`."""
    values = {name: (evaluation.published or {}).get(name) for name in ("top1", "top5")}
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and 0 <= value <= 100
    }


def _format_figure(value: float | None, digits: int) -> str:
    return "–" if value is None or not isfinite(value) else f"{value:.{digits}f}"
