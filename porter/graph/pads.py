"""The decision at each padding site, for port.json and the tables."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from porter.graph import site_of
from porter.graph.plan import Plan


class Pad(BaseModel):
    """The decision at one padding site."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    site: str
    source: str
    realised: str
    kind: str
    why: str


def pads_of(plan: Plan) -> tuple[Pad, ...]:
    """The table of padding sites: the source's convention, its realisation in the destination, and why."""
    return tuple(
        Pad(
            site=path,
            source=str(site_of(plan.graph.by_path[path].op)),
            realised=str(realisation),
            kind=realisation.kind,
            why=realisation.why,
        )
        for path, realisation in plan.realisations.items()
    )
