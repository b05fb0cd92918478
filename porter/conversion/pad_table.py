"""The table of a port's padding sites, made without its weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from porter.base.calls import takes
from porter.base.commands import PadsOptions
from porter.base.errors import PorterError
from porter.base.options import path_of
from porter.conversion.refusals import under_own_names
from porter.frameworks import get_destination
from porter.graph.pads import PadDecision, pads_of, with_conventions
from porter.graph.plan import make_plan
from porter.padding import REACHES_NOWHERE
from porter.padding.sizes import parse_size
from porter.recipe import Proof, expand, find_member, proof_of, trained_conventions


@dataclass(frozen=True)
class SitePads:
    """The decision at one site for the shipped pads, and for the training pads if it differs."""

    shipped: PadDecision
    trained: PadDecision | None

    @property
    def telling(self) -> bool:
        """Whether a reader of the table wants this row: a window reaches past the input, or the pads of the
        source and of the port, or of training, differ.
        """
        shipped = self.shipped
        reaches_outside = shipped.why != REACHES_NOWHERE
        sides_differ = shipped.source != shipped.realised
        return reaches_outside or sides_differ or self.trained is not None

    def record(self) -> dict[str, Any]:
        """Return the record of a site that `porter pads --json` prints."""
        trained = self.trained and self.trained.model_dump(include={"source", "realised", "why"})
        return {**self.shipped.model_dump(), "trained": trained}


@dataclass(frozen=True)
class PadTable:
    """The padding sites of a port.

    Attributes:
        refused: what the destination refuses, and so does `convert`.
        proof: what is known of such ports; None for a file without a recipe.
    """

    sites: tuple[SitePads, ...]
    refused: tuple[PorterError, ...]
    proof: Proof | None = None

    def record(self) -> dict[str, Any]:
        """Return the record that `porter pads --json` prints."""
        refused = [{"node": error.where, "why": error.message, "next": error.next} for error in self.refused]
        sites = [site.record() for site in self.sites]
        return {"sites": sites, "refused": refused, "proof": self.proof and self.proof.record()}


@takes(PadsOptions)
def pads(asked: PadsOptions) -> PadTable:
    """Return the table of padding sites (the nodes whose windows may read beyond a map) of a port of the
    variant `subject`, without weights; without a source, of the file `subject`. It also has the ops that the
    destination refuses, and for a variant what is known of its proof.

    Raises:
        PaddingError: a site has no exact form in the destination at this size.
        UsageError: the file holds for another size only.
    """
    subject, recipes = asked.subject, path_of(asked.recipes)
    framework = get_destination(asked.to)
    capabilities = framework.CAPABILITIES
    if asked.source is None:
        from porter.source.open import open_source  # a variant's table is made without numpy
        from porter.source.place import expect_file, find
        from porter.source.wishes import Wishes

        asked_size = None if asked.input_size is None else parse_size(asked.input_size)
        opened = open_source(find(expect_file(subject, recipes)), Wishes(size=asked_size), recipes=recipes)
        size = asked_size or opened.sizes.built
        opened.sizes.expect(size)
        plan = make_plan(opened.graph, size, capabilities)
        plan = replace(plan, only_size=opened.sizes.only or plan.only_size)
        refused = under_own_names(framework.refusals(plan), opened.graph, opened, size)
        return PadTable(tuple(SitePads(pad, None) for pad in pads_of(plan)), tuple(refused))
    member = find_member(subject, asked.source, recipes)
    graph = expand(member)
    size = member.native_size() if asked.input_size is None else parse_size(asked.input_size)
    plan = make_plan(graph, size, capabilities)
    shipped = pads_of(plan)
    refused = under_own_names(framework.refusals(plan), graph, None, size)
    conventions = trained_conventions(member)
    trained = shipped
    if conventions:
        trained = pads_of(make_plan(with_conventions(graph, conventions), size, capabilities))
    sites = (
        SitePads(pad, None if trained_pad == pad else trained_pad)
        for pad, trained_pad in zip(shipped, trained, strict=True)
    )
    return PadTable(tuple(sites), tuple(refused), proof_of(member, framework.NAME))
