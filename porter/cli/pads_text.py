"""The output of `porter pads` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from porter.cli.printing import of_subject, table

if TYPE_CHECKING:
    from porter.conversion.pad_table import PadTable
    from porter.recipe import Proof


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
