"""A port on a card of HTML, for notebooks. Everything from a record is escaped."""

from __future__ import annotations

from markupsafe import Markup

from porter.comparison.side_by_side import COLOURS
from porter.reporting.records import Contents
from porter.reporting.sentences import conclude

_COLOURS = {"proved": COLOURS["same"], "unproved": COLOURS["undecided"], "differs": COLOURS["differs"]}
_MOST = 10
"""The most pads that are shown."""


def card(contents: Contents) -> str:
    """Write a card of HTML: what the port is, the verdict on it, what its reader has to know, and its pads
    that are not the layers' own.
    """
    record, verdict = contents.record, conclude(contents)
    shown = [pad for pad in record.pads if not pad.is_native]
    rows = Markup("").join(
        Markup("<tr><td>{}</td><td>{}</td><td>{}</td></tr>").format(pad.site, pad.source, pad.realised)
        for pad in shown[:_MOST]
    )
    head = Markup("<tr><th>site</th><th>source</th><th>{}</th></tr>").format(record.framework)
    warned = Markup("").join(map(Markup("<p>Warning: {}</p>").format, record.warnings))
    note = f"sites with the layers' own padding: {len(record.pads) - len(shown)}"
    if len(shown) > _MOST:
        note += f"; sites that need more and are not shown: {len(shown) - _MOST}"
    return str(
        Markup(
            '<div><b>{}</b> to {} in <code>{}</code><p><b style="color:{}">{}</b>. {}</p>{}{}<p>{}</p></div>'
        ).format(
            record.name,
            record.framework,
            contents.folder,
            _COLOURS[verdict.standing],
            verdict.word,
            verdict.sentence,
            warned,
            Markup("<table>{}{}</table>").format(head, rows) if shown else "",
            note,
        )
    )
