"""Two models drawn side by side, as HTML. Everything from a model is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from porter.comparison.found_difference import FoundDifference

COLOURS = {"same": "#1a7f37", "undecided": "#9a6700", "differs": "#cf222e"}
"""The colour of each verdict."""
_STYLE = (
    "body{font:15px/1.5 system-ui;margin:2em auto;max-width:60em;padding:0 1em}"
    "table{border-collapse:collapse}"
    "td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #ddd}"
)
_PAGE = Markup(
    '<!doctype html><html lang="en"><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width">'
    "<title>{0} and {1}</title><style>{2}</style><h1>{0} and {1}</h1>{3}</html>"
)


@dataclass(frozen=True)
class LayerPair:
    """A pair of layers, or one that only one model has.

    Attributes:
        a, b: their names in each model; None where it has none.
        kind: of the unit of the normal form.
        apart: how far apart their values are for the same numbers; None where they were not run.
        pair: the paths of the units.
    """

    a: str | None
    b: str | None
    kind: str
    apart: float | None
    pair: tuple[str | None, str | None] = (None, None)


def drawn(
    names: tuple[str, str],
    verdict: tuple[str, str],
    differences: Sequence[FoundDifference],
    layers: Sequence[LayerPair],
    further: Sequence[str],
) -> str:
    """Return HTML with the verdict in its colour, each difference and `further` lines, and a row for each
    layer, where those that differ are marked.

    Args:
        names: of both models.
        verdict: its words and its colour.
    """
    texts: dict[tuple[str | None, str | None], list[str]] = {}
    for each in differences:
        texts.setdefault(each.pair, []).append(f"{each.kind}: {each.text}")
    rows = [_row("th", ("A", "B", "kind", "apart for the same numbers", "difference"))]
    for layer in layers:
        difference = "; ".join(texts.get(layer.pair, ()))
        apart = "" if layer.apart is None else f"{layer.apart:.1e}"
        rows.append(
            _row("td", (layer.a or "", layer.b or "", layer.kind, apart, difference), bool(difference))
        )
    listed = (*(f"{each.kind}: {each.text}" for each in differences), *further)
    return str(
        Markup("<div><p>A: <code>{}</code>, B: <code>{}</code></p>").format(*names)
        + Markup('<p><b style="color:{1}">{0}</b></p>').format(*verdict)
        + Markup("<ul>{}</ul>").format(Markup("").join(map(Markup("<li>{}</li>").format, listed)))
        + Markup("<table>{}</table></div>").format(Markup("").join(rows))
    )


def page_of(names: tuple[str, str], body: str) -> str:
    """Return a page of HTML with what `drawn` gives."""
    return str(_PAGE.format(*names, Markup(_STYLE), Markup(body)))


def _row(tag: str, cells: Sequence[str], marked: bool = False) -> Markup:
    """Return a row of a table, `<tr>`, with its texts in cells of `tag` (td or th), coloured if `marked`."""
    style = Markup(' style="background:#ffebe9"' if marked else "")
    cell = Markup(f"<{tag}>{{}}</{tag}>")
    return Markup("<tr{}>{}</tr>").format(style, Markup("").join(map(cell.format, cells)))
