"""Two ports side by side: what they were made from, what proves them, where they pad otherwise, how accurate
they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from porter.reporting.plots.node_distances import written
from porter.reporting.records import Contents
from porter.reporting.sentences import conclude, facts


@dataclass(frozen=True)
class Pair:
    """What is said of either port; empty where its record says nothing."""

    what: str
    one: str
    other: str


def beside(one: Contents, other: Contents) -> dict[str, Any]:
    """What the page of two ports shows. Rows in which they differ are marked there."""
    both = (one, other)
    return {
        "subject": " and ".join(dict.fromkeys(each.record.name for each in both)),
        "names": [each.folder.resolve().name for each in both],
        "conclusions": [(each.folder.resolve().name, conclude(each)) for each in both],
        "relation": _relation(one, other),
        "facts": _rows(*({fact.term: fact.text for fact in facts(each.record)} for each in both)),
        "errors": _rows(*(_errors(each) for each in both)),
        "pads": [row for row in _rows(*(_pads(each) for each in both)) if row.one != row.other],
        "accuracies": _rows(*(_accuracies(each) for each in both)),
    }


def _rows(one: Mapping[str, str], other: Mapping[str, str]) -> list[Pair]:
    return [Pair(what, one.get(what, ""), other.get(what, "")) for what in dict.fromkeys((*one, *other))]


def _relation(one: Contents, other: Contents) -> str:
    """A sentence that says how two ports belong together."""
    if one.record.source.sha256 != other.record.source.sha256:
        return "The two were made from different files."
    if {conclude(each).standing for each in (one, other)} == {
        "proved"
    } and one.record.padding == other.record.padding:
        return "Both were made from the same file and are proved, so that they compute the same function."
    return "Both were made from the same file."


def _errors(contents: Contents) -> dict[str, str]:
    """How far each number type's logits are from the source's."""
    dtypes: Iterable[tuple[str, Any]] = contents.comparison.dtypes.items() if contents.comparison else ()
    return {
        dtype: f"{written(parity.logits.rel_l2)} of at most {written(parity.limit)}"
        for dtype, parity in dtypes
    }


def _pads(contents: Contents) -> dict[str, str]:
    return {pad.site: pad.realised for pad in contents.record.pads}


def _accuracies(contents: Contents) -> dict[str, str]:
    measured = contents.evaluation
    if measured is None:
        return {}
    figures = {
        "top-1, %": f"{measured.top1:.2f} ({measured.ci95[0]:.2f} to {measured.ci95[1]:.2f})",
        "images": str(measured.images),
    }
    figures |= {"top-5, %": f"{measured.top5:.2f}"} if measured.has_top5 else {}
    return {
        **figures,
        "loss, nats": "" if measured.loss is None else f"{measured.loss:.4f}",
        "protocol": measured.protocol,
    }
