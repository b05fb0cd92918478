"""Two ports side by side: what they were made from, what proves them, where they pad otherwise, how accurate
they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from porter.reporting.records import Contents
from porter.reporting.sentences import conclude, distance_text, facts


@dataclass(frozen=True)
class Pair:
    """What is said of either port; empty where its record says nothing."""

    what: str
    one: str
    other: str


def compare_contents(one: Contents, other: Contents) -> dict[str, Any]:
    """Return what the page of two ports shows. Rows in which they differ are marked there."""
    ports = (one, other)
    names = [port.folder.resolve().name for port in ports]
    return {
        "subject": " and ".join(dict.fromkeys(port.record.name for port in ports)),
        "names": names,
        "conclusions": [(name, conclude(port)) for name, port in zip(names, ports, strict=True)],
        "relation": _relation(one, other),
        "facts": _rows(*map(_facts, ports)),
        "errors": _rows(*map(_errors, ports)),
        "pads": [row for row in _rows(*map(_pads, ports)) if row.one != row.other],
        "accuracies": _rows(*map(_accuracies, ports)),
    }


def _rows(one: Mapping[str, str], other: Mapping[str, str]) -> list[Pair]:
    """Return what two ports say under the same names side by side, in the order of the names."""
    return [Pair(what, one.get(what, ""), other.get(what, "")) for what in dict.fromkeys((*one, *other))]


def _relation(one: Contents, other: Contents) -> str:
    """Say in a sentence how two ports belong together."""
    if one.record.source.sha256 != other.record.source.sha256:
        return "The two were made from different files."
    both_proved = all(conclude(port).standing == "proved" for port in (one, other))
    if both_proved and one.record.padding == other.record.padding:
        return "Both were made from the same file and are proved, so that they compute the same function."
    return "Both were made from the same file."


def _facts(contents: Contents) -> dict[str, str]:
    """Return the facts about a port by their terms; several notes or twins have one term."""
    texts = dict[str, list[str]]()
    for fact in facts(contents.record):
        texts.setdefault(fact.term, []).append(fact.text)
    return {term: "; ".join(said) for term, said in texts.items()}


def _errors(contents: Contents) -> dict[str, str]:
    """Say by number type how far a port's logits are from the source's; {} without a comparison."""
    dtypes: Iterable[tuple[str, Any]] = contents.comparison.dtypes.items() if contents.comparison else ()
    return {
        dtype: f"{distance_text(parity.logits.rel_l2)} of at most {distance_text(parity.limit)}"
        for dtype, parity in dtypes
    }


def _pads(contents: Contents) -> dict[str, str]:
    """Return by node how the port pads there."""
    return {pad.site: pad.realised for pad in contents.record.pads}


def _accuracies(contents: Contents) -> dict[str, str]:
    """Return the figures of a port's evaluation, in words; {} where it was not evaluated."""
    measured = contents.evaluation
    if measured is None:
        return {}
    figures = {
        "top-1, %": f"{measured.top1:.2f} ({measured.ci95[0]:.2f} to {measured.ci95[1]:.2f})",
        "images": str(measured.images),
    }
    if measured.has_top5:
        figures["top-5, %"] = f"{measured.top5:.2f}"
    return {
        **figures,
        "loss, nats": "" if measured.loss is None else f"{measured.loss:.4f}",
        "protocol": measured.protocol,
    }
